"""Whole stories of images whose own program loads the modules, and unloads them as it ends."""

import hashlib
import json
from typing import Any

import pytest

from driver_builder.model.images import parse_reference
from driver_builder.nodes.changes import Change, DeleteObject, takes_driver
from driver_builder.objects import manifests, vendor_pod
from driver_builder.tasks import proof_pod
from kube_api import names
from kube_api.client import Object
from kube_api.resources import DRIVER_CONTAINERS, NODES
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import KERNEL, NAMESPACE
from tests.support.driver_builder.journal import is_for, is_tainted
from tests.support.driver_builder.model_parts import digest_of
from tests.support.driver_builder.model_world import World
from tests.support.examples import IS_FAST
from tests.unit.driver_builder.world.test_world_drain import DRAIN, DrainWorld, web_path

LABEL = names.ready_label(NAMESPACE, "edu")
PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")
NODE_NAMES = ("node-0", "node-1", "node-2")
FIRST, SECOND = "r.io/vendor/edu:1", "r.io/vendor/edu:2"
OURS, OTHER_OF_OURS = "r.io/vendor/edu:0", "r.io/vendor/edu:3"
"""Images that say which modules they have."""
IDENTITIES = {OURS: "C0FFEE", OTHER_OF_OURS: "BEEF"}


def identity_of(image: str) -> str:
    """Return the srcversion of what an image loads, by its digest."""
    return hashlib.sha256(image.encode()).hexdigest()[:24].upper()


def mapping(image: str, **changes: Any) -> list[Object]:
    """Return the mappings of a driver whose image loads by itself, or, with ``loader: ours``, by our loader."""
    return [{"regexp": ".*", "image": image, "loader": "image", **changes}]


