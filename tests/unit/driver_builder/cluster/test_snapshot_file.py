"""A snapshot written down and read again is the same one, without secrets; what cannot be read is said where."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.driver_spec import DriverSpec, ValidationSettings
from driver_builder.api.rollout_settings import RolloutSettings
from driver_builder.base.errors import ConfigurationError
from driver_builder.cli.output import document
from driver_builder.cluster.snapshot_file import from_document, reduced, to_document
from driver_builder.model.build import OwnTemplate, SourceFiles, SourceGit
from driver_builder.model.image_state import Absent, Unauthorized
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import Plan, plan
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.tasks.proof_pod import PROOF, Program
from tests.support.driver_builder.factories import (
    GONE,
    LOADED,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    task,
    with_images,
)
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.snapshots import snapshots

GOOD_SPEC = driver().spec
READERS: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}


def through(seen: Snapshot, form: str = "json") -> tuple[Snapshot, PlanSettings]:
    """Write a snapshot and read it again."""
    return from_document(READERS[form](document(to_document(seen, SETTINGS), form)))


def told(decided: Plan) -> list[Any]:
    """Return all that a plan says: actions, targets, when to look again."""
    parts = [([str(action) for action in part.actions], part.targets, part.unknown) for part in decided.drivers]
    return [parts, decided.requeue_at]


@given(snapshots(), st.sampled_from(["json", "yaml"]))
def test_what_is_read_is_what_was_written(seen: Snapshot, form: str) -> None:
    """Whatever was seen, in either form: the same values but for what no plan needs, and the same document again."""
    read, settings = through(seen, form)
    assert settings == SETTINGS
    assert to_document(read, settings) == to_document(seen, SETTINGS)
    assert comparable(read) == comparable(reduced(seen))


def comparable(seen: Snapshot) -> tuple[Snapshot, list[Any]]:
    """Return a snapshot with the errors of its drivers as text: two exceptions are never equal."""
    drivers = [(replace(item, spec=GOOD_SPEC), error_text(item.spec)) for item in seen.drivers]
    return replace(seen, drivers=()), drivers


def error_text(spec: Any) -> Any:
    """Return an error's words, and a good spec as it is."""
    return str(spec) if isinstance(spec, Exception) else spec


@given(snapshots())
def test_the_plan_of_a_file_is_the_plan_of_what_was_seen(seen: Snapshot) -> None:
    """Offline and live decide alike, build keys and manifests included."""
    read, settings = through(seen)
    assert told(plan(read, settings)) == told(plan(seen, SETTINGS))


def test_the_plan_is_the_same_at_every_moment_of_a_rollout() -> None:
    """On the model world, with status, pods and builds in all their states."""
    world = World()
    world.add_node("node-a", "6.1.0-55-cloud-amd64")
    world.add_node("web", "6.1.0-55-cloud-amd64", pool="web")
    world.add_driver()
    world.fail_builds = 1
    for _ in range(8):
        seen = world.observe()
        assert told(plan(through(seen)[0], SETTINGS)) == told(plan(seen, SETTINGS))
        world.reconcile()
        world.finish_builds()
        world.turn()
        world.now += 20


def text_of(seen: Snapshot) -> str:
    """Return the document as text."""
    return document(to_document(seen, SETTINGS), "yaml")


def test_only_what_is_read_is_written() -> None:
    """Labels and annotations of others, sources and the rest of a status stay where they are."""
    private = node(labels={"owner": "alice", "pool": "edu"})
    private = replace(private, annotations={**private.annotations, "example.com/note": "alice's"})
    container = driver(status={"observedGeneration": 77, "rebuild": {"requests": {}, "tokens": {}}})
    text = text_of(with_images(snapshot(private, drivers=(container,))))
    assert "pool: edu" in text
    for word in ("alice", "int x;", "observedGeneration", "vermagic: x"):
        assert word not in text
    source = through(snapshot())[0].sources["driverwright/edu"]
    assert isinstance(source, SourceFiles)
    assert (source.files, len(source.known_digest)) == ({}, 64)


def test_an_own_template_is_written_as_its_digest() -> None:
    """It may have what nobody outside of the cluster should read; the plan is the same all the same."""
    template = OwnTemplate(place="ConfigMap n/t/k", text="RUN s3cret")
    container = driver(spec_changes={"build": {"templateConfigMap": {"name": "t", "key": "k"}}})
    seen = with_images(snapshot(drivers=(container,), templates={container.key: template}))
    assert "s3cret" not in text_of(seen)
    assert template.digest in text_of(seen)
    assert told(plan(through(seen)[0], SETTINGS)) == told(plan(seen, SETTINGS))


