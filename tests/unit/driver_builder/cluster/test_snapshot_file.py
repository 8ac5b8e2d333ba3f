"""A snapshot written down and read again makes the same plan, without secrets; what cannot be read is said where."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from driver_builder.base.errors import ConfigurationError, InvalidDriver
from driver_builder.cli.output import document
from driver_builder.cluster.snapshot_file import from_document, with_hidden_values
from driver_builder.model.build import OwnTemplate, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.snapshot.node_pods import EvictionRefused
from driver_builder.snapshot.snapshot import FailedBuild, SigningCertificate, SourceMissing, Suspension
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES, PODS, SECRETS
from tests.support.driver_builder.factories import (
    DIGEST,
    KERNEL,
    NAMESPACE,
    OTHER_KERNEL,
    PRESENT,
    driver_object,
)
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.snapshot_files import check, file_of, node_object, through, written

IMAGE = ImageRef("r.io", "edu", "1")
KEY = DriverKey(f"{NAMESPACE}/edu")


def test_the_plan_is_the_same_at_every_moment_of_a_rollout() -> None:
    """On the model world, with status, pods and builds in all their states."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_node("web", KERNEL, pool="web")
    world.add_driver()
    world.fail_builds = 1
    for _ in range(8):
        check(world)
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 20


def _joins(world: World) -> None:
    world.add_node(f"node-{len(world.kernels)}", KERNEL)


STEPS: dict[str, Callable[[World], object]] = {
    "reconcile": World.reconcile,
    "build": World.finish_builds,
    "fail": lambda world: setattr(world, "fail_builds", 1),
    "discover": World.finish_discoveries,
    "turn": World.turn,
    "later": lambda world: setattr(world, "now", world.now + 700),
    "join": _joins,
    "reboot": lambda world: world.reboot("node-a", OTHER_KERNEL),
    "silence": lambda world: world.silence("node-a"),
    "remove module": lambda world: world.remove_module("node-a"),
    "change source": lambda world: world.change_source(f"int y{world.now:.0f};"),
    "rebuild": lambda world: world.annotate_driver("edu", f"r{world.now:.0f}"),
    "follow": World.follow_repository,
    "kill": World.kill,
    "wrong spec": lambda world: world.client.patch(
        DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": {"image": "nonsense"}}
    ),
    "forbid": lambda world: setattr(world.client, "forbidden", ("/pods",)),
}
ROUND = ("reconcile", "build", "turn")