class ProgramWorld(DrainWorld):
    """A world that plays such programs, and proof pods; a ready label must stand for a live module all the time."""

    def __init__(self, *, rollout: Object) -> None:
        super().__init__()
        self.empty = ""
        """The digest of an image whose program loads nothing."""
        self.unpullable = False
        """Whether no proof pod can start."""
        self.replaced: list[str] = []
        """The nodes whose program was told to end."""
        self.registries.images |= {parse_reference(image): {} for image in (FIRST, SECOND)}
        for image, identity in IDENTITIES.items():
            labels = {"io.driverwright.modules": json.dumps([{"name": "edudrv", "identity": identity}])}
            self.registries.images[parse_reference(image)] = labels
        for name in NODE_NAMES:
            self.add_node(name, KERNEL)
        module = {"names": ["edudrv"], "trustImage": True}
        self.add_driver("edu", kernelMappings=mapping(FIRST), module=module, rollout=rollout)

    def edit(self, **spec: Any) -> None:
        """Edit the driver's spec."""
        self.client.patch(PATH, {"spec": spec})

    def want(self, image: str) -> None:
        """Edit the mapping: each image is loaded as it has to be."""
        self.edit(kernelMappings=mapping(image, **({"loader": None} if image in IDENTITIES else {})))

    def programs(self) -> list[Object]:
        """Return the driver pods with a program."""
        return [pod for _, pod in self._objects("pods") if manifests.has_program(pod["spec"])]

    def spoil(self, image: str) -> None:
        """Let nothing of an image be loaded."""
        if image in IDENTITIES:
            self.bad.add(IDENTITIES[image])
        else:
            self.empty = digest_of(parse_reference(image))

    def template_specs(self) -> list[Object]:
        """Return what the DaemonSets say of their pods."""
        return [item["spec"]["template"]["spec"] for _, item in self._objects("daemonsets")]

    def proofs(self) -> list[Object]:
        """Return the proof pods."""
        return [pod for _, pod in self._objects("pods") if proof_pod.PROOF.label in pod["metadata"]["labels"]]

    def steps(self) -> Any:
        """Let programs end and load, and proof pods see what is live, and look after each step."""
        steps = (*super().steps(), self._prove, self._probe)
        return [step for each in steps for step in (each, self.look_at_labels)]

    def _end_programs(self) -> None:
        """Let programs that are told to end unload."""
        for pod in self.programs():
            if "deletionTimestamp" in pod["metadata"] and pod.get("status", {}).get("loaded"):
                self.live[pod["spec"]["nodeName"]].pop("edudrv", None)
                pod["status"]["loaded"] = False

    def look_at_labels(self) -> None:
        """Check that nothing says that a driver works that is gone."""
        self._end_programs()
        for name in self.kernels:
            if LABEL in self.client.objects[NODES.path(name=name)]["metadata"]["labels"]:
                assert "edudrv" in self.live[name], f"{name} is labelled, and nothing is loaded there"

    def _load(self) -> None:
        for pod in self.programs():
            node = pod["spec"]["nodeName"]
            others = [other for other in self.programs() if other["spec"]["nodeName"] == node and other is not pod]
            if not pod.get("status") and not others:
                pod["status"] = _status(ready=False, at=self.now)
                if self.live[node].get("edudrv") in IDENTITIES.values():
                    del self.live[node]["edudrv"]
                image = pod["spec"]["containers"][0]["image"]
                pod["status"]["loaded"] = not self.empty or not image.endswith(self.empty)
                if pod["status"]["loaded"]:
                    self.live[node]["edudrv"] = identity_of(image)
            elif not pod.get("status"):
                pod["status"] = {}
        waiting = [pod for pod in self.programs() if not pod.get("status")]
        for pod in self._of_our_loader():
            left = [other for other in self.programs() if other["spec"]["nodeName"] == pod["spec"]["nodeName"]]
            if left and not pod.get("status"):
                assert pod["spec"].get("hostPID"), "our loader begins beside a program that unloads as it ends"
                waiting.append(pod)
        for pod in waiting:
            pod["status"] = {"phase": "Pending"}
        super()._load()
        for pod in waiting:
            pod["status"] = {}

    def _of_our_loader(self) -> list[Object]:
        pods = [pod for _, pod in self._objects("pods") if manifests.TARGET_LABEL in pod["metadata"]["labels"]]
        return [pod for pod in pods if not manifests.has_program(pod["spec"])]

    def _prove(self) -> None:
        """Play the proof pods: what is live is reported, and `hold` is content."""
        for pod in self.proofs():
            node = pod["spec"]["nodeName"]
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                continue
            if self.unpullable:
                waiting = {"waiting": {"reason": "ErrImagePull", "message": "no route"}}
                pod["status"] = {"phase": "Pending", "containerStatuses": [{"name": "prove", "state": waiting}]}
                continue
            verdict: Object = {"result": "LoadFailed", "kernel": self.kernels[node], "bootID": self.boots[node]}
            if "edudrv" in self.live[node]:
                module = {"name": "edudrv", "srcversion": self.live[node]["edudrv"], "devices": []}
                verdict |= {"result": "Loaded", "modules": [module]}
            ended = {"exitCode": 0, "message": json.dumps(verdict), "finishedAt": timestamp(self.now)}
            state = {"name": proof_pod.PROOF.container, "state": {"terminated": ended}}
            phase = "Succeeded" if verdict["result"] == "Loaded" else "Failed"
            pod["status"] = {"phase": phase, "containerStatuses": [state]}

    def _probe(self) -> None:
        """Play the probes of `hold`: what was proven of a pod once, its file says as long as the node is up."""
        for proof in self.proofs():
            for pod in self.programs():
                is_its_own = pod["metadata"]["uid"] == proof["metadata"]["labels"][proof_pod.PROOF.label]
                if is_its_own and proof["status"].get("phase") == "Succeeded" and pod["status"].get("loaded"):
                    pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    def belongs(self, pod: Object) -> bool:
        """Return whether a pod's DaemonSet wants it on its node."""
        owners = {obj["metadata"]["uid"]: obj for _, obj in self._objects("daemonsets")}
        owner = owners.get(pod["metadata"]["ownerReferences"][0]["uid"])
        node = self.client.objects.get(NODES.path(name=pod["spec"]["nodeName"]))
        return owner is not None and node is not None and is_for(owner["spec"]["template"]["spec"], node)

    def look(self, action: Change) -> bool:
        """Check each replacement: the node is drained, and its label is gone."""
        if takes_driver(action) and action.node in self.kernels:
            node = self.client.objects[NODES.path(name=action.node)]
            going = [pod for pod in self.programs() if pod["spec"]["nodeName"] == action.node]
            uid = action.uid if isinstance(action, DeleteObject) else None
            going = [pod for pod in going if (not self.belongs(pod) if uid is None else pod["metadata"]["uid"] == uid)]
            if any(pod["status"].get("loaded") for pod in going):
                self.replaced.append(action.node)
                assert LABEL not in node["metadata"]["labels"]
                assert web_path(f"web-{action.node}") not in self.client.objects, "it is replaced under its users"
                assert is_tainted(node)
                gone = [name for name in self.kernels if "edudrv" not in self.live[name]]
                assert set(gone) <= {action.node}, f"{action.node} goes while {gone} have no driver"
        return False

    def arrive(self, rounds: int = 200, kills: tuple[int, ...] = ()) -> None:
        """Let everything settle; the controller is killed after some of its actions."""
        done = 0

        def after(action: Change) -> bool:
            nonlocal done
            done += 1
            self.look(action)
            self.look_at_labels()
            return done in kills

        for _ in range(rounds):
            before = json.dumps(self.client.objects, sort_keys=True, default=str)
            decided = World.reconcile(self, after)
            self.finish_builds()
            self.turn()
            if not decided.actions and before == json.dumps(self.client.objects, sort_keys=True, default=str):
                return
            self.now += 5.0
        raise AssertionError(f"still moving: {[str(action) for action in self.decide().actions]}")

    def assert_all_have(self, image: str) -> None:
        """Every node is labelled, has what the image loads and what uses it, and nothing is left of an upgrade."""
        reference = parse_reference(image)
        identity = IDENTITIES.get(image) or identity_of(str(reference.at(digest_of(reference))))
        assert self.leftovers() == []
        for name in self.kernels:
            assert LABEL in self.client.objects[NODES.path(name=name)]["metadata"]["labels"]
            assert self.live[name]["edudrv"] == identity
            assert web_path(f"web-{name}") in self.client.objects


