"""What a person should know of fields that were converted, or were not. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.api.spec_reader import Path, Reader
from driver_builder.base.check_result import Remark, Status


@dataclass(frozen=True, slots=True)
class Remarks:
    """All of an object, each once."""

    said: dict[Remark, None] = field(default_factory=dict)

    def error(self, path: Path, message: str, *way: str | int) -> None:
        """Name a field without which the driver differs."""
        self.said[Remark((*path, *way), message, Status.FAILED)] = None

    def warning(self, path: Path, message: str, *way: str | int) -> None:
        """Name a field with which nothing has to be done."""
        self.said[Remark((*path, *way), message)] = None

    def lost(self, fields: Reader, words: Mapping[str, str]) -> None:
        """Name which of some fields are given, as errors."""
        for name, message in words.items():
            if is_given(fields.raw(name)):
                self.error(fields.path, message, name)

    def dropped(self, fields: Reader, words: Mapping[str, str]) -> None:
        """Name which of some fields are given, as warnings."""
        for name, message in words.items():
            if is_given(fields.raw(name)):
                self.warning(fields.path, message, name)


def is_given(value: object, depth: int = 2) -> bool:
    """Return whether a value says something: not one that is empty or false, as an API server fills in."""
    if isinstance(value, Mapping) and depth:
        return any(is_given(item, depth - 1) for item in value.values())
    return bool(value)
