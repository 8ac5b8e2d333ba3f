"""The drivers that golden files are kept of: each is one object of the cluster's and one node, planned by ``plan``.

A case names what is unusual about it. What comes out is compared with ``tests/data/golden`` and ``golden_jobs``
(``test_golden``), so a change that would rebuild images, rename a DaemonSet or replace running pods is seen before
users see it.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from driver_builder.api import driver_container
from driver_builder.api.build_settings import ConfigMapSource
from driver_builder.builds.templates import templates
from driver_builder.model import build
from driver_builder.model.image_state import Absent, ImageState
from driver_builder.nodes.changes import Change
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from driver_builder.snapshot.snapshot import SigningCertificate, Snapshot
from driver_builder.targets.desired_target import ImageTarget, TemplateVersions
from driver_builder.targets.resolve import resolve
from kube_api import names
from tests.support.driver_builder import factories
from tests.support.driver_builder.factories import PRESENT, SOURCE, driver_object, node, spec_of, with_key

Json = dict[str, Any]

VENDOR = f"registry.example.com/vendor/edu@{factories.DIGEST}"
COMMIT, CHECKSUM = "1" * 40, "2" * 64
OWN_TEMPLATE = "FROM {{ base_image }} AS build\nRUN echo {{ kernel_version }} {{ modules | join(' ') }}\nFROM scratch\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One driver and one node. ``os`` is ``ID:VERSION_ID``.

    ``in_a_job``: the Dockerfile that a Job is given is kept as well, in ``tests/data/golden_jobs``. One case of each
    template has it, and one of an admin's own.
    """

    spec: Json = field(default_factory=dict)
    os: str = "debian:12"
    kernel: str = factories.KERNEL
    name: str = "edu"
    namespace: str = factories.NAMESPACE
    rebuild: str | None = None
    in_a_job: bool = False

    @property
    def seen(self) -> Snapshot:
        """The snapshot before any image is known."""
        os_id, _, os_version = self.os.partition(":")
        annotations = {names.REBUILD_ANNOTATION: self.rebuild} if self.rebuild else {}
        container = driver_container.parse(
            driver_object(self.name, namespace=self.namespace, spec_changes=self.spec, annotations=annotations)
        )
        spec = spec_of(container)
        source = SOURCE if isinstance(spec.source, ConfigMapSource) else spec.source
        own = build.OwnTemplate(place="ConfigMap a/b/c", text=OWN_TEMPLATE)
        return replace(
            factories.snapshot(node(kernel=self.kernel, os_id=os_id, os_version=os_version), drivers=(container,)),
            sources={container.key: source},
            templates={container.key: own} if spec.build.template_config_map else {},
            certificates={f"{container.namespace}/signing": SigningCertificate(der=b"certificate")},
        )