def _status(*, ready: bool, at: float) -> Object:
    """Make the status of a pod whose program runs."""
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "initContainerStatuses": [{"name": vendor_pod.PREPARE_CONTAINER, "state": {"terminated": {"exitCode": 0}}}],
        "containerStatuses": [
            {"name": manifests.HOLD_CONTAINER, "state": {"running": {}}},
            {"name": vendor_pod.PROGRAM_CONTAINER, "state": {"running": {"startedAt": timestamp(at)}}},
        ],
    }


def world(image: str = FIRST) -> ProgramWorld:
    """Make a world of three nodes that have what an image loads."""
    made = ProgramWorld(rollout={"drain": DRAIN})
    made.want(image)
    made.arrive()
    made.assert_all_have(image)
    return made


@pytest.mark.parametrize(
    "kills", [(), *((at,) for at in range(3, 40, 12 if IS_FAST else 4))], ids=lambda at: f"killed after {at}"
)
def test_a_wave_between_two_program_images(kills: tuple[int, ...]) -> None:
    """One node after the other is drained; its label goes with its program, and it is proven anew."""
    seen = world()
    seen.edit(kernelMappings=mapping(SECOND))
    seen.arrive(kills=kills)
    seen.assert_all_have(SECOND)
    assert sorted(seen.replaced) == list(NODE_NAMES)
    assert len(seen.proofs()) == len(NODE_NAMES)


