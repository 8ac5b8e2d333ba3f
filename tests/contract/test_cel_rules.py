"""The rules (CEL) in DriverContainer's schema, evaluated by CEL's own C++ library: each refuses what the code refuses.

The testbed's API server is too old for rules. What a newer one does with them beyond CEL itself is done in
``tests/support/crd_schema.py``, and compared with it in ``tests/api/test_newer_custom_resources.py``; that lists and
maps are bounded is checked here.
"""

import re
from typing import Any

import pytest

from driver_builder.api.spec_parser import read_spec
from tests.support.crd_schema import RULES, escaped, hides_rules, parts, refusals
from tests.support.driver_builder import factories

Json = dict[str, Any]

WITH_RULES = [(path, part) for path, part in parts() if RULES in part]
MESSAGES = {rule["message"] for _, part in WITH_RULES for rule in part[RULES]}


SOURCE = {"configMap": {"name": "a"}}
PACKAGE = {"package": {"name": "a-dkms"}}
GIT = {"url": "https://example.com/a.git", "commit": "0" * 40}
KEYS = {"keySecretRef": {"name": "a"}, "certificateSecretRef": {"name": "b"}}
CA = {"caConfigMap": {"name": "ca", "key": "ca.crt"}}
ONE_SOURCE = "exactly one of configMap, image, git, archive, package must be set"
ONE_PATTERN = "exactly one of literal, regexp must be set"
NO_FIRMWARE = "firmwareHostPath is only where the firmware of firmwarePath goes"
NO_DOTS = "must not contain '.' or '..' as a path segment"
SKIPPED = "image, template, args and signing must not be set with skip"
PREBUILT = "template, args and signing must not be set with image, because a prebuilt image is not built"
DURATION = "must be a duration from 10s to 24h"
JOB_ONLY = "secrets require a build in a Job: set builder: job"
PAIR, A_KEY = (
    "keySecretRef and certificateSecretRef must be set together",
    "at least one of keySecretRef, imageKeySecretRef must be set",
)
SOAK, SOAK_OF_NOTHING = "must be a duration from 10s to 168h", "soak requires canary or canaryNodeSelector"
WINDOW = "must be a duration from 1m to 168h"
DRAIN_OF_NOTHING = "drain requires resources, draDrivers, podSelector or pauseLabels"
DEADLINE_OF_A_DRAIN = "must be a duration from 10s to 24h"
TWO_CANARIES = "canary and canaryNodeSelector are mutually exclusive"
A_COMMAND = "command is required with image, and without deviceNodes or taint"
PLUGIN: Json = {"resource": {"name": "example.com/a", "groups": [{"paths": [{"path": "/dev/a"}]}]}}
VENDOR: Json = {"image": "r.io/a", "resourceName": "example.com/a"}
ONE_PLUGIN = "exactly one of resource, image, nvidia is required"
NAMELESS, NOT_BOTH = "image requires resourceName or dra", "dra excludes resourceName"
OF_VENDORS = "resource and nvidia exclude command, args, privileged, resourceName and dra"
OF_OUR_AGENT, OWN_PORT = "image excludes exporter and memory", "port 8080 is that of the agent's own pages"
A_PLUGIN, NOT_OF_DRA = "pluginValidation requires devicePlugin", "devicePlugin.dra excludes pluginValidation"
DRA: Json = {"image": "r.io/a", "dra": {"driver": "gpu.example.com", "serviceAccountName": "a"}}
PROFILES: Json = {"profiles": {"configMap": "a"}}
OF_PROFILES = "defaultProfile requires profiles"
OF_LABELS = "serviceAccountName requires profiles or mig"
OF_MIG = "mig.enabled requires mig.configMap and serviceAccountName"
ARCHIVE = {"url": "https://example.com/a.tar", "sha256": "0" * 64}
ONE_USERSPACE = "exactly one of archive, packages must be set"
NO_VERSION = "archive requires versionFile"
NIGHTS = {"cron": "0 22 * * *"}
PREBUILT_IMAGE = "registry.example.com/a:1"

AN_IMAGE = "loader, dirName and container require image"
ONE_LOADER = "dirName is for the loader ours, container for the loader image"
TIMEOUT = "must be a duration from 10s to 24h"