@settings(max_examples=15)
@given(st.lists(st.sampled_from([*STEPS, *ROUND, *ROUND]), max_size=12))
def test_the_plan_is_the_same_after_any_history(steps: list[str]) -> None:
    """Whatever happened to nodes, drivers and controller: the file has the same drivers, pods and DaemonSets."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver(rollout={"drain": {"resources": ["example.com/edu"]}})
    world.rounds(2)
    for step in steps:
        if step == "reconcile" or not world.client.forbidden:
            STEPS[step](world)
    check(world)


KNOWN: dict[str, Any] = {
    "images": {
        IMAGE: PRESENT,
        replace(IMAGE, reference="2"): Absent(is_fresh=False),
        replace(IMAGE, reference="3"): NotAsked(),
        replace(IMAGE, reference="4"): Unreachable(message="m", retry_after=3.0, is_silent=True),
    },
    "images_of": {KEY: {IMAGE: Invalid(message="m"), IMAGE.at(DIGEST): Unauthorized(message="m")}},
    "pushed": {IMAGE: DIGEST},
    "certificates": {"n/s": SigningCertificate(der=b"\x30\x00")},
    "sources": {KEY: SourceMissing(message="m")},
    "drained_last": {KEY: frozenset({"a", "b"})},
    "locks_first_seen": {"node-a": 3.0},
    "refused_evictions": {"uid": EvictionRefused(message="m", at=1.0, is_forbidden=True)},
    "running_builds": frozenset({"b", "a"}),
    "queued_builds": {"k": 3},
    "suspended": {"": Suspension(why="m", probe_at=4.0)},
    "failed_builds": {"k": FailedBuild(reason="CompileError", message="m", at=1.0, driver=KEY, earlier=(0.5,))},
    "discoveries": {Repository("debian", "debian:12", "amd64"): Discovery(releases=(KERNEL,), at=1.0)},
    "running_discoveries": frozenset({Repository("debian", "debian:12", "arm64")}),
}


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_is_known_besides_objects_is_in_the_file(form: str) -> None:
    """Answers of registries, builds, repositories, and what a controller remembers: in either form."""
    text = document(file_of(node_object(), driver_object(), **KNOWN), form)
    read, _ = from_document(json.loads(text) if form == "json" else yaml.safe_load(text))
    images = {image: state if not isinstance(state, Present) else PRESENT for image, state in read.images.items()}
    assert {**{name: getattr(read, name) for name in KNOWN}, "images": images} == KNOWN


# ---------------------------------------------------------------- what is in no file

PONY = "pony-of-the-secret"


def hostile_world() -> World:
    """A world with a secret everywhere where one may stand, and where the file has no use for it."""
    world = World()
    world.add_node("node-a", KERNEL)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": PONY, "example.com/note": PONY}
    variable = [{"name": "TOKEN", "value": PONY}, {"name": "MODULES", "value": PONY}]
    vendor = {"loader": "image", "container": {"env": variable[:1]}}
    rules = [{"literal": OTHER_KERNEL, "image": "r.io/x/y:1", **vendor}, {"regexp": ".*"}]
    source = {"git": {"url": f"https://bob:{PONY}@git.example.com/edu.git", "commit": "0" * 40}}
    world.add_driver()
    world.add_driver("git", source=source)
    world.add_driver("vendor", kernelMappings=rules)
    template = {"templateConfigMap": {"name": "template", "key": "k"}}
    world.add_driver("template", build=template)
    world.client.create(
        CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "template"}, "data": {"k": f"RUN {PONY}"}}
    )
    world.change_source(f"int {PONY};")
    world.client.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "s"}, "data": {"k": PONY}})
    for path in (NODES.path(name="node-a"), DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")):
        world.client.patch(path, {"metadata": {"annotations": applied, "labels": {"owner": PONY}}})
    world.settle()
    for pod in world.pods_on("node-a"):
        pod["metadata"]["annotations"] |= applied
        pod["spec"]["containers"][0] |= {"env": variable, "args": [PONY], "command": [PONY]}
        pod["spec"]["volumes"] += [{"name": "v", "csi": {"volumeAttributes": {"token": PONY}}}]
        (load,) = [item for item in pod["spec"]["initContainers"] if item["name"] == "load"]
        load["env"] += variable[:1]
    for path, obj in world.client.objects.items():
        if "/daemonsets/" in path:
            obj["spec"]["template"]["spec"]["containers"][0]["env"] = variable
            obj["metadata"]["managedFields"] = [{"manager": PONY[:0], "time": PONY}]
    return world


def test_no_secret_is_in_a_file() -> None:
    """Not in variables, last-applied annotations, URLs, sources, templates, Secrets, labels, arguments or volumes."""
    world = hostile_world()
    _, made = written(world)
    text = json.dumps(made)
    assert PONY in json.dumps(world.client.objects)
    assert PONY not in text
    for words in ("https://***@git.example.com/edu.git", '"TOKEN"', "node-a"):
        assert words in text
    read, _ = from_document(made)
    source, template = read.sources[KEY], read.templates[DriverKey(f"{NAMESPACE}/template")]
    assert isinstance(source, SourceFiles)
    assert (source.files, len(source.known_digest)) == ({}, 64)
    assert isinstance(template, OwnTemplate)
    assert (template.text, len(template.digest)) == ("", 64)
    assert {item.name for item in read.drivers if isinstance(item.spec, InvalidDriver)} == {"git"}
    assert with_hidden_values(read) == (f"{NAMESPACE}/vendor",)


def test_pods_of_others_say_what_a_drain_needs_and_no_more() -> None:
    """Of a pod on a node that is drained neither images, nor variables, annotations, messages or folders."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver(rollout={"drain": {"resources": ["example.com/edu"]}})
    ended = {"terminated": {"exitCode": 1, "message": PONY}}
    container = {"name": "c", "image": PONY, "args": [PONY], "env": [{"name": "MODULES", "value": PONY}],
                 "resources": {"limits": {"example.com/edu": "1", "cpu": "1"}}}  # fmt: skip
    user = {
        "metadata": {"name": "user", "annotations": {"a": PONY}},
        "spec": {"nodeName": "node-a", "containers": [container], "tolerations": [{"value": PONY}],
                 "volumes": [{"name": "v", "hostPath": {"path": PONY}}, {"name": "w", "emptyDir": {}}]},
        "status": {"phase": "Running", "message": PONY, "conditions": [{"type": "Ready", "message": PONY}],
                   "containerStatuses": [{"name": "c", "state": ended}]},
    }  # fmt: skip
    world.client.create(PODS.path(namespace="apps"), user)
    world.rounds(4)
    world.annotate_driver("edu", "again")
    for _ in range(12):
        world.rounds(1)
        seen, made = written(world)
        if seen.node_pods:
            break
    assert '"apps"' in json.dumps(made)
    assert PONY not in json.dumps(made)
    assert from_document(made)[0].node_pods == seen.node_pods != {}