@pytest.mark.parametrize(
    ("before", "after"), [(FIRST, SECOND), (OURS, SECOND), (FIRST, OURS)], ids=["of a program", "of ours", "by ours"]
)
def test_an_image_of_which_nothing_is_loaded_is_taken_back(before: str, after: str) -> None:
    """The wave halts after its first node, which gets the image of before again; the others keep it."""
    seen = world(before)
    seen.spoil(after)
    seen.want(after)
    seen.arrive()
    assert set(seen.replaced) <= {"node-0"}
    seen.assert_all_have(before)
    (target,) = seen.status()["targets"]
    assert (target["reason"], "node-0: LoadFailed" in target["message"]) == ("RolloutHalted", True)


EDITS = [(FIRST, SECOND, OURS), (FIRST, OURS, SECOND), (FIRST, OURS, FIRST), (OURS, FIRST, OTHER_OF_OURS),
         (OURS, FIRST, OURS), (OURS, OTHER_OF_OURS, FIRST)]  # fmt: skip


@pytest.mark.parametrize("passes", range(1, 16, 5 if IS_FAST else 1))
@pytest.mark.parametrize(
    ("first", "second", "last"), EDITS, ids=lambda image: "ours" if image in IDENTITIES else "program"
)
def test_who_loads_is_edited_in_the_midst_of_a_wave(first: str, second: str, last: str, passes: int) -> None:
    """Our loader waits for a program that ends, and nodes still go one after the other, drained and without label."""
    seen = world(first)
    seen.want(second)
    for _ in range(passes):
        World.reconcile(seen, seen.look)
        seen.turn()
        seen.now += 5.0
    seen.want(last)
    seen.arrive(rounds=300, kills=(passes,))
    seen.assert_all_have(last)
    assert (seen.programs() == []) is (last in IDENTITIES)
    assert not any(manifests.sees_programs(spec) for spec in seen.template_specs())


def test_deleted_proofs_let_no_wave_loose() -> None:
    """Somebody deletes all completed pods, no new one can start: nodes are replaced as ever, one after the other."""
    seen = world()
    seen.unpullable = True
    for pod in seen.proofs():
        del seen.client.objects[next(path for path, obj in seen.client.objects.items() if obj is pod)]
    seen.turn()
    seen.reconcile()
    seen.turn()
    assert all("no route" in str(pod["status"]) for pod in seen.proofs())
    seen.edit(kernelMappings=mapping(SECOND))
    for _ in range(30):
        World.reconcile(seen, seen.look)
        seen.turn()
        seen.now += 5.0
    assert len(seen.replaced) == 1
    seen.unpullable = False
    seen.arrive()
    seen.assert_all_have(SECOND)


def test_our_loader_follows_a_program_that_has_ended() -> None:
    """And a program our loader: the driver is edited there and back."""
    seen = world()
    seen.want(OURS)
    seen.arrive()
    seen.assert_all_have(OURS)
    assert (seen.programs(), seen.proofs()) == ([], [])
    assert sorted(seen.replaced) == list(NODE_NAMES)
    seen.want(SECOND)
    seen.arrive()
    seen.assert_all_have(SECOND)


def test_other_module_names_reach_the_nodes() -> None:
    """The image is the same, and says nothing of its modules; other names of the same one change nothing."""
    seen = world()
    seen.edit(module={"names": ["edudrv", "edu2"], "trustImage": True})
    seen.arrive()
    assert sorted(seen.replaced) == list(NODE_NAMES)
    seen.edit(module={"names": ["edu2", "edudrv"], "trustImage": True})
    seen.arrive()
    assert len(seen.replaced) == len(NODE_NAMES)


def test_nothing_is_left_of_a_driver_that_goes() -> None:
    """Pods, proofs, records, and labels."""
    seen = world()
    seen.delete_driver("edu")
    seen.arrive()
    assert (seen.programs(), seen.proofs(), seen.leftovers()) == ([], [], [])
    assert PATH not in seen.client.objects
    assert not any(key.endswith("/driverwright.edu") for name in seen.kernels
                   for key in seen.client.objects[NODES.path(name=name)]["metadata"]["annotations"])  # fmt: skip