def test_no_user_or_password_of_a_url_is_written() -> None:
    """Wherever a URL stands: in a source, in a message, in a status."""
    source = SourceGit(url="https://bob:hunter2@git.example.com/edu.git", commit="0" * 40)
    status = {"conditions": [{"type": "Ready", "message": "cannot fetch https://bob:hunter2@git.example.com/edu.git"}]}
    text = text_of(snapshot(drivers=(driver(status=status),), sources={"driverwright/edu": source}))
    assert "hunter2" not in text
    assert text.count("https://git.example.com/edu.git") == 2


GOOD = to_document(with_images(ready_snapshot(), Absent()), SETTINGS)


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


def test_a_file_of_an_earlier_version_is_read() -> None:
    """What is called otherwise by now is known by its name of then."""
    earlier = {"kind": "Unauthorised", "message": "the registry refused the password"}
    read, _ = from_document(changed("snapshot/images/0/value", earlier))
    assert list(read.images.values()) == [Unauthorized(message="the registry refused the password")]


def test_a_file_from_before_waves_is_read() -> None:
    """Its drivers have the defaults of ``spec.rollout``."""
    read, _ = from_document(changed("snapshot/drivers/0/spec/rollout", ...))
    spec = read.drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert spec.rollout == RolloutSettings()


def test_a_file_from_before_validations_is_read() -> None:
    """Its drivers validate nothing."""
    read, _ = from_document(changed("snapshot/drivers/0/spec/validation", ...))
    spec = read.drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert spec.validation == ValidationSettings()


@pytest.mark.parametrize("reuse", [True, False])
def test_a_file_of_0_1_is_read_whatever_it_says_of_reuse(reuse: bool) -> None:
    """Which is ignored."""
    record = yaml.safe_load((Path(__file__).parents[3] / "data" / "snapshot_spec.yaml").read_text())["written"]
    read, plain = (
        from_document(changed("snapshot/drivers/0/spec", spec))[0] for spec in ({**record, "reuse": reuse}, record)
    )
    assert read.drivers == plain.drivers


def test_a_file_from_before_vendors_images_is_read() -> None:
    """Its prebuilt images are of driverwright."""
    record = yaml.safe_load((Path(__file__).parents[3] / "data" / "snapshot_spec.yaml").read_text())["written"]
    mappings = [{key: value for key, value in item.items() if key != "vendor"} for item in record["mappings"]]
    read, _ = from_document(changed("snapshot/drivers/0/spec", {**record, "mappings": mappings}))
    spec = read.drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert {item.vendor.is_for_many_kernels for item in spec.kernel_mappings} == {False}


def test_proofs_of_images_own_programs_are_in_the_file() -> None:
    """With what the driver pod has of them; a file from before proof pods has none."""
    made = ready_snapshot()
    program = Program(environment=(("MODULES", "edudrv"),), started_at=1.0, held=GONE, held_at=3.0, proven_at=2.0)
    proof = task(PROOF, "u", report=LOADED)
    seen = replace(made, pods=(replace(made.pods[0], program=program),), tasks=(proof,))
    read, _ = through(seen)
    assert (read.pods[0].program, read.tasks) == (program, (proof,))
    assert through(made)[0].pods[0].program is None


def test_nvidias_devices_are_in_the_file() -> None:
    """With what their plugin claims and a drain covers; a file from before them is read."""
    stages = {"devicePlugin": {"nvidia": {"libraries": {"path": "/run/nvidia/driver"}}}}
    rollout = {"drain": {"resources": ["example.com/edu"]}}
    seen = snapshot(drivers=(driver(spec_changes={"stages": stages, "rollout": rollout}),))
    spec = through(seen)[0].drivers[0].spec
    assert spec == seen.drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert spec.device_plugin is not None
    assert spec.device_plugin.claim == "nvidia.com/"
    record = yaml.safe_load((Path(__file__).parents[3] / "data" / "snapshot_spec.yaml").read_text())["written"]
    plugin = {key: value for key, value in record["stages"]["devicePlugin"].items() if key != "nvidia"}
    before = {**record, "stages": {**record["stages"], "devicePlugin": plugin}}
    spec = from_document(changed("snapshot/drivers/0/spec", before))[0].drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert spec.device_plugin is not None
    assert spec.device_plugin.nvidia is None


