"""A disk that does not answer until a test lets it."""

import threading

from device_agent.sources.nvidia.memory import Memory
from tests.unit.device_agent.kubelet_stand_in import SECONDS


class Disk:
    """``asked``: what was to be written. ``written``: what was. ``answers``: once it is set, the disk answers."""

    def __init__(self) -> None:
        self.asked: list[Memory] = []
        self.written: list[Memory] = []
        self.answers = threading.Event()

    def write(self, _folder: str, content: Memory) -> str:
        """Write as :func:`device_agent.sources.nvidia.memory_file.write_memory` does."""
        self.asked.append(content)
        self.answers.wait(4 * SECONDS)
        self.written.append(content)
        return ""
