"""What must not change by accident: DaemonSets and ConfigMaps of device plugins, of each kind.

A changed template replaces plugins on every node of every user. Whoever means it runs ``GOLDEN=write make unit`` and
says in CHANGELOG.md what users will see.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.objects import plugin
from tests.support.driver_builder.factories import driver, spec_of

FOLDER = Path(__file__).parents[2] / "data" / "golden_plugins"
GROUPS = [{"paths": [{"path": "/dev/edu*"}, {"path": "/opt/edu/*/lib.so", "type": "Mount", "readOnly": True}]}]
KINDS: dict[str, dict[str, Any]] = {
    "resource": {"resource": {"name": "example.com/edu", "groups": GROUPS, "health": {"driver": "edudrv"}}},
    "vendor": {"image": "r.io/plugin:1", "resourceName": "example.com/edu", "args": ["--x"], "privileged": True},
    "nvidia": {"nvidia": {}},
    "nvidia-with-libraries": {"nvidia": {"migStrategy": "mixed", "libraries": {"path": "/opt/nvidia/driver"}}},
    "nvidia-with-profiles": {"nvidia": {"profiles": {"configMap": "gpu-profiles"}}},
    "nvidia-with-a-token": {
        "nvidia": {
            "profiles": {"configMap": "gpu-profiles"},
            "defaultProfile": "whole",
            "serviceAccountName": "gpu-profiles",
        },
    },
    "nvidia-with-mig": {
        "nvidia": {
            "migStrategy": "mixed",
            "mig": {"enabled": True, "drain": True, "configMap": "mig-layouts"},
            "serviceAccountName": "gpu",
        },
    },
    "exporter-of-a-resource": {
        "resource": {"name": "example.com/edu", "groups": GROUPS[:1]},
        "exporter": {"enabled": True, "port": 9401},
    },
    "use-by-pods": {
        "resource": {"name": "example.com/edu", "groups": GROUPS[:1]},
        "exporter": {"enabled": True, "perPod": True, "hostnameLabel": "node"},
    },
    "use-of-nvidia-with-a-token": {
        "nvidia": {"profiles": {"configMap": "gpu-profiles"}, "serviceAccountName": "gpu-profiles"},
        "exporter": {"enabled": True},
        "memory": {"mode": "driver", "limits": {"nvidia.com/gpu": "10Gi"}},
    },
    "memory-of-a-resource": {
        "resource": {"name": "example.com/edu", "groups": [{**GROUPS[0], "count": 4}]},
        "memory": {"mode": "watch"},
    },
    "dra": {
        "image": "r.io/dra:1",
        "command": ["/plugin"],
        "args": ["--x"],
        "privileged": True,
        "dra": {
            "driver": "gpu.nvidia.com",
            "serviceAccountName": "dra",
            "env": [{"name": "CDI_ROOT", "value": "/var/run/cdi"}, {"name": "EMPTY"}],
        },
    },
    "dra-with-user-space": {
        "image": "r.io/dra:1",
        "dra": {"driver": "gpu.nvidia.com", "serviceAccountName": "dra"},
    },
    "memory-alone": {"nvidia": {}, "exporter": {"enabled": False}, "memory": {"mode": "watch", "dryRun": True}},
}

ARCHIVE = {"url": "https://example.com/a.tar.gz", "sha256": "0" * 64}
OTHERS: dict[str, dict[str, Any]] = {
    "dra-with-user-space": {"userspace": {"archive": ARCHIVE, "versionFile": "a", "hostPath": "/run/nvidia/driver"}}
}
"""What else stands in the spec of a kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_objects_of_a_plugin(kind: str) -> None:
    """The DaemonSet, and the ConfigMap of our agent."""
    changes = {"stages": {"devicePlugin": KINDS[kind]}, "imagePullSecrets": [{"name": "pull"}], **OTHERS.get(kind, {})}
    container = driver(spec_changes=changes)
    spec = spec_of(container)
    settings = spec.device_plugin
    assert settings is not None
    has_token = settings.account is not None
    made = [plugin.daemon_set(container, spec, settings, agent_image="r.io/device-agent:1", has_token=has_token)]
    made += [plugin.config_map(container, settings)] if settings.is_of_agent else []
    text, path = yaml.safe_dump_all(json.loads(json.dumps(made)), sort_keys=True, width=120), FOLDER / f"{kind}.yaml"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs; if that is meant, GOLDEN=write writes it anew"


def test_every_golden_file_belongs_to_a_kind() -> None:
    """The file of a kind that is removed is removed with it."""
    assert {path.stem for path in FOLDER.iterdir()} == set(KINDS)