GOOD: dict[str, Json] = {
    "nothing but what is needed": {},
    "a package": {"source": PACKAGE},
    "a folder of a commit": {"source": {"git": {**GIT, "path": "a/.b/c..d"}}},
    "a CA": {"registry": CA},
    "plain HTTP": {"registry": {"plainHttp": True}},
    "a Secret for a Job": {"build": {"builder": "job", "secrets": [{"name": "a"}]}},
    "no Secrets": {"build": {"secrets": []}},
    "a proxy": {"build": {"proxy": {"httpProxy": "http://proxy.example.com:3128", "noProxy": ".example.com"}}},
    "deadlines at both ends": {"build": {"deadline": "10s"}, "validation": {"command": ["a"], "timeout": "24h"}},
    "device nodes": {"validation": {"deviceNodes": ["/dev/a"]}},
    "a taint alone": {"validation": {"taint": True}},
    "a validation": {"validation": {"image": "r.io/a", "command": ["a"], "privileged": False, "retries": 0}},
    "labels alone": {"stages": {}},
    "a plugin": {
        "stages": {"devicePlugin": PLUGIN, "pluginValidation": {"image": "r.io/a", "command": ["a"], "deadline": "24h"}}
    },
    "NVIDIA's devices": {"stages": {"devicePlugin": {"nvidia": {}}}},
    "profiles": {
        "stages": {"devicePlugin": {"nvidia": {**PROFILES, "defaultProfile": "a", "serviceAccountName": "a"}}},
    },
    "MIG layouts": {
        "stages": {
            "devicePlugin": {"nvidia": {"mig": {"enabled": True, "configMap": "a"}, "serviceAccountName": "a"}},
        },
    },
    "MIG layouts that are switched off": {"stages": {"devicePlugin": {"nvidia": {"mig": {"enabled": False}}}}},
    "an account for MIG layouts that are switched off": {
        "stages": {"devicePlugin": {"nvidia": {"mig": {"drain": True}, "serviceAccountName": "a"}}},
    },
    "a plugin's use": {
        "stages": {"devicePlugin": {**PLUGIN, "exporter": {"enabled": True}, "memory": {"mode": "watch"}}},
    },
    "a DRA driver": {
        "stages": {"devicePlugin": {**DRA, "dra": {**DRA["dra"], "env": [{"name": "A", "value": "b"}]}}},
    },
    "a plugin of a vendor": {"stages": {"devicePlugin": {**VENDOR, "args": ["a"], "privileged": True}}},
    "a deadline of several units": {"build": {"deadline": "1h30m5s"}},
    "a template": {"build": {"template": "debian"}},
    "mappings": {
        "kernelMappings": [
            {"literal": "6.1.0-1", "skip": True},
            {"regexp": "6[.]1.*", "image": PREBUILT_IMAGE},
            {"regexp": "5.*", "image": PREBUILT_IMAGE, "dirName": "/a/.b/c"},
            {"regexp": "4.*", "image": PREBUILT_IMAGE, "loader": "ours", "dirName": "/"},
            {"regexp": "3.*", "image": PREBUILT_IMAGE, "loader": "image", "container": {"timeout": "24h"}},
            {"regexp": ".*", "skip": False, "template": "debian", "args": {"A": "b"}, "signing": KEYS},
        ]
    },
    "parameters": {"module": {"names": ["a", "b"], "parameters": {"b": ["x=1"]}}},
    "a user space": {"userspace": {"archive": ARCHIVE, "versionFile": "lib/libedu.so.1.2"}},
    "a user space of packages": {"userspace": {"packages": [{"name": "a", "version": "1"}]}},
    "firmware": {"module": {"names": ["a"], "firmwarePath": "/a/.b/c"}},
    "a place for firmware": {"module": {"names": ["a"], "firmwarePath": "/a", "firmwareHostPath": "/var/lib/firmware"}},
    "modules signed": {"signing": KEYS},
    "a canary of some nodes": {"rollout": {"canary": 1, "soak": "168h"}},
    "a canary of a tenth": {"rollout": {"canary": "10%", "soak": "10s", "maxFailed": "5%"}},
    "a canary by labels": {"rollout": {"canaryNodeSelector": {"a": "b"}, "soak": "1h"}},
    "a drain of claims": {"rollout": {"drain": {"draDrivers": ["gpu.example.com"]}}},
    "a drain": {"rollout": {"drain": {"resources": ["a/b"], "deadline": "10s"}}},
    "a drain of names that begin alike": {"rollout": {"drain": {"resources": ["nvidia.com/mig-*", "nvidia.com/gpu*"]}}},
    "a drain by labels": {"rollout": {"drain": {"podSelector": {"a": "b"}, "deadline": "24h"}}},
    "a drain of DaemonSets": {"rollout": {"drain": {"pauseLabels": ["a/deploy.b"]}}},
    "no canary": {"rollout": {"maxUnavailable": 2, "canary": 0}},
    "windows at both ends": {"rollout": {"windows": [{**NIGHTS, "duration": "1m"}, {**NIGHTS, "duration": "168h"}]}},
    "images signed": {"signing": {"imageKeySecretRef": {"name": "a"}}},
}

