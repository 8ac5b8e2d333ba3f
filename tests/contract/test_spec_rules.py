"""What an admin may write, field by field: the parser never accepts what the CRD's schema refuses.

The schema may accept more, because a limit that objects were stored under is never tightened (``test_crd_limits``), and
because not everything can be said there. Each such field is in ``WIDER``, with the reason and an example.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from device_resources.exporter import EXPORTER_FIELDS
from device_resources.kinds import Fields
from device_resources.memory_limits import MEMORY_FIELDS
from driver_builder.api import nvidia_stage
from driver_builder.api.driver_spec import SPEC
from driver_builder.api.mapping_settings import MAX_REGEXPS
from driver_builder.api.spec_parser import read_spec
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import Rule
from tests.fields_page import PAGE, page
from tests.fields_page import fields as fields_of_page
from tests.support.crd_schema import RULES, SCHEMA, allows
from tests.support.driver_builder.memory_client import copied
from tests.support.examples import few
from tools.manifests import DEFINITION, definition

Json = dict[str, Any]
Way = tuple[str, ...]

DIGEST = "@sha256:" + "0" * 64
SIGNING = {f"{name}SecretRef": {"name": "a"} for name in ("key", "certificate", "imageKey")}
CONTAINER: Json = {
    "command": ["a"],
    "args": ["a"],
    "env": [{"name": "a", "value": "b"}],
    "hostPaths": [{"path": "/a", "mountPath": "/b", "readOnly": True, "propagation": "Bidirectional"}],
    "timeout": "1h",
}
MINIMAL: Json = {
    "version": "1",
    "image": "r.io/a",
    "source": {"configMap": {"name": "a"}},
    "module": {"names": ["a"]},
}
FULL: Json = {
    **MINIMAL,
    "nodeSelector": {"a": "b"},
    "registry": {"secretRef": {"name": "a"}, "caConfigMap": {"name": "a", "key": "b"}},
    "build": {
        "template": "debian",
        "baseImage": "debian:12",
        "args": {"A": "b"},
        "reuseAcrossKernels": True,
        "toolsImage": "debian:12",
        "proxy": {"httpProxy": "http://a:1", "httpsProxy": "http://a:1", "noProxy": ".b", "secretRef": {"name": "a"}},
        "caConfigMap": {"name": "a", "key": "b"},
        "packages": {"a": ["b"]},
        "secrets": [{"name": "a"}],
        "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
        "deadline": "30m",
        "builder": "job",
    },
    "kernelMappings": [{"literal": "6.1.0", "template": "debian", "args": {"A": "b"}, "signing": SIGNING}],
    "module": {
        "names": ["a"],
        "parameters": {"a": ["x=1"]},
        "inTreeModulesToRemove": ["a"],
        "inTreeModulesToLoad": ["c"],
        "blacklist": ["a"],
        "trustImage": True,
        "firmwarePath": "/a",
        "firmwareHostPath": "/var/lib/firmware",
    },
    "signing": SIGNING,
    "validation": {
        "deviceNodes": ["/dev/a"],
        "image": "r.io/a:1",
        "command": ["a"],
        "timeout": "30s",
        "retries": 1,
        "privileged": False,
        "taint": True,
    },
    "stages": {
        "devicePlugin": {
            "resource": {"name": "example.com/a", "groups": [{"paths": [{"path": "/dev/a"}]}]},
            "exporter": {"enabled": True, "port": 9400, "perPod": True, "hostnameLabel": "a"},
            "memory": {
                "mode": "watch",
                "limits": {"example.com/a": "1Gi"},
                "default": "share",
                "graceSeconds": 10,
                "dryRun": True,
            },
        },
        "pluginValidation": {
            "image": "r.io/a:1",
            "command": ["a"],
            "resourceName": "example.com/a",
            "deadline": "30s",
            "retries": 1,
        },
    },
    "userspace": {
        "archive": {"url": "https://h/a", "sha256": "0" * 64, "path": "a"},
        "versionFile": "a",
        "sizeLimit": "64Mi",
        "hostPath": "/run/nvidia/driver",
    },
    "rollout": {
        "strategy": "waves",
        "order": "nodeName",
        "maxUnavailable": 1,
        "canary": 1,
        "soak": "30m",
        "maxFailed": 1,
        "windows": [{"cron": "0 22 * * */1", "duration": "4h", "timeZone": "Europe/Berlin"}],
        "drain": {
            "resources": ["example.com/a"],
            "draDrivers": ["gpu.example.com"],
            "podSelector": {"a": "b"},
            "waitFor": {"a": "b"},
            "deadline": "10m",
            "force": True,
            "deleteEmptyDirData": True,
            "pauseLabels": ["example.com/gpu.deploy.a"],
        },
    },
    "retention": {"versions": 1},
    "preflight": {"followRepository": True},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "a",
    "imagePullSecrets": [{"name": "a"}],
    "dependsOn": [{"name": "a"}],
}
VENDOR = {"image": "r.io/a:1", "command": ["a"], "args": ["a"], "resourceName": "example.com/a", "privileged": True}
NVIDIA: Json = {
    "migStrategy": "mixed",
    "libraries": {"path": "/run/nvidia/driver"},
    "sharedDevicesAllocationPolicy": "packed",
    "health": {"holdSeconds": 600},
    "mig": {"enabled": False, "drain": True, "configMap": "a"},
    "profiles": {"configMap": "a"},
    "defaultProfile": "a",
    "serviceAccountName": "a",
}
DRA: Json = {"driver": "gpu.example.com", "serviceAccountName": "a", "env": [{"name": "a", "value": "b"}]}
INSTEAD: dict[str, Json] = {
    "stages.devicePlugin.dra": {"stages": {"devicePlugin": {"image": "r.io/a:1", "dra": DRA}}},
    "stages.devicePlugin.nvidia": {"stages": {"devicePlugin": {"nvidia": NVIDIA}}},
    **{f"stages.devicePlugin.{name}": {"stages": {"devicePlugin": VENDOR}} for name in VENDOR},
    "userspace.packages": {"userspace": {"packages": [{"name": "a", "version": "1"}]}},
    "registry.plainHttp": {"registry": {"plainHttp": True}},
    "source.image": {"source": {"image": {"reference": f"r.io/a{DIGEST}", "path": "/a"}}},
    "source.git": {"source": {"git": {"url": "https://h/a", "commit": "0" * 40, "path": "a"}}},
    "source.archive": {"source": {"archive": {"url": "https://h/a", "sha256": "0" * 64, "path": "a"}}},
    "source.package": {"source": {"package": {"name": "a", "version": "1"}}},
    "build.templateConfigMap": {"build": {"templateConfigMap": {"name": "a", "key": "b"}}},
    "build.builder": {"build": {"builder": "job"}},
    "rollout.canaryNodeSelector": {"rollout": {"canaryNodeSelector": {"a": "b"}}},
    "kernelMappings.[].regexp": {"kernelMappings": [{"regexp": "6"}]},
    "kernelMappings.[].image": {"kernelMappings": [{"literal": "6.1", "image": "r.io/a:1"}]},
    "kernelMappings.[].loader": {"kernelMappings": [{"literal": "6.1", "image": "r.io/a:1", "loader": "ours"}]},
    "kernelMappings.[].dirName": {"kernelMappings": [{"literal": "6.1", "image": "r.io/a:1", "dirName": "/a"}]},
    "kernelMappings.[].container": {
        "kernelMappings": [{"literal": "6.1", "image": "r.io/a:1", "loader": "image", "container": CONTAINER}],
        "userspace": None,
        "module": {"names": ["a"]},
    },
    "kernelMappings.[].skip": {"kernelMappings": [{"literal": "6.1", "skip": True}]},
}
"""What stands in for a field of ``FULL`` while a field that excludes others of it is looked at."""

HOST = "no host name: labels are joined by one dot, and begin and end with a letter or a digit"
NULL = "the API server drops a null of a mapping; the parser, which also reads files, names it"
WIDER: dict[str, tuple[Any, str]] = {
    "nodeSelector": ({"a b": "c"}, "keys have no patterns in a schema"),
    "image": ("a/b", "a limit is never tightened, and a host without dot and port was stored"),
    "kernelMappings.[].image": ("a/b:1", "as above"),
    "module.blacklist.[]": ("--force", "objects were stored under a pattern that lets an option pass for a name"),
    "module.inTreeModulesToRemove.[]": ("--force", "as above"),
    "source.image": ({"reference": f"a..b/c{DIGEST}"}, HOST),
    "source.image.reference": (f"r.io/a//b{DIGEST}", "objects were stored under a pattern that is no grammar of names"),
    "source.git.url": ("https://a..b/c", HOST),
    "source.archive.url": ("https://a-.b/c", HOST),
    "build.baseImage": ("debian::12", "objects were stored under a pattern that is no grammar of names"),
    "build.args": ({"A B": "c"}, "keys have no patterns in a schema"),
    "build.proxy.httpProxy": ("http://a..b", HOST),
    "build.proxy.httpsProxy": ("http://a-.b", HOST),
    "build.toolsImage": ("debian::12", "as build.baseImage"),
    "build.packages": ({"a b": ["c"]}, "keys have no patterns in a schema"),
    "build.secrets": ([{"name": "a"}, {"name": "a"}], "a Secret is mounted once; stored objects may name one twice"),
    "dependsOn": ([{"name": "a"}, {"name": "a"}], "as build.secrets"),
    "build.args.*": (None, NULL),
    "nodeSelector.*": (None, NULL),
    "kernelMappings.[].args.*": (None, NULL),
    "build.resources": ({"limits": {"cpu": "x"}}, "a quantity is the API server's to read; the schema takes any"),
    "build.resources.requests": ({"cpu": "x"}, "as above"),
    "build.resources.limits": ({"cpu": "x"}, "as above"),
    "kernelMappings": ([{"regexp": "6" * (MAX_REGEXPS // 2 + 1)}] * 2, "the bound of all expressions is younger"),
    "kernelMappings.[]": ({"regexp": "("}, "a schema cannot tell a regular expression"),
    "kernelMappings.[].regexp": ("(", "a schema cannot tell a regular expression"),
    "kernelMappings.[].args": ({"A B": "c"}, "keys have no patterns in a schema"),
    "kernelMappings.[].container": ({"env": [{"name": "a"}, {"name": "a"}]}, "as build.secrets"),
    "kernelMappings.[].container.env": ([{"name": "a"}, {"name": "a"}], "as above"),
    "kernelMappings.[].container.hostPaths": ([{"path": "/../a"}], "a pattern of RE2 cannot exclude '..'"),
    "kernelMappings.[].container.hostPaths.[]": ({"path": "/../a"}, "as above"),
    "kernelMappings.[].container.hostPaths.[].path": ("/../a", "as above"),
    "kernelMappings.[].container.hostPaths.[].mountPath": ("/../a", "as above"),
    "module": ({"names": ["a"], "parameters": {"a": ["x y"]}}, "objects were stored without a pattern of parameters"),
    "module.parameters": ({"a": ["x y"]}, "as above"),
    "module.parameters.*": (["x y"], "as above"),
    "module.parameters.*.[]": ("x y", "as above"),
    "validation.image": ("debian::12", "a schema has no grammar of names"),
    "validation.deviceNodes": (["/dev/../a"], "a pattern of RE2 cannot exclude '..'"),
    "validation.deviceNodes.[]": ("/dev/../a", "as above"),
    "stages.devicePlugin": ({"resource": {"name": "a"}}, "the description of a resource has a parser of its own"),
    "stages.devicePlugin.resource": ({"name": "a"}, "as above"),
    "stages.devicePlugin.nvidia": ({"a": None}, NULL),
    "stages.devicePlugin.nvidia.health": ({"a": None}, NULL),
    "stages.devicePlugin.nvidia.mig": ({"a": None}, NULL),
    "stages.devicePlugin.nvidia.profiles": ({"configMap": "a", "b": None}, NULL),
    "stages.devicePlugin.dra": ({**DRA, "env": [{"name": "NODE_NAME"}]}, "a pattern cannot leave a name out"),
    "stages.devicePlugin.dra.env": ([{"name": "a"}, {"name": "a"}], "as build.secrets"),
    "stages.devicePlugin.dra.env.[]": ({"name": "POD_UID"}, "a pattern cannot leave a name out"),
    "stages.devicePlugin.dra.env.[].name": ("POD_NAMESPACE", "as above"),
    "stages.devicePlugin.exporter": ({"a": None}, NULL),
    "stages.devicePlugin.memory": ({"a": None}, NULL),
    "stages.devicePlugin.memory.limits": ({"a b": "1Gi"}, "keys have no patterns in a schema"),
    "stages.devicePlugin.memory.limits.*": ("1", "a pattern has no bounds of numbers"),
    "stages.devicePlugin.image": ("debian::12", "a schema has no grammar of names"),
    "stages.pluginValidation": ({"image": "debian::12", "command": ["a"]}, "as above"),
    "stages.pluginValidation.image": ("debian::12", "as above"),
    "userspace.archive.url": ("https://a-.b/c", HOST),
    "userspace.sizeLimit": ("1", "a pattern has no bounds of numbers"),
    "rollout.canaryNodeSelector": ({"a b": "c"}, "keys have no patterns in a schema"),
    "rollout.canaryNodeSelector.*": (None, NULL),
    "rollout.drain": ({"resources": ["a/b"], "waitFor": {"a b": "c"}}, "keys have no patterns in a schema"),
    "rollout.drain.podSelector": ({"a b": "c"}, "as above"),
    "rollout.drain.podSelector.*": (None, NULL),
    "rollout.drain.waitFor": ({"a b": "c"}, "as above"),
    "rollout.drain.waitFor.*": (None, NULL),
    "rollout.drain.pauseLabels": (["driverwright.io/deploy.a"], "a schema cannot leave a domain out"),
    "rollout.drain.pauseLabels.[]": ("driverwright.io/deploy.a", "as above"),
    "rollout.windows.[].cron": ("60 * * * *", "a schema cannot tell a time that never comes"),
    "rollout.windows.[].timeZone": ("Europe/Nowhere", "a schema has no list of time zones"),
}
"""Each field of which the schema accepts what the parser refuses: a value that shows it, and why it is so."""

TEXTS = (
    "", "a", "A", "1", "-", "-a", "a-", "_a", ".a", "a.", ".", "..", "a..b", "a b", " a", "a\n", "\n", "é",
    "/", "/a", "/a/", "//a", "/a/../b", "a/b", "a//b", "a/", "a:b", "a@b", "a=b", "A=1", "$x", "`a`", "a;b", "a'b",
    '"a"', "a\\", "a\x00", "{{ a }}", "(", "[", "a{2000}", "10%", "101%", "0%", "5s", "10s", "24h", "24h1s", "1d",
    "docker", "6.1.0-55+x~y", "6", "6.1\n", "r.io/a", "r.io/a:1", "R.IO/a", "r.io/A", "r.io/a__b", "r.io/a--b",
    "debian:12", f"debian{DIGEST}", f"r.io/a{DIGEST}", f"r.io/a:1{DIGEST}", f"driverwright-cache/a{DIGEST}",
    "driverwright-cache/a", "docker.io/driverwright-build/a:1", "a:5000/b", "a:500000/b", "0" * 40, "0" * 41, "0" * 64,
    "https://h", "https://h/", "https://h/a", "http://h/a", "https://xn--a-b.example:8443/~a/b%20c", "ftp://h/a",
    "https://u:p@h/a", "https://a..b/c", "https://-a/b", "https://h/a?b=c", "git@h:a", "ssh://git@h/a",
    "/dev/a", "/dev/a/b", "/dev/", "/dev/../a", "/dev/a:b",
    "1:2.0-1+b~c", "1^2", "x=1", "x.y=1", "x-y=1", "=1", "x=é", "x=\x07", "x=a|b", "Exists",
)  # fmt: skip
"""What is judged for each text."""
OTHERS: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    1.5,
    "a",
    "1",
    [],
    [None],
    ["a"],
    [{}],
    {},
    {"a": None},
    {"a": "b"},
    {"a": 1},
)
"""Values of each type: fields that are of another one refuse them."""
NAMED = (
    *({"a": text} for text in ("-a", "a b", "é", "a" * 64)),
    *({key: "b"} for key in ("", "a b", "-a", "1a", "a/b", "a/b/c", "A", "a.b/C_d", "a" * 64, "é")),
    *(
        {"HEADERS_MIRROR": text}
        for text in ("", "ftp://h", "https://h", "https://h/a/", "https://h/../a", "https://a..b")
    ),
    *({"cpu": quantity} for quantity in (1, "1", "500m", "1Gi", "x", 1.5)),
)
"""What is judged for each mapping."""


def fields(part: Json = SCHEMA, way: Way = ()) -> Iterator[tuple[str, Json]]:
    """Every field of the schema by its path; ``[]`` is any entry of a list, ``*`` of a mapping."""
    if way:
        yield ".".join(way), part
    for name, child in part.get("properties", {}).items():
        yield from fields(child, (*way, name))
    for word, name in (("items", "[]"), ("additionalProperties", "*")):
        if isinstance(part.get(word), dict):
            yield from fields(part[word], (*way, name))


FIELDS = dict(fields())


def spec_with(field: str, value: Any) -> Json:
    """A spec that is good but for one field, with what has to be beside it."""
    top = field.partition(".")[0]
    spec = copied({**MINIMAL, top: FULL.get(top), **_instead(field)})
    place, key = _place(spec, field)
    place[key] = value
    return spec


def value_of(field: str) -> Any:
    """The good value that a field has."""
    place, key = _place({**FULL, **_instead(field)}, field)
    return place[key]


def _instead(field: str) -> Json:
    return next((INSTEAD[other] for other in INSTEAD if f"{field}.".startswith(f"{other}.")), {})


def _place(spec: Json, field: str) -> tuple[Any, Any]:
    place: Any = spec
    *way, last = field.split(".")
    for word in way:
        place = place[_key(place, word)]
    return place, _key(place, last)


def _key(place: Any, word: str) -> Any:
    return {"[]": 0, "*": next(iter(place), None)}.get(word, word)


def judge(field: str, value: Any) -> None:
    """Compare what parser and schema say of one value of one field."""
    spec = spec_with(field, value)
    parsed, stored = read_spec(spec).spec is not None, allows(spec)
    assert stored or not parsed, f"the parser accepts {field} = {value!r}, which the schema refuses"
    assert parsed or not stored or field in WIDER, f"the schema accepts {field} = {value!r}, which the parser refuses"


def samples(field: str, part: Json) -> Iterator[Any]:
    """Values of a field: good and bad ones, of each type, and at the limits."""
    good = value_of(field)
    yield from (good, *OTHERS)
    if isinstance(good, str):
        yield from TEXTS
        yield from _long_texts(good, part.get("maxLength", 253))
    if part.get("type") == "array":
        yield from (_entries(good[0], count) for count in (1, 2, part["maxItems"], part["maxItems"] + 1))
    if part.get("type") == "object":
        yield from NAMED
        yield from ({f"{next(iter(good))}{n}": next(iter(good.values())) for n in range(count)} for count in (64, 65))
    if "minimum" in part:
        yield from (limit + step for limit in (part["minimum"], part["maximum"]) for step in (-1, 0, 1))


def _long_texts(good: str, most: int) -> Iterator[str]:
    """The good text and some others, made as long as may be, and longer by one."""
    for start, more, end in (
        *(("", letter, good) for letter in "a1"), *((good, letter, "") for letter in "a1"), (good, "/a", ""),
        ("r.io/", "a", DIGEST), ("r.io/", "a", ":1"), ("/", "a", ""),
    ):  # fmt: skip
        room = most - len(start) - len(end)
        yield from (f"{start}{(more * most)[: max(length, 0)]}{end}" for length in (room, room + 1))


def _entries(entry: Any, count: int) -> list[Any]:
    """A list of different entries; the first is the good one."""
    if isinstance(entry, dict):
        name = next(iter(entry))
        others = [{**entry, name: f"{entry[name]}{n}"} for n in range(1, count)]
        return [entry, *others]
    return [entry, *(f"{entry}{n}" for n in range(1, count))]


@cache
def rules() -> dict[str, Rule]:
    """The rule by which the parser reads each text."""
    found: dict[str, Rule] = {}

    check = Reader.check

    def tapped(self: Reader, value: object, rule: Rule, *way: str | int) -> bool:
        words = ("[]" if isinstance(word, int) else word for word in (*self.path[1:], *way))
        found.setdefault(".".join(words), rule)
        return check(self, value, rule, *way)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "check", tapped)
        for instead in ({}, *INSTEAD.values()):
            assert read_spec({**FULL, **instead}).spec is not None
    return {
        name.replace("parameters.a", "parameters.*").replace("packages.a", "packages.*"): rule
        for name, rule in found.items()
    }


PATTERNS = {field: part["pattern"] for field, part in FIELDS.items() if "pattern" in part}
READ = {field: rule for field, rule in rules().items() if FIELDS.get(field, {}).get("type") == "string"}


@pytest.mark.parametrize("field", FIELDS)
def test_a_good_value_is_accepted_by_both(field: str) -> None:
    """Otherwise the tests below would compare refusals."""
    spec = spec_with(field, value_of(field))
    assert [str(problem) for problem in read_spec(spec).problems] == []
    assert allows(spec)


@pytest.mark.parametrize(("field", "part"), FIELDS.items(), ids=FIELDS)
def test_parser_and_schema_agree(field: str, part: Json) -> None:
    """On good and bad values, values of other types, and those at the limits."""
    for value in samples(field, part):
        judge(field, value)


@pytest.mark.costly
@pytest.mark.parametrize("field", PATTERNS)
def test_they_agree_on_what_the_schemas_pattern_matches(field: str) -> None:
    """Whatever the admin writes within it."""

    @few(3)
    @given(st.from_regex(PATTERNS[field].removesuffix("$") + r"\Z"))
    def agree(value: str) -> None:
        judge(field, value)

    agree()


@pytest.mark.costly
@pytest.mark.parametrize("field", READ)
def test_they_agree_on_what_the_parsers_rule_matches(field: str) -> None:
    """A rule that is changed alone is found."""

    @settings(few(3), suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    @given(st.from_regex(READ[field].pattern, fullmatch=True))
    def agree(value: str) -> None:
        judge(field, value)

    agree()


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, (value, _) in WIDER.items()], ids=WIDER)
def test_where_the_schema_is_wider_it_has_to_be(field: str, value: Any) -> None:
    """A difference that is gone goes from the list."""
    spec = spec_with(field, value)
    assert allows(spec)
    assert read_spec(spec).spec is None


def test_every_text_of_the_schema_has_a_rule() -> None:
    """But those that are one of a few words, mappings, whose values are read as one, and what has a table of its own.

    As a resource has: NVIDIA's devices, the exporter, the limits of memory.
    """
    texts = {field for field, part in FIELDS.items() if part.get("type") == "string" and not field.endswith(".*")}
    assert texts - READ.keys() == {
        *("build.builder", "rollout.strategy", "rollout.order", "kernelMappings.[].loader"),
        "kernelMappings.[].container.hostPaths.[].propagation",
        *(f"stages.devicePlugin.nvidia.{name}" for name in ("migStrategy", "libraries.path", "profiles.configMap")),
        *(f"stages.devicePlugin.nvidia.{name}" for name in ("defaultProfile", "mig.configMap", "serviceAccountName")),
        "stages.devicePlugin.nvidia.sharedDevicesAllocationPolicy",
        *("stages.devicePlugin.exporter.hostnameLabel", "stages.devicePlugin.memory.default"),
    }


def test_the_page_and_the_definition_are_made_of_the_rows() -> None:
    """docs/drivercontainer.md equals the output of `make docs`, the CRD that of `make manifests`."""
    assert PAGE.read_text() == page()
    assert DEFINITION.read_text() == definition()


@pytest.mark.parametrize("path", [path for path, _ in fields_of_page(SPEC.rows)])
def test_every_field_is_described(path: str) -> None:
    """But the name in a reference, and what has a description of its own in Kubernetes."""
    row = dict(fields_of_page(SPEC.rows))[path]
    assert row.description or path.rpartition(".")[2] in ("name", "requests", "limits")
    assert not set(row.description + row.more) & set("|\n")


@pytest.mark.parametrize(
    ("name", "table"),
    [("nvidia", nvidia_stage.FIELDS), ("exporter", EXPORTER_FIELDS), ("memory", MEMORY_FIELDS)],
    ids=str,
)
def test_the_schema_of_what_the_agent_reads_is_that_of_its_table(name: str, table: Fields) -> None:
    """But for its descriptions and rules: the device agent reads what is written by the same table."""
    assert _without_words(FIELDS[f"stages.devicePlugin.{name}"]) == table.schema()


def _without_words(part: Json) -> Json:
    properties = {name: _without_words(child) for name, child in part.get("properties", {}).items()}
    rest = {word: value for word, value in part.items() if word not in ("description", "properties", RULES)}
    return {**rest, **({"properties": properties} if properties else {})}
