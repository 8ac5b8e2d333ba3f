"""A spec as values; one that cannot be acted on says which fields, which values, what to do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.build_settings import BuilderKind, BuildSettings, ConfigMapKey, ConfigMapSource
from driver_builder.api.driver_spec import (
    DriverSpec,
    ModuleSettings,
    PreflightSettings,
    RegistrySettings,
    ValidationSettings,
)
from driver_builder.api.mapping_settings import MAX_REGEXPS
from driver_builder.api.rollout_settings import RolloutSettings, Share
from driver_builder.api.spec_parser import DEPRECATED, deprecated, parse_spec, read_spec
from driver_builder.base.errors import InvalidDriver
from driver_builder.model.build import ModuleSpec, Signing
from driver_builder.model.images import ImageRepository
from tests.support.driver_builder.factories import spec

DEPRECATED_FIELDS = {"build": {"reuseAcrossKernels": False}, "retention": {"versions": 3}}

PROGRAM = {"image": "r.io/x:1", "loader": "image"}
USERSPACE = {"packages": [{"name": "libedu1", "version": "1.0-1"}]}
TWO_AT_ONE = [{"path": "/a"}, {"path": "/b", "mountPath": "/a/"}]
MODULE_SIGNING = {"keySecretRef": {"name": "key"}, "certificateSecretRef": {"name": "certificate"}}


def test_a_whole_spec_becomes_values() -> None:
    """Every field of the schema is read."""
    read = parse_spec(
        spec(
            registry={"secretRef": {"name": "push"}, "caConfigMap": {"name": "ca", "key": "registry.pem"}},
            build={
                "baseImage": "debian:trixie-slim",
                "args": {"V": "1"},
                "templateConfigMap": {"name": "template", "key": "Dockerfile.j2"},
                "secrets": [{"name": "token"}],
                "resources": {"limits": {"memory": "2Gi"}},
                "deadline": "1h30m5s",
                "builder": "job",
                "reuseAcrossKernels": False,
                "caConfigMap": {"name": "build-ca", "key": "bundle.pem"},
            },
            kernelMappings=[
                {"literal": "6.1.0+", "args": {"W": "2"}, "template": "other", "signing": MODULE_SIGNING},
                {"regexp": r"6\..*", "image": "r.io/x:1"},
                {"regexp": ".*", "skip": True},
            ],
            module={
                "names": ["helper", "edudrv"],
                "parameters": {"edudrv": ["debug=1", "quiet"]},
                "inTreeModulesToRemove": ["old"],
                "inTreeModulesToLoad": ["mii"],
                "blacklist": ["older"],
                "trustImage": True,
                "firmwarePath": "/lib/firmware",
                "firmwareHostPath": "/var/lib/firmware",
            },
            signing={**MODULE_SIGNING, "imageKeySecretRef": {"name": "image"}},
            validation={
                "deviceNodes": ["/dev/edu0", "/dev/dri/card0"],
                "image": "registry.example.com/edu-test:1",
                "command": ["/test", "--all"],
                "timeout": "90s",
                "retries": 0,
                "privileged": False,
                "taint": True,
            },
            rollout={"maxUnavailable": "10%"},
            retention={"versions": 3},
            preflight={"followRepository": True},
            tolerations=[{"operator": "Exists"}],
            priorityClassName="high",
            imagePullSecrets=[{"name": "pull"}],
            dependsOn=[{"name": "ofed"}],
        )
    )
    exact, prebuilt, skipped = read.kernel_mappings
    assert exact.pattern.fullmatch("6.1.0+")
    assert not exact.pattern.fullmatch("6.1.00")
    assert (exact.literal, exact.args, exact.template) == ("6.1.0+", {"W": "2"}, "other")
    assert exact.signing == Signing(key_secret="key", certificate_secret="certificate")
    assert (prebuilt.literal, prebuilt.image, skipped.skip) == (None, "r.io/x:1", True)
    assert read == DriverSpec(
        version="1.0.0",
        node_selector={"pool": "edu"},
        image=ImageRepository(host="registry.example.com:5000", repository="drivers/edu"),
        registry=RegistrySettings(secret="push", ca_config_map=ConfigMapKey(name="ca", key="registry.pem")),
        source=ConfigMapSource(name="edu-source"),
        build=BuildSettings(
            template=None,
            template_config_map=ConfigMapKey(name="template", key="Dockerfile.j2"),
            base_image="debian:trixie-slim",
            args={"V": "1"},
            secrets=("token",),
            resources={"limits": {"memory": "2Gi"}},
            deadline_seconds=5405.0,
            builder=BuilderKind.JOB,
            ca_config_map=ConfigMapKey(name="build-ca", key="bundle.pem"),
        ),
        kernel_mappings=read.kernel_mappings,
        module=ModuleSettings(
            names=("helper", "edudrv"),
            parameters={"edudrv": ("debug=1", "quiet")},
            in_tree_modules_to_remove=("old",),
            blacklist=("older",),
            firmware_path="/lib/firmware",
            trust_image=True,
            in_tree_modules_to_load=("mii",),
            firmware_host_path="/var/lib/firmware",
        ),
        signing=Signing(key_secret="key", certificate_secret="certificate", image_key_secret="image"),
        rollout=RolloutSettings(max_unavailable=Share(10, is_percent=True)),
        preflight=PreflightSettings(follow_repository=True),
        validation=ValidationSettings(
            device_nodes=("/dev/edu0", "/dev/dri/card0"),
            image="registry.example.com/edu-test:1",
            command=("/test", "--all"),
            timeout_seconds=90.0,
            retries=0,
            privileged=False,
            taint=True,
        ),
        tolerations=({"operator": "Exists"},),
        priority_class_name="high",
        image_pull_secrets=("pull",),
        depends_on=("ofed",),
        unused=tuple(DEPRECATED),
    )
    assert read.module.load_order == (
        ModuleSpec(name="helper"),
        ModuleSpec(name="edudrv", parameters=("debug=1", "quiet")),
    )


def test_a_short_spec_has_defaults() -> None:
    """Version, image, source and module names are all that is needed."""
    read = parse_spec(spec(nodeSelector=None))
    assert (read.node_selector, read.kernel_mappings, read.build.args, read.build.template) == ({}, (), {}, None)
    assert read.registry == RegistrySettings(secret=None, plain_http=False)
    assert (read.build.deadline_seconds, read.build.builder, read.signing, read.unused) == (None, None, None, ())


def test_a_ca_lies_under_the_usual_key() -> None:
    """What most tools call it."""
    read = parse_spec(spec(registry={"caConfigMap": {"name": "ca"}, "plainHttp": False}))
    assert read.registry == RegistrySettings(ca_config_map=ConfigMapKey(name="ca", key="ca.crt"))
    assert parse_spec(spec(build={"caConfigMap": {"name": "ca"}})).build.ca_config_map == read.registry.ca_config_map


@pytest.mark.parametrize(
    ("written", "unused"),
    [
        pytest.param({"command": ["/test"]}, ["command"], id="alone"),
        pytest.param({"command": ["/test"], "timeout": "30s"}, ["command", "timeout"], id="with a timeout"),
        pytest.param({"command": ["/test"], "deviceNodes": ["/dev/edu0"]}, ["command"], id="with device nodes"),
    ],
)
def test_a_command_without_an_image_is_not_acted_on(written: dict[str, Any], unused: list[str]) -> None:
    """It was reserved before images were read."""
    read = parse_spec(spec(validation=written))
    assert not read.validation.has_command
    assert read.validation.command == ()
    assert read.unused == tuple(f"spec.validation.{name}" for name in unused)


def test_a_taint_needs_no_validation() -> None:
    """Then the load alone proves the driver."""
    read = parse_spec(spec(validation={"taint": True})).validation
    assert (read.taint, read.is_set) == (True, False)


def test_a_command_has_defaults() -> None:
    """Five minutes, two more tries, and the devices of its node."""
    read = parse_spec(spec(validation={"image": "r.io/test", "command": ["/test"]})).validation
    assert (read.timeout_seconds, read.retries, read.privileged, read.is_set) == (300.0, 2, True, True)
    assert not parse_spec(spec()).validation.is_set


def test_null_is_not_given() -> None:
    """A field without a value, as an editor leaves it, is as if it were not there."""
    empty = spec(**{name: {} for name in ("registry", "build", "preflight")})
    nulls = dict.fromkeys(("signing", "validation", "rollout", "retention", "kernelMappings", "tolerations"))
    assert parse_spec({**empty, **nulls}) == parse_spec(spec())


def test_deprecated_fields_are_named_and_ignored() -> None:
    """They are checked, and never accepted in silence; the rest of the spec is as without them."""
    read = parse_spec(spec(**DEPRECATED_FIELDS))
    assert read.unused == tuple(DEPRECATED) == tuple(deprecated(DEPRECATED_FIELDS))
    assert replace(read, unused=()) == parse_spec(spec())


def test_what_the_definition_of_0_1_wrote_is_not_named() -> None:
    """Each stored driver with a ``build`` has it; in a manifest somebody wrote it."""
    build = {"reuseAcrossKernels": True}
    assert parse_spec(spec(build=build)).unused == ()
    assert deprecated({"build": build}) == {"spec.build.reuseAcrossKernels": True}


def test_what_happens_anyway_is_no_unused_field() -> None:
    """Asking for what is done in any case, or for nothing, is fine."""
    read = parse_spec(spec(build={"builder": "docker", "secrets": []}, preflight={"followRepository": False}))
    assert read.unused == ()


@pytest.mark.parametrize(
    ("changes", "field", "value", "remedy"),
    [
        pytest.param({"version": None}, "spec.version", "missing", "at most 63 letters", id="version missing"),
        pytest.param({"version": ""}, "spec.version", "''", "at most 63 letters", id="version empty"),
        pytest.param({"version": "1.0 beta"}, "spec.version", "'1.0 beta'", "at most 63 letters", id="version blank"),
        pytest.param({"version": "v" * 64}, "spec.version", "vvv", "at most 63 letters", id="version too long"),
        pytest.param({"image": None}, "spec.image", "missing", "without a tag", id="image missing"),
        pytest.param({"image": "r.io/edu:1"}, "spec.image", "'r.io/edu:1'", "without a tag", id="image with a tag"),
        pytest.param({"build": {"proxy": {"noProxy": ".svc"}}}, "spec.build.proxy", "", "httpsProxy", id="no proxy"),
        pytest.param(
            {"build": {"proxy": {"httpProxy": "http://me:secret@p:1"}}},
            "spec.build.proxy.httpProxy",
            "",
            "spec.build.proxy.secretRef",
            id="password in a proxy's address",
        ),
        pytest.param(
            {"build": {"proxy": {"httpProxy": "http://p:1", "noProxy": "a, b"}}},
            "spec.build.proxy.noProxy",
            "'a, b'",
            "without blanks",
            id="blank between hosts",
        ),
        pytest.param(
            {"build": {"packages": {"Debian 12": ["g++"]}}},
            "spec.build.packages['Debian 12']",
            "'Debian 12'",
            "ID of its os-release",
            id="packages of no system",
        ),
        pytest.param(
            {"build": {"packages": {"debian": ["g++ flex"]}}},
            "spec.build.packages.debian[0]",
            "'g++ flex'",
            "name of a distribution's package",
            id="two packages in one",
        ),
        pytest.param(
            {"build": {"packages": {"debian": ["a"] * 33}}},
            "spec.build.packages.debian",
            "33 entries",
            "at most 32",
            id="too many packages",
        ),
        pytest.param(
            {"build": {"packages": {f"s{number}": [] for number in range(17)}}},
            "spec.build.packages",
            "17 entries",
            "at most 16",
            id="packages of too many systems",
        ),
        pytest.param({"image": "edu"}, "spec.image", "'edu'", "host[:port]/path", id="image without host"),
        pytest.param({"image": "linbit/drbd9"}, "spec.image", "'linbit/drbd9'", "docker.io/linbit/drbd9",
                     id="image without registry"),
        pytest.param({"image": "r.io/Edu"}, "spec.image", "'r.io/Edu'", "host[:port]/path", id="image in capitals"),
        pytest.param(
            {"kernelMappings": [{"literal": "6.1.0", "regexp": "b"}]},
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
            "not a regular expression",
            id="open bracket",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6{2000}"}]},
            "spec.kernelMappings[0].regexp",
            "'6{2000}'",
            "not a regular expression",
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
            "split it into several mappings",
            id="too long",
        ),
        pytest.param({"module": None}, "spec.module.names", "", "at least one module", id="no module"),
        pytest.param(
            {"module": {"names": ["a b"]}}, "spec.module.names[0]", "'a b'", "use letters, digits", id="module name"
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
            "spec.module.parameters.a[0]",
            "'x=1; reboot'",
            "write name=value",
            id="parameter with a command",
        ),
        pytest.param({"version": 1.0}, "spec.version", "1.0", "put it in quotes", id="version is a number"),
        pytest.param(
            {"nodeSelector": {"a/b/c": "x"}}, "spec.nodeSelector.a/b/c", "'a/b/c'", "[prefix/]name", id="label key"
        ),
        pytest.param(
            {"nodeSelector": {"a": True}}, "spec.nodeSelector.a", "True", "put it in quotes", id="label value"
        ),
        pytest.param({"nodeSelector": ["a"]}, "spec.nodeSelector", "['a']", "write fields below it", id="no object"),
        pytest.param(
            {"registry": {"plainHttp": "yes"}}, "spec.registry.plainHttp", "'yes'", "without quotes", id="flag"
        ),
        pytest.param({"registry": {"secretRef": {}}}, "spec.registry.secretRef.name", "", "is missing", id="no secret"),
        pytest.param(
            {"registry": {"caConfigMap": {"key": "a"}}}, "spec.registry.caConfigMap.name", "", "missing", id="CA"
        ),
        pytest.param(
            {"registry": {"caConfigMap": {"name": "a"}, "plainHttp": True}},
            "spec.registry",
            "",
            "remove one",
            id="CA without TLS",
        ),
        pytest.param(
            {"module": {"names": ["a"], "firmwarePath": "/"}},
            "spec.module.firmwarePath",
            "'/'",
            "name the firmware's folder",
            id="all of the build as firmware",
        ),
        pytest.param({"build": {"deadline": "30"}}, "spec.build.deadline", "'30'", "such as 1h, 30m", id="no unit"),
        pytest.param({"build": {"deadline": ""}}, "spec.build.deadline", "''", "such as 1h, 30m", id="empty duration"),
        pytest.param({"build": {"deadline": "9s"}}, "spec.build.deadline", "'9s'", "from 10s to 24h", id="too short"),
        pytest.param(
            {"build": {"deadline": "25h"}}, "spec.build.deadline", "'25h'", "from 10s to 24h", id="too long a time"
        ),
        pytest.param({"build": {"builder": "kaniko"}}, "spec.build.builder", "'kaniko'", "docker, job", id="builder"),
        pytest.param({"build": {"builder": ["job"]}}, "spec.build.builder", "['job']", "docker, job", id="builders"),
        pytest.param(
            {"build": {"args": {"A B": "1"}}}, "spec.build.args['A B']", "'A B'", "use letters", id="argument name"
        ),
        pytest.param(
            {"build": {"args": {"A": "$(x)"}}}, "spec.build.args.A", "'$(x)'", "use letters", id="argument value"
        ),
        pytest.param(
            {"build": {"args": {"HEADERS_MIRROR": "ftp://h/x"}}},
            "spec.build.args.HEADERS_MIRROR",
            "'ftp://h/x'",
            "write https://host/path",
            id="mirror",
        ),
        pytest.param(
            {"build": {"baseImage": "debian::12"}}, "spec.build.baseImage", "'debian::12'", "debian:bookworm", id="tag"
        ),
        pytest.param(
            {"source": {"image": {"reference": "docker.io/driverwright-cache/a@sha256:" + "0" * 64}}},
            "spec.source.image.reference",
            "driverwright-cache",
            "name an image of a registry",
            id="source that another driver's build left in the engine",
        ),
        pytest.param(
            {"module": {"names": ["a"], "parameters": {"a": ["x=\u00e9"]}}},
            "spec.module.parameters.a[0]",
            "'x=\u00e9'",
            "write name=value in ASCII",
            id="parameter not in ASCII",
        ),
        pytest.param(
            {"module": {"names": ["a"] * 65}},
            "spec.module.names",
            "65 entries",
            "write at most 64",
            id="too many names",
        ),
        pytest.param(
            {"build": {"args": {f"A{n}": "" for n in range(65)}}},
            "spec.build.args",
            "65 entries",
            "at most 64",
            id="too many arguments",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/" + "a" * 600 + ":1"}]},
            "spec.kernelMappings[0].image",
            "aaa",
            "at most 512",
            id="too long a reference",
        ),
        pytest.param({"build": {"template": "../x"}}, "spec.build.template", "'../x'", "lower case", id="template"),
        pytest.param(
            {"build": {"baseImage": "a b"}}, "spec.build.baseImage", "'a b'", "debian:bookworm", id="base image"
        ),
        pytest.param(
            {"build": {"baseImage": "docker.io/driverwright-cache/1-2:latest"}},
            "spec.build.baseImage",
            "driverwright-cache",
            "name an image of a registry",
            id="what another driver's build left in the engine",
        ),
        pytest.param(
            {"build": {"secrets": [{"name": "a"}]}},
            "spec.build.secrets",
            "",
            "set spec.build.builder: job",
            id="secrets without a Job",
        ),
        pytest.param(
            {"build": {"builder": "docker", "secrets": [{"name": "a"}]}},
            "spec.build.secrets",
            "",
            "set spec.build.builder: job",
            id="secrets for an engine",
        ),
        pytest.param(
            {"build": {"builder": "job", "secrets": [{"name": "a"}, {"name": "a"}]}},
            "spec.build.secrets",
            "['a', 'a']",
            "name each once",
            id="a secret twice",
        ),
        pytest.param(
            {"build": {"resources": {"limits": {"memory": "2 GB"}}}},
            "spec.build.resources.limits.memory",
            "'2 GB'",
            "such as 500m, 2 or 1Gi",
            id="quantity",
        ),
        pytest.param(
            {"build": {"secrets": [{"name": "A"}]}},
            "spec.build.secrets[0].name",
            "'A'",
            "lower case",
            id="build secret",
        ),
        pytest.param(
            {"build": {"template": "a", "templateConfigMap": {"name": "b", "key": "c"}}},
            "spec.build",
            "",
            "remove one of them",
            id="two templates",
        ),
        pytest.param(
            {"build": {"resources": {"limits": "1"}}},
            "spec.build.resources.limits",
            "'1'",
            "fields below",
            id="resources",
        ),
        pytest.param(
            {"kernelMappings": {"regexp": "6"}}, "spec.kernelMappings", "'regexp'", "not a list", id="not a list"
        ),
        pytest.param(
            {"kernelMappings": ["6"]}, "spec.kernelMappings[0]", "'6'", "fields below", id="mapping is a text"
        ),
        pytest.param(
            {"kernelMappings": [{"literal": "linux"}]},
            "spec.kernelMappings[0].literal",
            "'linux'",
            "uname -r",
            id="not a valid kernel release",
        ),
        pytest.param(
            {"kernelMappings": [{"literal": "6.6.72", "image": "linbit/drbd9-noble:v9.2.13"}]},
            "spec.kernelMappings[0].image",
            "'linbit/drbd9-noble:v9.2.13'",
            "docker.io/linbit/drbd9-noble:v9.2.13",
            id="prebuilt image without registry",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "nonsense"}]},
            "spec.kernelMappings[0].image",
            "'nonsense'",
            "host/repository:tag",
            id="prebuilt image",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/x:1", "args": {"A": "1"}}]},
            "spec.kernelMappings[0]",
            "",
            "remove image, or the others",
            id="prebuilt and built",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "skip": True, "template": "debian"}]},
            "spec.kernelMappings[0]",
            "",
            "remove skip, or the others",
            id="skipped and built",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "loader": "image"}]},
            "spec.kernelMappings[0].loader",
            "",
            "name it in image",
            id="the loader of no image",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/x:1", "loader": "theirs"}]},
            "spec.kernelMappings[0].loader",
            "'theirs'",
            "use one of ours, image",
            id="a loader that is none",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/x:1", "loader": "image", "dirName": "/opt"}]},
            "spec.kernelMappings[0].dirName",
            "",
            "only for loader: ours",
            id="a folder of modules for a program",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/x:1", "container": {"args": ["a"]}}]},
            "spec.kernelMappings[0].container",
            "",
            "only for loader: image",
            id="a program for our loader",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM}], "module": {"names": ["a"], "parameters": {"a": ["x=1"]}}},
            "spec.module.parameters",
            "kernelMappings[0]",
            "container.args or container.env",
            id="parameters that a program is not given",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM}], "module": {"names": ["a"], "firmwarePath": "/fw"}},
            "spec.module.firmwarePath",
            "kernelMappings[0]",
            "container.args or container.env",
            id="firmware that a program is not given",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM}], "userspace": USERSPACE},
            "spec.userspace",
            "kernelMappings[0]",
            "remove it",
            id="a user space of an image whose own program loads",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM, "container": {"env": [{"name": "A"}, {"name": "A"}]}}]},
            "spec.kernelMappings[0].container.env",
            "twice",
            "name each once",
            id="a variable twice",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM, "container": {"hostPaths": TWO_AT_ONE}}]},
            "spec.kernelMappings[0].container.hostPaths",
            "two folders at one place",
            "its own mountPath",
            id="two folders at one place",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", **PROGRAM, "container": {"hostPaths": [{"path": "/"}]}}]},
            "spec.kernelMappings[0].container.hostPaths[0].mountPath",
            "",
            "such as /host",
            id="the node's root in place of the image's",
        ),
        pytest.param({"module": {"names": "edudrv"}}, "spec.module.names", "'edudrv'", "write [edudrv]", id="one name"),
        pytest.param(
            {"module": {"names": ["a"], "firmwarePath": "fw"}},
            "spec.module.firmwarePath",
            "'fw'",
            "must be absolute",
            id="firmware path",
        ),
        pytest.param(
            {"module": {"names": ["a"], "firmwarePath": "/fw", "firmwareHostPath": "/usr/lib/firmware"}},
            "spec.module.firmwareHostPath",
            "'/usr/lib/firmware'",
            "write /var/lib/firmware",
            id="another place for firmware",
        ),
        pytest.param(
            {"module": {"names": ["a"], "firmwareHostPath": "/var/lib/firmware"}},
            "spec.module.firmwareHostPath",
            "firmwarePath",
            "remove this field",
            id="a place for no firmware",
        ),
        pytest.param(
            {"module": {"names": ["a"], "blacklist": [1]}}, "spec.module.blacklist[0]", "1", "in quotes", id="blacklist"
        ),
        pytest.param(
            {"module": {"names": ["a"], "blacklist": ["--force"]}},
            "spec.module.blacklist[0]", "'--force'", "not beginning with '-'", id="an option as a module"
        ),
        pytest.param(
            {"signing": {"keySecretRef": {"name": "k"}}},
            "spec.signing",
            "must be set together",
            "set both",
            id="signing without certificate",
        ),
        pytest.param({"signing": {}}, "spec.signing", "names no key", "imageKeySecretRef", id="signing with nothing"),
        pytest.param(
            {"signing": {"imageKeySecretRef": {}}},
            "spec.signing.imageKeySecretRef.name",
            "",
            "is missing",
            id="signing with a Secret without a name",
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": "6", "image": "r.io/x:1", "signing": MODULE_SIGNING}]},
            "spec.kernelMappings[0]",
            "image excludes",
            "remove image, or the others",
            id="prebuilt and signed",
        ),
        pytest.param(
            {"build": {"reuseAcrossKernels": "no"}},
            "spec.build.reuseAcrossKernels",
            "'no'",
            "without quotes",
            id="neither true nor false",
        ),
        pytest.param(
            {"validation": {"timeout": "30s"}},
            "spec.validation.command",
            "",
            "at least the program",
            id="validation of nothing",
        ),
        pytest.param({"validation": {"image": "r.io/a", "deviceNodes": ["/dev/a"]}}, "spec.validation.command", "",
                     "at least the program", id="image without a command"),
        pytest.param({"validation": {"deviceNodes": []}}, "spec.validation.command", "", "at least the program",
                     id="no device nodes"),
        pytest.param({"validation": {"deviceNodes": ["edu0"]}}, "spec.validation.deviceNodes[0]", "'edu0'",
                     "below /dev", id="device node elsewhere"),
        pytest.param({"validation": {"deviceNodes": ["/dev/../etc/passwd"]}}, "spec.validation.deviceNodes[0]",
                     "'/dev/../etc/passwd'", "without '..'", id="device node that climbs"),
        pytest.param({"validation": {"deviceNodes": ["/dev/a"] * 17}}, "spec.validation.deviceNodes", "17",
                     "at most 16", id="too many device nodes"),
        pytest.param({"validation": {"image": "a::b", "command": ["a"]}}, "spec.validation.image", "'a::b'",
                     "image reference", id="image of a validation"),
        pytest.param({"validation": {"image": "a", "command": ["a"], "retries": 11}}, "spec.validation.retries", "11",
                     "from 0 to 10", id="retries"),
        pytest.param({"retention": {"versions": True}}, "spec.retention.versions", "True", "from 1 to", id="retention"),
        pytest.param({"tolerations": ["all"]}, "spec.tolerations[0]", "'all'", "operator: Exists", id="toleration"),
        pytest.param({"imagePullSecrets": [{}]}, "spec.imagePullSecrets[0].name", "", "is missing", id="pull secret"),
        pytest.param({"dependsOn": ["ofed"]}, "spec.dependsOn[0]", "'ofed'", "not an object", id="dependency"),
        pytest.param(
            {"dependsOn": [{"name": "ofed"}] * 2}, "spec.dependsOn", "['ofed', 'ofed']", "each once", id="twice"
        ),
        pytest.param(
            {"dependsOn": [{"name": f"a{number}"} for number in range(9)]},
            "spec.dependsOn",
            "9 entries",
            "at most 8",
            id="too many dependencies",
        ),
        pytest.param(
            {"preflight": {"followRepository": 1}},
            "spec.preflight.followRepository",
            "1",
            "true nor false",
            id="preflight",
        ),
    ],
)  # fmt: skip
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


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    """Up to five fields, and how many more there are."""
    with pytest.raises(InvalidDriver) as caught:
        parse_spec({})
    for field in ("spec.version", "spec.image", "spec.source", "spec.module.names"):
        assert f"{field}: " in str(caught.value)
    with pytest.raises(InvalidDriver, match=r"and 3 more problems$"):
        parse_spec(spec(module={"names": ["a b"] * 8}))


def test_a_spec_that_is_no_object_is_refused() -> None:
    """Whatever it is, the answer is an error in words."""
    assert str(read_spec("x").problems[0]) == "spec: 'x' is not an object: write fields below it"


@pytest.mark.parametrize("name", ["A" * 70_000, "A\n\x1b[31m"], ids=["70,000 letters", "control characters"])
def test_a_name_that_no_field_has_is_cut_and_quoted(name: str) -> None:
    """It goes into a status and a terminal."""
    with pytest.raises(InvalidDriver) as caught:
        parse_spec(spec(build={"args": {name: "1"}}))
    message = str(caught.value)
    assert message.startswith("spec.build.args['A")
    assert message.isprintable()
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        pytest.param({"nodeselector": {}}, ("spec", "nodeselector"), id="misspelt"),
        pytest.param({"build": {"arg": {}}}, ("spec", "build", "arg"), id="below"),
        pytest.param({"kernelMappings": [{"regexp": "6", "arg": 1}]}, ("spec", "kernelMappings", 0, "arg"),
                     id="in a list"),
        pytest.param({"registry": {"caConfigMap": {"name": "a", "key": "b", "c": 1}}},
                     ("spec", "registry", "caConfigMap", "c"), id="of an object in an object"),
    ],
)  # fmt: skip
def test_a_field_of_no_meaning_is_found(changes: dict[str, Any], unknown: tuple[str | int, ...]) -> None:
    """The API server would drop it; lint says so. A newer schema's field does not break an older controller."""
    reading = read_spec(spec(**changes))
    assert reading.unknown == (unknown,)
    assert reading.spec is not None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["version", "nodeSelector", "image", "registry", "source", "build", "kernelMappings", "module", "signing",
     "validation", "rollout", "retention", "preflight", "tolerations", "priorityClassName", "imagePullSecrets",
     "dependsOn"]
)  # fmt: skip