def test_profiles_of_a_file_from_before_mig_layouts_are_read() -> None:
    """With their account; what is written has both."""
    nvidia = {"profiles": {"configMap": "p"}, "serviceAccountName": "gpu"}
    made = to_document(
        snapshot(drivers=(driver(spec_changes={"stages": {"devicePlugin": {"nvidia": nvidia}}}),)), SETTINGS
    )
    plugin = made["snapshot"]["drivers"][0]["spec"]["stages"]["devicePlugin"]
    assert plugin["profiles"] == {"configMap": "p", "default": None, "account": "gpu"}
    assert plugin.pop("mig") is None
    spec = from_document(made)[0].drivers[0].spec
    assert isinstance(spec, DriverSpec)
    assert spec.device_plugin is not None
    assert (spec.device_plugin.mig, spec.device_plugin.account) == (None, "gpu")


def test_a_spec_is_written_in_the_same_form_by_every_version() -> None:
    """With all its fields, as the record has it from before DriverSpec had an object for each of the manifest."""
    record = yaml.safe_load((Path(__file__).parents[3] / "data" / "snapshot_spec.yaml").read_text())
    asked = snapshot(drivers=(driver(spec_changes=record["asked"]),))
    read, _ = from_document(changed("snapshot/drivers/0/spec", record["written"]))
    for seen in (asked, read):
        assert to_document(seen, SETTINGS)["snapshot"]["drivers"][0]["spec"] == record["written"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(None, "it is not a snapshot: create one with driver-builder snapshot", id="empty file"),
        pytest.param({"kind": "List"}, "it is not a snapshot", id="another kind"),
        pytest.param(changed("apiVersion", "v9"), "apiVersion: 'v9' is not supported", id="another version"),
        pytest.param(changed("snapshot", 1), "snapshot: 1 is not a mapping", id="no snapshot"),
        pytest.param(changed("snapshot/now", ...), "snapshot.now: the field is missing", id="missing field"),
        pytest.param(changed("snapshot/now", True), "snapshot.now: True is not of type float", id="no number"),
        pytest.param(changed("snapshot/now", 10**400), "snapshot.now: 1", id="too large a number"),
        pytest.param(changed("snapshot/more", 1), "snapshot: unknown field 'more'", id="unknown field"),
        pytest.param(changed("snapshot/nodes", {}), "snapshot.nodes: {} is not a list", id="not a list"),
        pytest.param(changed("snapshot/nodes/0/name", 7), "snapshot.nodes[0].name: 7 is not of type str", id="no text"),
        pytest.param(changed("snapshot/nodes/0/labels", {1: "x"}), "nodes[0].labels: 1 is not a string", id="k"),
        pytest.param(changed("snapshot/images/0/value/kind", "Lost"), "'Lost' is not one of Absent", id="unknown kind"),
        pytest.param(changed("snapshot/images/0/value", {}), "images[0].value.kind: the field is missing", id="kind"),
        pytest.param(changed("snapshot/images/0/key", ...), "images[0].key: the field is missing", id="no key"),
        pytest.param(changed("snapshot/drivers/0/spec/mappings", [{"pattern": "(", "args": {}}]), "'(' cannot be read",
                     id="no pattern"),
        pytest.param(changed("snapshot/drivers/0/spec/builder", "magic"), "'magic' cannot be read", id="unknown word"),
        pytest.param(changed("settings/recipes", ...), "settings.recipes: the field is missing", id="no settings"),
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
    ["snapshot", "snapshot/nodes", "snapshot/nodes/0", "snapshot/drivers/0/spec", "snapshot/drivers/0/spec/mappings",
     "snapshot/images", "snapshot/images/0/value", "snapshot/pods/0/proof", "snapshot/sources", "settings", "kind",
     "snapshot/runningBuilds", "snapshot/failedBuilds", "snapshot/drivers/0/spec/builder"]
)  # fmt: skip


@given(places, plain)
def test_any_document_is_read_or_refused(place: str, value: Any) -> None:
    """Nothing but our own error comes out, whatever somebody made of the file."""
    with suppress(ConfigurationError):
        from_document(changed(place, value))
