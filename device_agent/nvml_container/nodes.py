"""The device nodes of the loaded driver, looked at or made, as the state has them. In the child: it may hang."""

import re
from collections.abc import Sequence

from device_agent.device_nodes.make import look_at_nodes, make_nodes
from device_agent.device_nodes.read import read_proc
from device_agent.device_nodes.wanted import wanted_nodes
from device_agent.gpu_state.state import MOST_NODES, NodeState
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.settings import Places
from kube_api.text import printable

_NVML_OPENS = re.compile(r"/dev/nvidia(ctl|\d+)", re.ASCII)


class Nodes:
    """Looks at device nodes, and makes them once ``may_make`` is set."""

    def __init__(self, places: Places, log: Log, *, may_make: bool) -> None:
        self.may_make = may_make
        self._places = places
        self._log = log
        self._said = ""

    def read(self) -> tuple[NodeState, ...]:
        """Return what there has to be, and what is wrong with it; what is made or removed is logged."""
        proc = read_proc(self._places.proc_root)
        wanted = wanted_nodes(proc.devices, proc.params, proc.cards, proc.capabilities, proc.why)
        found = (make_nodes if self.may_make else look_at_nodes)(wanted, self._places.dev)
        for node in found:
            if node.did:
                self._log.info(f"{node.path}, device {node.major}:{node.minor}: {node.did}")
        if wanted.why != self._said:
            self._said = wanted.why
            self._log.info(f"device nodes: {wanted.why or 'there is nothing left against them'}")
        return tuple(
            NodeState(node.path, node.major, node.minor, printable(node.why), node.capability)
            for node in found[:MOST_NODES]
        )


def usable(nodes: Sequence[NodeState]) -> frozenset[str]:
    """Return the paths of those that NVML opens and that are right."""
    return frozenset(node.path for node in nodes if not node.why and _NVML_OPENS.fullmatch(node.path))


def unusable(nodes: Sequence[NodeState]) -> tuple[NodeState, ...]:
    """Return those that NVML opens and that are not right."""
    return tuple(node for node in nodes if node.why and _NVML_OPENS.fullmatch(node.path))