BAD: dict[str, tuple[Json, set[str]]] = {
    "two sources": ({"source": {**SOURCE, **PACKAGE}}, {ONE_SOURCE}),
    "no source": ({"source": {}}, {ONE_SOURCE}),
    "dots in a commit": ({"source": {"git": {**GIT, "path": "a/../b"}}}, {NO_DOTS}),
    "dots in an image": ({"source": {"image": {"reference": f"r.io/a@sha256:{'0' * 64}", "path": "/a/."}}}, {NO_DOTS}),
    "dots in an archive": (
        {"source": {"archive": {"url": "https://example.com/a", "sha256": "0" * 64, "path": ".."}}},
        {NO_DOTS},
    ),
    "two user spaces": (
        {"userspace": {"archive": ARCHIVE, "versionFile": "a", "packages": [{"name": "a", "version": "1"}]}},
        {ONE_USERSPACE},
    ),
    "no user space": ({"userspace": {}}, {ONE_USERSPACE}),
    "an archive of no version": ({"userspace": {"archive": ARCHIVE}}, {NO_VERSION}),
    "dots in a version file": ({"userspace": {"archive": ARCHIVE, "versionFile": "a/../b"}}, {NO_DOTS}),
    "dots in a user space": ({"userspace": {"archive": {**ARCHIVE, "path": "a/../b"}, "versionFile": "a"}}, {NO_DOTS}),
    "dots in firmware": ({"module": {"names": ["a"], "firmwarePath": "/../a"}}, {NO_DOTS}),
    "a place for no firmware": ({"module": {"names": ["a"], "firmwareHostPath": "/var/lib/firmware"}}, {NO_FIRMWARE}),
    "plain HTTP with a CA": (
        {"registry": {**CA, "plainHttp": True}},
        {"plainHttp and caConfigMap are mutually exclusive"},
    ),
    "a Secret for an engine": ({"build": {"builder": "docker", "secrets": [{"name": "a"}]}}, {JOB_ONLY}),
    "a Secret for whoever builds": ({"build": {"secrets": [{"name": "a"}]}}, {JOB_ONLY}),
    "a proxy without an address": (
        {"build": {"proxy": {"noProxy": ".example.com"}}},
        {"httpProxy, httpsProxy or both must be set"},
    ),
    "two templates": (
        {"build": {"template": "debian", "templateConfigMap": {"name": "a", "key": "b"}}},
        {"template and templateConfigMap are mutually exclusive"},
    ),
    "too short": ({"build": {"deadline": "9s"}}, {DURATION}),
    "too long": ({"build": {"deadline": "24h1s"}}, {DURATION}),
    "two patterns": ({"kernelMappings": [{"literal": "6.1", "regexp": "6.*"}]}, {ONE_PATTERN}),
    "no pattern": ({"kernelMappings": [{"skip": True}]}, {ONE_PATTERN}),
    "skipped with arguments": ({"kernelMappings": [{"regexp": "a", "skip": True, "args": {"A": "b"}}]}, {SKIPPED}),
    "skipped with an image": ({"kernelMappings": [{"regexp": "a", "skip": True, "image": PREBUILT_IMAGE}]}, {SKIPPED}),
    "skipped and signed": ({"kernelMappings": [{"regexp": "a", "skip": True, "signing": KEYS}]}, {SKIPPED}),
    "prebuilt with a template": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "template": "debian"}]},
        {PREBUILT},
    ),
    "prebuilt and signed": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "signing": KEYS}]},
        {PREBUILT},
    ),
    "a loader of nothing": ({"kernelMappings": [{"regexp": "a", "loader": "ours"}]}, {AN_IMAGE}),
    "dots in a folder": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "dirName": "/a/.."}]},
        {NO_DOTS},
    ),
    "a container of our loader": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "loader": "ours", "container": {}}]},
        {ONE_LOADER},
    ),
    "a container without a loader": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "container": {"timeout": "9s"}}]},
        {ONE_LOADER, TIMEOUT},
    ),
    "a folder of the image's loader": (
        {"kernelMappings": [{"regexp": "a", "image": PREBUILT_IMAGE, "loader": "image", "dirName": "/a"}]},
        {ONE_LOADER},
    ),
    "half a pair for a kernel": (
        {"kernelMappings": [{"regexp": "a", "signing": {"keySecretRef": {"name": "a"}}}]},
        {PAIR},
    ),
    "no key for a kernel": ({"kernelMappings": [{"regexp": "a", "signing": {}}]}, {A_KEY}),
    "two canaries": ({"rollout": {"canary": 0, "canaryNodeSelector": {"a": "b"}}}, {TWO_CANARIES}),
    "a soak of nothing": ({"rollout": {"soak": "1h"}}, {SOAK_OF_NOTHING}),
    "a soak of no node": ({"rollout": {"soak": "1h", "canary": 0}}, {SOAK_OF_NOTHING}),
    "a soak of no labels": ({"rollout": {"soak": "1h", "canaryNodeSelector": {}}}, {SOAK_OF_NOTHING}),
    "too short a soak": ({"rollout": {"soak": "9s", "canary": 1}}, {SOAK}),
    "too long a soak": ({"rollout": {"soak": "168h1s", "canary": "10%"}}, {SOAK}),
    "a drain of nothing": ({"rollout": {"drain": {"resources": [], "waitFor": {"a": "b"}}}}, {DRAIN_OF_NOTHING}),
    "too short a deadline": ({"rollout": {"drain": {"resources": ["a/b"], "deadline": "9s"}}}, {DEADLINE_OF_A_DRAIN}),
    "too long a deadline": ({"rollout": {"drain": {"resources": ["a/b"], "deadline": "25h"}}}, {DEADLINE_OF_A_DRAIN}),
    "too short a window": ({"rollout": {"windows": [{**NIGHTS, "duration": "59s"}]}}, {WINDOW}),
    "too long a window": ({"rollout": {"windows": [{**NIGHTS, "duration": "169h"}]}}, {WINDOW}),
    "a validation of nothing": ({"validation": {"deviceNodes": []}}, {A_COMMAND}),
    "a taint that is off": ({"validation": {"taint": False}}, {A_COMMAND}),
    "a taint with an image": ({"validation": {"taint": True, "image": "r.io/a"}}, {A_COMMAND}),
    "a validation without a program": ({"validation": {"deviceNodes": ["/dev/a"], "image": "r.io/a"}}, {A_COMMAND}),
    "two plugins": ({"stages": {"devicePlugin": {**PLUGIN, "image": "r.io/a"}}}, {ONE_PLUGIN}),
    "a plugin and NVIDIA's": ({"stages": {"devicePlugin": {**PLUGIN, "nvidia": {}}}}, {ONE_PLUGIN}),
    "a vendor's and NVIDIA's": ({"stages": {"devicePlugin": {"image": "r.io/a", "nvidia": {}}}}, {ONE_PLUGIN}),
    "NVIDIA's with a name": ({"stages": {"devicePlugin": {"nvidia": {}, "resourceName": "a/b"}}}, {OF_VENDORS}),
    "a default of no profiles": ({"stages": {"devicePlugin": {"nvidia": {"defaultProfile": "a"}}}}, {OF_PROFILES}),
    "a default of layouts": (
        {"stages": {"devicePlugin": {"nvidia": {"mig": {}, "defaultProfile": "a"}}}},
        {OF_PROFILES},
    ),
    "an account for nothing": (
        {"stages": {"devicePlugin": {"nvidia": {"serviceAccountName": "a"}}}},
        {OF_LABELS},
    ),
    "MIG layouts of nobody": (
        {"stages": {"devicePlugin": {"nvidia": {"mig": {"enabled": True, "configMap": "a"}}}}},
        {OF_MIG},
    ),
    "MIG layouts from nowhere": (
        {"stages": {"devicePlugin": {"nvidia": {"mig": {"enabled": True}, "serviceAccountName": "a"}}}},
        {OF_MIG},
    ),
    "an exporter of a vendor's": ({"stages": {"devicePlugin": {**VENDOR, "exporter": {}}}}, {OF_OUR_AGENT}),
    "limits of a vendor's": ({"stages": {"devicePlugin": {**VENDOR, "memory": {"mode": "off"}}}}, {OF_OUR_AGENT}),
    "the port of pages": ({"stages": {"devicePlugin": {**PLUGIN, "exporter": {"port": 8080}}}}, {OWN_PORT}),
    "no plugin": ({"stages": {"devicePlugin": {"resourceName": "example.com/a"}}}, {ONE_PLUGIN}),
    "a plugin of nothing": ({"stages": {"devicePlugin": {"image": "r.io/a"}}}, {NAMELESS}),
    "a DRA driver with a resource": ({"stages": {"devicePlugin": {**DRA, **VENDOR}}}, {NOT_BOTH}),
    "a DRA driver of our agent": ({"stages": {"devicePlugin": {**PLUGIN, "dra": DRA["dra"]}}}, {OF_VENDORS}),
    "a validation of a DRA driver": (
        {"stages": {"devicePlugin": DRA, "pluginValidation": {"image": "r.io/a", "command": ["a"]}}},
        {NOT_OF_DRA},
    ),
    "arguments of our agent": ({"stages": {"devicePlugin": {**PLUGIN, "args": ["a"]}}}, {OF_VENDORS}),
    "a validation of no plugin": ({"stages": {"pluginValidation": {"image": "r.io/a", "command": ["a"]}}}, {A_PLUGIN}),
    "half a pair": ({"signing": {"certificateSecretRef": {"name": "a"}}}, {PAIR, A_KEY}),
    "no key": ({"signing": {}}, {A_KEY}),
    "parameters of another module": (
        {"module": {"names": ["a"], "parameters": {"b": ["x=1"]}}},
        {"every module in parameters must be in names"},
    ),
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_what_the_code_takes_the_rules_let_through(changes: Json) -> None:
    """Of all optional fields there is an example, so that no rule stands in the way of what works."""
    spec = factories.spec(**changes)
    assert read_spec(spec).spec is not None
    assert list(refusals(spec)) == []


