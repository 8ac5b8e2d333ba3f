"""How commands print."""

import json

import pytest
import yaml

from driver_builder.cli.output import document, table
from driver_builder.model.driver_key import driver_key


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Three blanks between columns, none at a line's end."""
    assert table(("A", "LONG"), [("xyz", 1), ("", "yy")]).splitlines() == ["A     LONG", "xyz   1", "      yy"]


def test_a_table_without_rows_is_its_headers() -> None:
    """Nothing to show is shown."""
    assert table(("A", "B"), []) == "A   B"


@pytest.mark.parametrize(
    ("form", "read"), [pytest.param("json", json.loads, id="json"), pytest.param("yaml", yaml.safe_load, id="yaml")]
)
def test_documents_can_be_read_back(form: str, read: object) -> None:
    """What is written for programs is what it was."""
    data = {"b": [1, "two", None], "a": {"c": True}}
    assert callable(read)
    assert read(document(data, form)) == data


def test_keys_of_drivers_are_texts_and_other_writers_of_yaml_stay_as_they_are() -> None:
    """The library's own dumper, which the whole process shares, does not know them."""
    assert document({"driver": driver_key("lab", "nic")}, "yaml") == "driver: lab/nic"
    with pytest.raises(yaml.representer.RepresenterError):
        yaml.safe_dump(driver_key("lab", "nic"))