def test_the_same_values_of_variables_stay_the_same() -> None:
    """They are numbers: whether a plugin has the variables that are wanted can still be told."""
    variables = [{"name": name, "value": value} for name, value in (("A", "x"), ("B", "y"), ("C", "x"), ("D", ""))]
    rules = [{"literal": KERNEL, "image": "r.io/x/y:1", "loader": "image", "container": {"env": variables}}]
    (_, made) = file_of(node_object(), driver_object(spec_changes={"kernelMappings": rules}))["items"]
    found = made["spec"]["kernelMappings"][0]["container"]["env"]
    assert [item["value"] for item in found] == ["***1", "***2", "***1", ""]


def test_a_namespace_that_may_not_be_read_is_in_the_file() -> None:
    """In the API server's words, and not as one without pods."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.settle()
    world.client.forbidden = ("/pods",)
    seen, read, _ = through(world)
    assert read.forbidden == seen.forbidden != {}


# ---------------------------------------------------------------- what cannot be read

GOOD = file_of(node_object(), driver_object(), images={IMAGE: Absent()})


def changed(path: str, value: Any) -> Any:
    """Return the good document with one field changed, or removed for ``...``."""
    made = json.loads(json.dumps(GOOD))
    *parents, last = path.split("/")
    place = made
    for word in parents:
        place = place[int(word)] if word.isdigit() else place[word]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return made


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(None, "it is not a snapshot: create one with driver-builder snapshot", id="empty file"),
        pytest.param({"kind": "List"}, "it is not a snapshot", id="another kind"),
        pytest.param({"kind": "Snapshot", "apiVersion": "snapshot.driverwright.io/v1", "snapshot": {}},
                     "driver-builder 0.1 wrote it, whose files this version does not read: create it again",
                     id="a file of 0.1"),
        pytest.param(changed("apiVersion", "v9"), "apiVersion: 'v9' is not supported", id="another version"),
        pytest.param(changed("now", ...), "now: None", id="missing field"),
        pytest.param(changed("now", True), "now: True", id="no number"),
        pytest.param(changed("now", 10**400), "now: 1", id="too large a number"),
        pytest.param(changed("items", {}), "items: {} is not of type list", id="not a list"),
        pytest.param(changed("items/0", 7), "items[0]: 7 is not of type dict", id="no object"),
        pytest.param(changed("items/0/kind", "Lease"), "items: one of them is no object", id="an object of others"),
        pytest.param(changed("images/0/value/kind", "Lost"), "'Lost' is not one of Absent", id="unknown kind"),
        pytest.param(changed("images/0/value", {}), "value.kind: None is not one of Absent", id="kind"),
        pytest.param(changed("settings/more", 1), "settings: unknown field 'more'", id="unknown field"),
        pytest.param(changed("settings/loaderPrivileges", "all"), "'all' cannot be read", id="unknown word"),
        pytest.param(changed("settings/templateVersions", ...), "settings.templateVersions: the field is missing",
                     id="no settings"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_read_says_where(data: Any, words: str) -> None:
    """Place, value and what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        from_document(data)
    assert words in str(caught.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
places = st.sampled_from(
    ["now", "namespaces", "items", "items/0", "items/0/metadata", "items/0/metadata/labels", "items/1/spec",
     "items/1/metadata/annotations", "items/1/metadata/uid", "items/1/status", "errors", "images", "images/0/value",
     "sources", "settings", "kind", "runningBuilds", "failedBuilds", "locksFirstSeen"]
)  # fmt: skip


@given(places, plain)
def test_any_document_is_read_or_refused(place: str, value: Any) -> None:
    """Nothing but our own error comes out, whatever somebody made of the file."""
    with suppress(ConfigurationError):
        from_document(changed(place, value))
