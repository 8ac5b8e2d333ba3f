"""What the agent has where its configuration asks for GPUs: their source, what was given, and the Node's label.

Imported only then: most nodes have no GPUs.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from device_agent.allocations.remembered import Allocations
from device_agent.boot import read_boot_id
from device_agent.config.options import Settings
from device_agent.sources.nvidia.nvidia_source import NvidiaSource

if TYPE_CHECKING:
    from device_agent.node.asked import Asked
    from device_agent.node.own_node import OwnNode
    from device_agent.profiles.verdict import Verdict
    from device_agent.sources.files.profiled_files import ProfiledFiles

    MakeOwnNode = Callable[[Callable[[Asked], None] | None, Callable[[], None] | None], OwnNode | None]
    """Follows the Node that the agent runs on; None where it cannot be known. It reports which profile the Node's label
    asks for, and that what the Node says about MIG has changed."""


class Gpus:
    """GPUs as a source. With profiles the Node's label chooses one, and the Node is told what became of it.

    ``given``: remembers what was given. ``make_own_node`` is called only with profiles or MIG layouts.
    ``files``: follow the profile that is in force for GPUs.
    """

    def __init__(
        self,
        settings: Settings,
        given: "Allocations | None",
        make_own_node: "MakeOwnNode",
        files: "ProfiledFiles | None" = None,
    ) -> None:
        self.given = given or Allocations(settings.state_dir, read_boot_id("/"))
        self.source = NvidiaSource(settings, given=self.given)
        self._own = self._follow_node(settings, make_own_node)
        self._task: asyncio.Task[None] | None = None
        self._files = files
        if files is not None:
            files.expect()

    @property
    def verdict(self) -> "Verdict | None":
        """Say how the node's profile is, for GPUs and files; None without profiles."""
        return self._with_files(self.source.verdict)

    def follow(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the Node, if it is known, until stopped."""
        if self._own is not None:
            self.source.expect()
            self._task = tasks.create_task(self._own.follow())

    def answer(self) -> None:
        """Have the Node say what became of what it asks for, and the files follow."""
        if self._files is not None and (found := self.source.verdict) and found.asked:
            self._files.ask(found.applied or found.asked)
        if self._own is not None and (verdict := self._with_files(self.source.answer)):
            self._own.answer(verdict)

    async def stop(self) -> None:
        """Give up what is asked of the API server: no answer of it is waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _follow_node(self, settings: Settings, make_own_node: "MakeOwnNode") -> "OwnNode | None":
        """Have the Node followed where its labels choose a profile or a MIG layout; None where none does."""
        if not (settings.profiles or settings.mig_config):
            return None
        ask: Callable[[Asked], None] | None = (lambda asked: self.source.ask(asked.key)) if settings.profiles else None
        own = make_own_node(ask, self.source.look_soon if settings.mig_config else None)
        if own is not None and own.mig is not None:
            self.source.change_mig(own.mig)
        return own

    def _with_files(self, verdict: "Verdict | None") -> "Verdict | None":
        return verdict.beside(self._files.verdict) if verdict is not None and self._files is not None else verdict