@pytest.mark.parametrize(("changes", "messages"), BAD.values(), ids=BAD)
def test_what_the_rules_refuse_the_code_refuses(changes: Json, messages: set[str]) -> None:
    """By exactly the rules that are broken; the code knows them too, for clusters whose API server knows no rules."""
    spec = factories.spec(**changes)
    assert read_spec(spec).spec is None
    assert set(refusals(spec)) == messages


@pytest.mark.parametrize("changes", [changes for changes, _ in BAD.values()], ids=BAD)
def test_what_a_rule_refuses_is_refused_in_its_words(changes: Json) -> None:
    """No other word of the schema comes first: the API server would say that one, and evaluate no rule."""
    assert hides_rules(factories.spec(**changes)) == set()


def test_every_rule_is_broken_by_an_example() -> None:
    """A rule that nothing breaks may be one that can never be broken."""
    assert set().union(*(messages for _, messages in BAD.values())) == MESSAGES


@pytest.mark.parametrize(("path", "part"), WITH_RULES, ids=[path for path, _ in WITH_RULES])
def test_rules_name_fields_as_the_api_server_does(path: str, part: Json) -> None:
    """It compiles them against the schema: one unknown field, and the whole definition is refused."""
    known = {escaped(name) for name in part.get("properties", {})}
    for rule in part[RULES]:
        assert set(re.findall(r"\bself\.(\w+)(?![\w(])", rule["rule"])) <= known, path


def test_what_rules_go_through_is_bounded() -> None:
    """The API server estimates what a rule may cost, and refuses a definition whose lists have no end."""
    for path, part in parts():
        if not any(RULES in other for where, other in WITH_RULES if where.startswith(path) or path.startswith(where)):
            continue
        if part.get("type") == "array":
            assert part["maxItems"] <= 64, path
        if isinstance(part.get("additionalProperties"), dict):
            assert part["maxProperties"] <= 64, path
        if part.get("type") == "string" and "enum" not in part and RULES in part:
            assert part["maxLength"] <= 1024, path