CASES: dict[str, Case] = {
    "plain": Case(in_a_job=True),
    "two-modules-with-parameters": Case(
        spec={"module": {"names": ["dw-helper", "edudrv"], "parameters": {"edudrv": ["use_irq=1", "name=a"]}}}
    ),
    "everything-on-the-node": Case(
        spec={
            "module": {
                "names": ["edudrv"],
                "firmwarePath": "/source/firmware",
                "inTreeModulesToRemove": ["edu_old"],
                "blacklist": ["edu_old", "edu_other"],
            },
            "source": {"image": {"reference": f"registry.example.com/source@sha256:{'0' * 64}", "path": "/usr/src"}},
        }
    ),
    "settings-of-the-pod": Case(
        spec={
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "priorityClassName": "drivers",
            "imagePullSecrets": [{"name": "pull"}],
        }
    ),
    "git": Case(spec={"source": {"git": {"url": "https://git.example.com/edu.git", "commit": COMMIT}}}),
    "archive": Case(
        spec={"source": {"archive": {"url": "https://example.com/e.tar.gz", "sha256": CHECKSUM, "path": "driver"}}}
    ),
    "package": Case(spec={"source": {"package": {"name": "edu-dkms", "version": "1.0-1"}}}),
    **{
        f"packages-on-{os.partition(':')[0]}": Case(
            os=os, kernel=kernel, spec={"build": {"packages": {os.partition(":")[0]: ["spatch", "g++"]}}}
        )
        for os, kernel in (
            ("debian:12", factories.KERNEL),
            ("ubuntu:22.04", "6.5.0-1014-aws"),
            ("rocky:9.4", "5.14.0-427.13.1.el9_4.x86_64"),
            ("amzn:2023", "6.1.91-99.172.amzn2023.x86_64"),
            ("sles:15.6", "6.4.0-150600.23.25-default"),
        )
    },
    "tools-of-another-image": Case(
        os="rocky:9.4",
        kernel="5.14.0-427.13.1.el9_4.x86_64",
        spec={"build": {"toolsImage": "registry.example.com/mirror/debian:12"}},
    ),
    "tools-of-no-image": Case(spec={"build": {"toolsImage": "registry.example.com/mirror/debian:12"}}),
    "user-space": Case(
        spec={
            "userspace": {
                "archive": {"url": "https://example.com/edu-libraries.tar.xz", "sha256": CHECKSUM},
                "versionFile": "lib/libedu.so.1.0.0",
                "sizeLimit": "64Mi",
            }
        }
    ),
    "user-space-of-packages": Case(
        spec={
            "module": {"names": ["edudrv"], "firmwarePath": "/userspace/usr/lib/firmware"},
            "userspace": {
                "packages": [
                    {"name": "libedu1", "version": "1.0.0-1"},
                    {"name": "firmware-edu", "version": "1:1.0.0-2"},
                ],
                "hostPath": "/run/nvidia/driver",
            },
        }
    ),
    "own-template": Case(
        spec={"build": {"templateConfigMap": {"name": "mine", "key": "Dockerfile"}, "baseImage": "debian:12"}},
        in_a_job=True,
    ),
    "arguments-of-a-mapping": Case(
        spec={
            "build": {"args": {"A": "1", "B": "2"}},
            "kernelMappings": [{"regexp": "6\\.1\\..*", "args": {"B": "3"}}, {"regexp": ".*", "skip": True}],
        }
    ),
    "prebuilt": Case(
        spec={"kernelMappings": [{"regexp": ".*", "image": f"registry.example.com/vendor/edu@{factories.DIGEST}"}]}
    ),
    "modules-of-a-vendor": Case(
        spec={
            "kernelMappings": [{"regexp": ".*", "image": VENDOR, "dirName": "/opt"}],
            "module": {
                "names": ["dw-helper", "edudrv"],
                "parameters": {"edudrv": ["a=1"]},
                "firmwarePath": "/firmware",
            },
        }
    ),
    "program-of-a-vendor": Case(
        spec={
            "kernelMappings": [
                {
                    "regexp": ".*",
                    "image": VENDOR,
                    "loader": "image",
                    "container": {
                        "command": ["nvidia-driver"],
                        "args": ["init"],
                        "env": [{"name": "A", "value": "b"}],
                        "hostPaths": [
                            {"path": "/run/nvidia", "propagation": "Bidirectional"},
                            {"path": "/etc/os-release", "mountPath": "/host-etc/os-release", "readOnly": True},
                        ],
                        "timeout": "30m",
                    },
                }
            ],
            "validation": {"deviceNodes": ["/dev/edu0"]},
        }
    ),
    "signed": Case(spec={"signing": {"keySecretRef": {"name": "key"}, "certificateSecretRef": {"name": "signing"}}}),
    "rebuilt": Case(rebuild="2026-01-01"),
    "long-name": Case(name="a-driver-whose-name-is-so-long-that-it-has-to-be-cut", namespace="dw"),
    "no-os-version": Case(os="opensuse-tumbleweed:", spec={"build": {"baseImage": "opensuse/tumbleweed:1"}}),
    "plus-in-the-kernel": Case(kernel="6.12.117+deb12-cloud-amd64"),
    "ubuntu": Case(os="ubuntu:22.04", kernel="5.15.0-117-generic", in_a_job=True),
    "rocky": Case(os="rocky:9.4", kernel="5.14.0-427.13.1.el9_4.x86_64", in_a_job=True),
    "fedora": Case(os="fedora:40", kernel="6.8.9-300.fc40.x86_64", in_a_job=True),
    "amazon": Case(os="amzn:2023", kernel="6.12.22-27.96.amzn2023.x86_64", in_a_job=True),
    "sles": Case(os="sles:15.6", kernel="6.4.0-150600.23.14-default", in_a_job=True),
    "flatcar": Case(os="flatcar:4081.2.1", kernel="6.6.65-flatcar", in_a_job=True),
    "generic": Case(
        os="custom:1",
        kernel="6.6.52-custom",
        spec={"build": {"template": "generic", "baseImage": "debian:12"}},
        in_a_job=True,
    ),
}


def settings() -> PlanSettings:
    """Make the settings with the versions of the templates as they are in this checkout."""
    versions = TemplateVersions(versions=templates.template_versions())
    return PlanSettings(template_versions=versions)


def actions(seen: Snapshot, state: ImageState) -> tuple[Change, ...]:
    """Plan with the same answer of the registries for every image."""
    versions = settings().template_versions
    items = [item for one in seen.drivers for item in resolve(seen, one, spec_of(one), versions).targets]
    images = {item.image: with_key(state, item) for item in items if isinstance(item, ImageTarget)}
    return plan(replace(seen, images=images), settings()).actions


ABSENT, THERE = Absent(), PRESENT
