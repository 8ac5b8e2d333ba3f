"""A DriverContainer object as values; a spec that cannot be acted on says which field, which value, what to do."""

from typing import Any

import pytest

from driver_builder import driver_container
from driver_builder.build import ModuleSpec
from driver_builder.driver_container import (
    FINALIZER,
    ConfigMapSource,
    DriverSpec,
    ImageRepository,
    ImageSource,
    RegistrySettings,
    parse_spec,
)
from driver_builder.errors import InvalidDriver
from kube_api import names
from tests.unit.driver_builder.factories import driver_object, spec

PINNED = "registry.example.com/src@sha256:" + "a" * 64


def test_a_whole_spec_becomes_values() -> None:
    """Every field of the schema is read."""
    read = parse_spec(
        spec(
            registry={"secretRef": {"name": "push"}, "plainHttp": True},
            build={"template": "debian", "baseImage": "debian:trixie-slim", "args": {"V": "1"}},
            kernelMappings=[
                {"literal": "6.1.0+", "args": {"W": "2"}, "template": "other"},
                {"regexp": r"6\..*", "image": "r/x:1"},
                {"regexp": ".*", "skip": True},
            ],
            module={"names": ["helper", "edudrv"], "parameters": {"edudrv": ["debug=1", "quiet"]}},
            tolerations=[{"operator": "Exists"}],
            priorityClassName="high",
            imagePullSecrets=[{"name": "pull"}],
        )
    )
    literal, prebuilt, skipped = read.mappings
    assert literal.pattern.fullmatch("6.1.0+")
    assert not literal.pattern.fullmatch("6.1.00")
    assert (literal.args, literal.template, prebuilt.image, skipped.skip) == ({"W": "2"}, "other", "r/x:1", True)
    assert read == DriverSpec(
        version="1.0.0",
        node_selector={"pool": "edu"},
        image=ImageRepository(host="registry.example.com:5000", repository="drivers/edu"),
        registry=RegistrySettings(secret="push", plain_http=True),
        source=ConfigMapSource(name="edu-source"),
        template="debian",
        base_image="debian:trixie-slim",
        args={"V": "1"},
        mappings=read.mappings,
        modules=(ModuleSpec(name="helper"), ModuleSpec(name="edudrv", parameters=("debug=1", "quiet"))),
        tolerations=({"operator": "Exists"},),
        priority_class="high",
        pull_secrets=("pull",),
    )


def test_a_short_spec_has_defaults() -> None:
    """Version, image, source and module names are all that is needed."""
    read = parse_spec(spec(nodeSelector=None))
    assert (read.node_selector, read.mappings, read.args, read.template) == ({}, (), {}, None)
    assert read.registry == RegistrySettings(secret=None, plain_http=False)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param({"configMap": {"name": "src"}}, ConfigMapSource(name="src"), id="ConfigMap"),
        pytest.param(
            {"image": {"reference": PINNED, "path": "/usr/src"}},
            ImageSource(reference=PINNED, path="/usr/src"),
            id="image",
        ),
        pytest.param({"image": {"reference": PINNED}}, ImageSource(reference=PINNED, path="/"), id="image's root"),
    ],
)
def test_a_source_is_one_of_two(source: dict[str, Any], expected: ConfigMapSource | ImageSource) -> None:
    """Source files come from a ConfigMap or from a pinned image."""
    assert parse_spec(spec(source=source)).source == expected