@given(st.dictionaries(fields, anything) | anything)
def test_no_json_breaks_the_parser(written: object) -> None:
    """Whatever is written, it is a spec or a list of problems that name their fields."""
    reading = read_spec(written)
    assert (reading.spec is None) is bool(reading.problems)
    assert all(str(problem).startswith("spec") for problem in reading.problems)


@given(st.dictionaries(fields, anything))
def test_a_strange_field_beside_good_ones(changes: dict[str, Any]) -> None:
    """One wrong field never hides in the others being right."""
    reading = read_spec({**spec(), **changes})
    assert {problem.path[1] for problem in reading.problems} <= set(changes)


def test_expressions_are_bounded_together() -> None:
    """To compile many takes long, however short each is."""
    regexp = "6" * (MAX_REGEXPS // 64)
    assert read_spec(spec(kernelMappings=[{"regexp": regexp}] * 64)).problems == ()
    (problem,) = read_spec(spec(kernelMappings=[{"regexp": regexp + "6"}] * 64)).problems
    assert str(problem).startswith("spec.kernelMappings: their expressions have ")


def test_the_order_of_further_packages_means_nothing() -> None:
    """They are installed together: another order builds nothing anew."""
    read = parse_spec(spec(build={"packages": {"debian": ["spatch", "g++", "g++"], "openEuler": []}}))
    assert read.build.packages == {"debian": ("g++", "spatch"), "openEuler": ()}