@pytest.mark.parametrize(
    ("changes", "field", "value", "remedy"),
    [
        pytest.param({"version": None}, "spec.version", "None", "at most 63 letters", id="version missing"),
        pytest.param({"version": ""}, "spec.version", "''", "at most 63 letters", id="version empty"),
        pytest.param({"version": "1.0 beta"}, "spec.version", "'1.0 beta'", "at most 63 letters", id="version blank"),
        pytest.param({"version": "v" * 64}, "spec.version", "vvv", "at most 63 letters", id="version too long"),
        pytest.param({"image": None}, "spec.image", "''", "without a tag", id="image missing"),
        pytest.param({"image": "r.io/edu:1"}, "spec.image", "'r.io/edu:1'", "without a tag", id="image with a tag"),
        pytest.param({"image": "edu"}, "spec.image", "'edu'", "host[:port]/path", id="image without host"),
        pytest.param({"image": "r.io/Edu"}, "spec.image", "'r.io/Edu'", "host[:port]/path", id="image in capitals"),
        pytest.param({"source": None}, "spec.source", "none", "exactly one of configMap, image", id="source missing"),
        pytest.param(
            {"source": {"configMap": {"name": "a"}, "image": {"reference": PINNED}}},
            "spec.source",
            "configMap, image",
            "exactly one",
            id="two sources",
        ),
        pytest.param({"source": {"git": {}}}, "spec.source", "'git'", "use configMap or image", id="unknown source"),
        pytest.param(
            {"source": {"image": {"reference": "r.io/src:latest"}}},
            "spec.source.image.reference",
            "'r.io/src:latest'",
            "@sha256:",
            id="source image by tag",
        ),
        pytest.param(
            {"source": {"image": {"reference": PINNED, "path": "src"}}},
            "spec.source.image.path",
            "'src'",
            "must be absolute",
            id="relative path",
        ),
        pytest.param(
            {"source": {"image": {"reference": PINNED, "path": "/a/../etc"}}},
            "spec.source.image.path",
            "'/a/../etc'",
            "without '..'",
            id="path that climbs",
        ),
        pytest.param(
            {"kernelMappings": [{"literal": "a", "regexp": "b"}]},
            "spec.kernelMappings[0]",
            "",
            "exactly one of literal, regexp",
            id="two patterns",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6"}, {"skip": True}]},
            "spec.kernelMappings[1]",
            "",
            "exactly one of literal, regexp",
            id="no pattern",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6.(1"}]},
            "spec.kernelMappings[0].regexp",
            "'6.(1'",
            "no regular expression",
            id="open bracket",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6{2000}"}]},
            "spec.kernelMappings[0].regexp",
            "'6{2000}'",
            "no regular expression",
            id="repetition too large for the engine",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6(?!.*rt)"}]},
            "spec.kernelMappings[0].regexp",
            "'6(?!.*rt)'",
            "the syntax of RE2, which has no look-around",
            id="look-around",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "[^x]" * 200000}]},
            "spec.kernelMappings[0].regexp",
            "[^x][^x]",
            "no regular expression",
            id="too large for the engine",
        ),
        pytest.param({"module": None}, "spec.module.names", "", "at least one module name", id="no module"),
        pytest.param(
            {"module": {"names": ["a b"]}}, "spec.module.names", "'a b'", "use letters, digits", id="module name"
        ),
        pytest.param(
            {"module": {"names": ["a"], "parameters": {"b": []}}},
            "spec.module.parameters",
            "'b'",
            "is not in spec.module.names",
            id="parameters of another module",
        ),
        pytest.param(
            {"module": {"names": ["a"], "parameters": {"a": ["x=1; reboot"]}}},
            "spec.module.parameters.a",
            "'x=1; reboot'",
            "write name=value",
            id="parameter with a command",
        ),
    ],
)
def test_a_wrong_field_is_named_with_value_and_remedy(
    changes: dict[str, Any], field: str, value: str, remedy: str
) -> None:
    """The message says where, what and what instead; nothing but InvalidDriver is raised."""
    with pytest.raises(InvalidDriver) as caught:
        parse_spec(spec(**changes))
    message = str(caught.value)
    assert message.startswith(field + ":")
    assert value in message
    assert remedy in message


def test_an_object_with_a_wrong_spec_stays_readable() -> None:
    """Its spec is the error; everything else can be used to say so in its status."""
    read = driver_container.parse(driver_object(spec_changes={"version": "?"}, status={"readyNodes": 1}))
    assert isinstance(read.spec, InvalidDriver)
    assert (read.key, read.status) == ("driverwright/edu", {"readyNodes": 1})


def test_an_object_without_spec_is_invalid() -> None:
    """No spec at all is a wrong spec."""
    obj = driver_object()
    del obj["spec"]
    assert isinstance(driver_container.parse(obj).spec, InvalidDriver)


@pytest.mark.parametrize(
    ("name", "good"), [pytest.param("e" * 44, True, id="fits"), pytest.param("e" * 45, False, id="one too many")]
)
def test_names_leave_room_for_the_ready_label(name: str, good: bool) -> None:
    """Namespace and name together make a label key; names that do not fit are refused with the limit."""
    read = driver_container.parse(driver_object(name))
    assert isinstance(read.spec, DriverSpec) is good
    if good:
        assert names.is_qualified_name(read.ready_label)
    else:
        assert "56" in str(read.spec)


@pytest.mark.parametrize(
    ("metadata", "field", "expected"),
    [
        pytest.param({"annotations": {names.REBUILD_ANNOTATION: "7"}}, "rebuild", "7", id="rebuild"),
        pytest.param({"annotations": {names.REBUILD_ANNOTATION: ""}}, "rebuild", None, id="empty rebuild"),
        pytest.param({"annotations": None}, "rebuild", None, id="no annotations"),
        pytest.param({"annotations": {names.PAUSE_ANNOTATION: "true"}}, "paused", True, id="paused"),
        pytest.param({"annotations": {names.PAUSE_ANNOTATION: "false"}}, "paused", False, id="not paused"),
        pytest.param({"deletionTimestamp": "2023-11-14T22:13:20Z"}, "deleting", True, id="deleting"),
        pytest.param({}, "deleting", False, id="not deleting"),
        pytest.param({"finalizers": [FINALIZER, "other"]}, "has_finalizer", True, id="finalizer"),
        pytest.param({"finalizers": ["other"]}, "has_finalizer", False, id="another finalizer"),
        pytest.param({"finalizers": None}, "has_finalizer", False, id="no finalizer"),
    ],
)
def test_metadata_becomes_facts(metadata: dict[str, Any], field: str, expected: object) -> None:
    """Annotations, deletion and finalizer are read from the metadata."""
    obj = driver_object(finalizer=False)
    obj["metadata"] |= metadata
    assert getattr(driver_container.parse(obj), field) == expected
