"""Drivers that name what the settings do not allow: blocked with words that help, and nothing that runs is touched."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given

from driver_builder.base.reasons import Reason, TargetState
from driver_builder.builds.templates.templates import templates_directory
from driver_builder.model.build import SourceGit
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.permissions import SETTINGS as FLAGS
from driver_builder.model.permissions import Permissions, read
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.nodes.changes import ApplyObject, DiscoverKernels, StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import Plan, plan
from driver_builder.prebuild.prebuild import images_ahead
from driver_builder.prebuild.preflight import Preflight
from driver_builder.prebuild.upgrade_labels import images_of_moves
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import permissions, resolve_target
from driver_builder.targets.desired_target import BlockedTarget, TemplateVersions
from driver_builder.targets.resolve import resolve
from driver_builder.targets.resolve_all import ResolveMemory, resolve_all
from driver_builder.targets.resolve_target import ANY_KERNEL
from kube_api.names import READY_FOR_PREFIX
from tests.support.driver_builder.changes import done, label_in, patches, pods_replaced
from tests.support.driver_builder.factories import (
    GONE,
    KERNEL,
    NOW,
    OTHER_KERNEL,
    SETTINGS,
    driver,
    node,
    ready_snapshot,
    snapshot,
    spec_of,
    target,
)
from tests.support.driver_builder.snapshots import snapshots

COMMIT = "c" * 40
SHA256 = "d" * 64
GIT = {"git": {"url": "https://github.com/a/b", "commit": COMMIT}}
PULLS: dict[str, Any] = {"registry": {"secretRef": {"name": "pull"}}}
JOB: dict[str, Any] = {"builder": "job", "secrets": [{"name": "pull"}]}


def allowed(**texts: str) -> Permissions:
    """Read settings as they are written, by the names of their flags."""
    assert texts.keys() <= {setting.name for setting in FLAGS}
    return read(texts)


def settings(limits: Permissions) -> PlanSettings:
    """Return the settings of a plan with these limits."""
    return replace(SETTINGS, template_versions=versions(limits))


def versions(limits: Permissions) -> TemplateVersions:
    """Return what drivers are resolved with."""
    return replace(SETTINGS.template_versions, permissions=limits)


REFUSED = [
    pytest.param(
        {},
        {"allowed_registries": "r.io/*"},
        "spec.image: 'registry.example.com:5000/drivers/edu' is not allowed by --allowed-registries of driver-builder",
        id="repository",
    ),
    pytest.param(
        {"build": {"baseImage": "evil.example/x:1"}},
        {"allowed_base_images": "docker.io/library/*"},
        "spec.build.baseImage: 'evil.example/x:1' is not allowed by --allowed-base-images of driver-builder",
        id="base image",
    ),
    pytest.param(
        {"validation": {"image": "evil.example/x:1", "command": ["/x"]}},
        {"allowed_base_images": "docker.io/library/*"},
        "spec.validation.image: 'evil.example/x:1' is not allowed by --allowed-base-images of driver-builder",
        id="image of a validation",
    ),
    pytest.param(
        {},
        {"allowed_base_images": "r.io/mirror/*"},
        "spec.build.baseImage: 'debian:bookworm-slim' is not allowed by --allowed-base-images of driver-builder",
        id="base image of the distribution",
    ),
    pytest.param(
        {"source": {"image": {"reference": f"evil.example/x@sha256:{SHA256}"}}},
        {"allowed_base_images": "docker.io/library/*"},
        f"spec.source.image.reference: 'evil.example/x@sha256:{SHA256}' is not allowed by --allowed-base-images of"
        " driver-builder",
        id="source in an image",
    ),
    pytest.param(
        {"source": GIT},
        {"allowed_source_hosts": "git.example.com"},
        "spec.source.git.url: 'https://github.com/a/b' is not allowed by --allowed-source-hosts of driver-builder",
        id="source in git",
    ),
    pytest.param(
        {"source": {"archive": {"url": "http://a.example/x.tar", "sha256": SHA256}}},
        {"allowed_source_hosts": "none"},
        "spec.source.archive.url: 'http://a.example/x.tar' is not allowed by --allowed-source-hosts of driver-builder",
        id="source in an archive",
    ),
    pytest.param(
        {"userspace": {"archive": {"url": "http://a.example/x.tar", "sha256": SHA256}, "versionFile": "a"}},
        {"allowed_source_hosts": "b.example"},
        "spec.userspace.archive.url: 'http://a.example/x.tar' is not allowed by --allowed-source-hosts of"
        " driver-builder",
        id="user space in an archive",
    ),
    pytest.param(
        {"build": {"args": {"HEADERS_MIRROR": "http://a.example/debian"}}},
        {"allowed_source_hosts": "mirror.example.com"},
        "spec.build.args.HEADERS_MIRROR: 'http://a.example/debian' is not allowed by --allowed-source-hosts of"
        " driver-builder",
        id="archive of headers",
    ),
    pytest.param(
        {"kernelMappings": [{"regexp": ".*", "args": {"HEADERS_MIRROR": "http://a.example/debian"}}]},
        {"allowed_source_hosts": "mirror.example.com"},
        "spec.kernelMappings[0].args.HEADERS_MIRROR: 'http://a.example/debian' is not allowed by"
        " --allowed-source-hosts of driver-builder",
        id="archive of headers of a mapping",
    ),
    pytest.param(
        {"build": {"template": "rhel", "baseImage": "r.io/mirror/alma:9"}},
        {"allowed_base_images": "r.io/mirror/*"},
        "spec.build.template: 'debian:bookworm-slim', which template rhel starts for its tools, is not allowed by"
        " --allowed-base-images of driver-builder",
        id="image of a template's tools",
    ),
    pytest.param(
        {"kernelMappings": [{"literal": "6.9.9"}, {"regexp": ".*", "image": "e.example/x:1"}]},
        {"allowed_prebuilt_images": "r.io/*"},
        "spec.kernelMappings[1].image: 'e.example/x:1' is not allowed by --allowed-prebuilt-images of driver-builder",
        id="prebuilt image",
    ),
    pytest.param(
        {},
        {"allowed_node_labels": "pool=gpu"},
        "spec.nodeSelector: 'pool=edu' is not allowed by --allowed-node-labels of driver-builder",
        id="nodes",
    ),
    pytest.param(
        {"nodeSelector": None},
        {"allowed_node_labels": "pool=gpu"},
        "spec.nodeSelector: every node is not allowed by --allowed-node-labels of driver-builder",
        id="all nodes",
    ),
    pytest.param(
        {"nodeSelector": None, "kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]},
        {"allowed_node_labels": "pool=gpu"},
        "spec.nodeSelector: every node is not allowed by --allowed-node-labels of driver-builder",
        id="nodes of a prebuilt image",
    ),
    pytest.param(
        {"build": {"resources": {"limits": {"memory": "16Gi", "cpu": 4}}}},
        {"max_build_resources": "cpu=4,memory=8Gi"},
        "spec.build.resources.limits.memory: 16Gi is not allowed by --max-build-resources of driver-builder",
        id="more memory than is allowed",
    ),
    pytest.param(
        {"build": {"resources": {"requests": {"nvidia.com/gpu": 1}}}},
        {"max_build_resources": "cpu=4"},
        "spec.build.resources.requests.nvidia.com/gpu: 1 is not allowed by --max-build-resources of driver-builder",
        id="a resource that is not listed",
    ),
    pytest.param(
        {"build": {"templateConfigMap": {"name": "mine", "key": "k"}}},
        {"no_custom_templates": "true"},
        "spec.build.templateConfigMap: ConfigMap mine is not allowed by --no-custom-templates of driver-builder",
        id="custom template",
    ),
    pytest.param(
        {"build": JOB, "registry": {"secretRef": {"name": "pull"}}},
        {"protect_secrets": "true"},
        "spec.build.secrets[0]: Secret pull, which is spec.registry.secretRef of driverwright/edu, is not allowed by"
        " --protect-secrets of driver-builder",
        id="Secret of its registry",
    ),
]


@pytest.mark.parametrize(("changes", "texts", "message"), REFUSED)
def test_a_driver_that_is_not_allowed_is_blocked(changes: dict[str, Any], texts: dict[str, str], message: str) -> None:
    """The message names the field, its value and the setting; nothing is built and no registry is asked."""
    seen = snapshot(drivers=(driver(spec_changes=changes),))
    resolved = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), versions(allowed(**texts)))
    (item,) = resolved.targets
    assert isinstance(item, BlockedTarget)
    assert (item.state, item.reason, item.message) == (TargetState.BLOCKED, Reason.NOT_ALLOWED, message)
    assert resolved.images == ()
    made = plan(seen, settings(allowed(**texts)))
    assert not [action for action in made.actions if isinstance(action, StartBuild | ApplyObject)]


@pytest.mark.parametrize(("changes", "texts", "message"), REFUSED)
def test_without_settings_everything_is_allowed(changes: dict[str, Any], texts: dict[str, str], message: str) -> None:
    """What worked before works."""
    assert texts
    spec = spec_of(driver(spec_changes=changes))
    rule = spec.kernel_mappings[-1] if spec.kernel_mappings else ANY_KERNEL
    assert permissions.of_target(spec, rule, Permissions(), base_image="debian") == ()
    assert permissions.of_spec(spec, Permissions()) == ()
    assert message


def test_a_spec_within_all_settings_is_built() -> None:
    """A recommended set of settings lets an ordinary driver through."""
    limits = allowed(
        allowed_registries="registry.example.com:5000/drivers/*",
        allowed_base_images="docker.io/library/*",
        allowed_prebuilt_images="none",
        allowed_source_hosts="github.com",
        allowed_node_labels="pool=edu",
        max_build_resources="cpu=4,memory=8Gi",
        no_custom_templates="true",
        protect_secrets="true",
    )
    build = {**JOB, "resources": {"limits": {"memory": "8Gi", "cpu": "500m"}}}
    seen = snapshot(drivers=(driver(spec_changes={"source": GIT, "build": build}),))
    seen = replace(seen, sources={seen.drivers[0].key: SourceGit(url="https://github.com/a/b", commit=COMMIT)})
    (item,) = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), versions(limits)).images
    assert item.request is not None


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        pytest.param({"registry": {"secretRef": {"name": "pull"}}}, True, id="registry"),
        pytest.param({"signing": {"imageKeySecretRef": {"name": "pull"}}}, True, id="key of images"),
        pytest.param(
            {"signing": {"keySecretRef": {"name": "pull"}, "certificateSecretRef": {"name": "c"}}}, True, id="key"
        ),
        pytest.param(
            {"kernelMappings": [{"regexp": ".*", "signing": {"imageKeySecretRef": {"name": "pull"}}}]},
            True,
            id="key of a mapping",
        ),
        pytest.param({"imagePullSecrets": [{"name": "pull"}]}, False, id="pull Secret of nodes"),
        pytest.param({"build": JOB}, False, id="Secret of another build"),
        pytest.param({}, False, id="nothing"),
    ],
)
@pytest.mark.parametrize("namespace", ["driverwright", "elsewhere"])
def test_secrets_of_other_drivers_are_protected(other: dict[str, Any], is_refused: bool, namespace: str) -> None:
    """Those of registries and signing, of every driver of the namespace; a Secret that only pulls is not."""
    mine = driver(spec_changes={"build": JOB})
    others = replace(driver("other", spec_changes=other), namespace=namespace)
    seen = snapshot(drivers=(mine, others))
    resolved = resolve(seen, mine, spec_of(mine), versions(allowed(protect_secrets="true")))
    blocked = [item.reason for item in resolved.targets if isinstance(item, BlockedTarget)]
    assert blocked == ([Reason.NOT_ALLOWED] if is_refused and namespace == mine.namespace else [])


def test_a_secret_is_protected_from_when_another_driver_names_it() -> None:
    """Also where the driver itself was resolved before and did not change; and when it does not any more, it is not."""
    mine, other = driver(spec_changes={"build": JOB}), driver("other", spec_changes=PULLS)
    memory, limits = ResolveMemory(), versions(allowed(protect_secrets="true"))
    found = [
        resolve_all(snapshot(drivers=drivers), limits, memory)[mine.key].targets[0]
        for drivers in ((mine,), (mine, other), (mine,))
    ]
    assert [isinstance(item, BlockedTarget) for item in found] == [False, True, False]


def test_a_working_driver_stays_where_a_setting_refuses_it() -> None:
    """Its DaemonSet, pods and labels are left alone; only the status says that nothing new is built."""
    seen = ready_snapshot(node("a"), node("b"))
    calm = plan(seen, SETTINGS)
    made = plan(seen, settings(allowed(allowed_registries="r.io/*", allowed_node_labels="pool=gpu")))
    assert calm.actions == made.actions
    (status,) = made.drivers[0].targets
    assert (status.state, status.reason, status.ready_nodes) == (TargetState.BLOCKED, Reason.NOT_ALLOWED, 2)


NONE = allowed(allowed_registries="none", allowed_prebuilt_images="none")


def harm(made: Plan) -> set[str]:
    """Return what a plan takes from nodes; labels of kernels to come are taken where nothing can be built for them."""
    taken = (item for item in made.actions if done([item])[0] in ("delete DaemonSet", "replace Pod", "run unload"))
    gone = (patch for patch in patches(made.actions, "label Node") if None in patch.labels.values())
    return {
        *map(str, taken),
        *(str(patch) for patch in gone if not label_in(patch)[0].startswith(READY_FOR_PREFIX)),
    }


@given(snapshots())
def test_limits_take_nothing_from_nodes_and_bring_nothing_new(seen: Snapshot) -> None:
    """Whatever is there: no build, no roll-out, and nothing goes that would not go without the limits."""
    bound = plan(seen, settings(NONE))
    assert not [action for action in bound.actions if isinstance(action, StartBuild | ApplyObject)]
    assert harm(bound) <= harm(plan(seen, SETTINGS))


def test_a_module_that_goes_missing_is_loaded_again_where_a_setting_refuses_its_driver() -> None:
    """What was rolled out before is kept working."""
    seen = ready_snapshot(node("a"))
    drifted = replace(seen, pods=(replace(seen.pods[0], contrary=GONE, ready=False),))
    made = plan(drifted, settings(allowed(allowed_registries="r.io/*")))
    assert [action.node for action in pods_replaced(made.actions)] == ["a"]


MIRRORED = {"build": {"args": {"HEADERS_MIRROR": "http://a.example/debian"}}}


@pytest.mark.parametrize(
    ("rules", "places"),
    [
        pytest.param([], ["spec.build.args.HEADERS_MIRROR"], id="no mappings"),
        pytest.param([{"regexp": ".*"}], ["spec.build.args.HEADERS_MIRROR"], id="a mapping without one"),
        pytest.param([{"regexp": ".*", "args": {"HEADERS_MIRROR": "http://b.example/x"}}], [], id="an allowed one"),
        pytest.param(
            [{"regexp": "6.*", "args": {"HEADERS_MIRROR": "http://b.example/x"}}, {"regexp": ".*"}],
            ["spec.build.args.HEADERS_MIRROR"],
            id="used by the second mapping",
        ),
        pytest.param([{"regexp": ".*", "image": "r.io/x:1"}], [], id="nothing is built"),
    ],
)
def test_only_an_archive_of_headers_that_is_used_is_judged(rules: list[dict[str, Any]], places: list[str]) -> None:
    """A mapping's own archive is in place of the build's."""
    spec = spec_of(driver(spec_changes={**MIRRORED, "kernelMappings": rules}))
    limits = allowed(allowed_source_hosts="b.example")
    assert [str(item).partition(":")[0] for item in permissions.of_spec(spec, limits)] == places
    last = spec.kernel_mappings[-1] if spec.kernel_mappings else ANY_KERNEL
    of_last = permissions.of_target(spec, last, limits, base_image="debian")
    assert [str(item).partition(":")[0] for item in of_last] == places


def test_the_templates_that_start_an_image_for_their_tools_are_known() -> None:
    """By their files, and no custom template is taken for one."""
    folder = templates_directory(None)
    stage = (folder / "parts" / "tools_stage.j2").read_text()
    users = {path.name.partition(".")[0] for path in folder.glob("*.j2") if "parts/tools_stage.j2" in path.read_text()}
    assert users == permissions.TEMPLATES_WITH_TOOLS
    assert "FROM {{ tools_image }} AS tools" in stage
    changes = {"build": {"templateConfigMap": {"name": "mine", "key": "k"}, "baseImage": "r.io/mirror/alma:9"}}
    spec = spec_of(driver(spec_changes=changes))
    alma = replace(target(), os_id="almalinux")
    assert resolve_target.shipped_template_for(spec, ANY_KERNEL, alma) is None


def test_the_image_of_the_tools_is_judged_as_it_is_named() -> None:
    """A spec whose own one is allowed builds, where ours is not."""
    build = {"template": "rhel", "baseImage": "r.io/mirror/alma:9", "toolsImage": "r.io/mirror/debian:12"}
    spec, ours = (spec_of(driver(spec_changes={"build": changes})) for changes in (
        build, {name: build[name] for name in ("template", "baseImage")}))  # fmt: skip
    limits = allowed(allowed_base_images="r.io/mirror/*")
    assert permissions.of_spec(spec, limits) == ()
    assert "debian:bookworm-slim" in str(permissions.of_spec(ours, limits)[0])
    (refusal,) = permissions.of_spec(spec, allowed(allowed_base_images="r.io/mirror/alma"))
    assert str(refusal).startswith("spec.build.toolsImage: ")


def test_a_proxy_is_a_host_of_sources() -> None:
    """It answers for every host; its Secret is none that another driver keeps."""
    proxy = {"httpProxy": "http://p.example:3128", "httpsProxy": "http://q.example:3128", "secretRef": {"name": "push"}}
    spec = spec_of(driver(spec_changes={"build": {"proxy": proxy}}))
    assert [
        str(item).partition(":")[0]
        for item in permissions.of_spec(spec, allowed(allowed_source_hosts="p.example:3128"))
    ] == ["spec.build.proxy.httpsProxy"]
    other = spec_of(driver(spec_changes={"registry": {"secretRef": {"name": "push"}}}))
    limits = replace(allowed(), protected_secrets=True)
    secrets = permissions.protected_secrets(DriverKey("a/b"), spec, lambda: [(DriverKey("a/c"), other)], limits)
    (refusal,) = permissions.of_spec(spec, limits, secrets)
    assert str(refusal).startswith("spec.build.proxy.secretRef: ")


def test_only_the_targets_that_are_not_allowed_are_blocked() -> None:
    """A prebuilt image of one kernel may be refused while another kernel's is built."""
    rules = [{"literal": KERNEL, "image": "evil.example/x:1"}, {"regexp": ".*"}]
    seen = snapshot(node("a"), node("b", OTHER_KERNEL), drivers=(driver(spec_changes={"kernelMappings": rules}),))
    limits = versions(allowed(allowed_prebuilt_images="none"))
    items = resolve(seen, seen.drivers[0], spec_of(seen.drivers[0]), limits).targets
    assert [(item.target.kernel_version, isinstance(item, BlockedTarget)) for item in items] == [
        (OTHER_KERNEL, False),
        (KERNEL, True),
    ]


def test_many_refusals_are_counted() -> None:
    """A message is for people: three are enough."""
    everything = allowed(
        allowed_registries="none", allowed_base_images="none", allowed_source_hosts="none", allowed_node_labels="x"
    )
    spec = spec_of(driver(spec_changes={"source": GIT}))
    found = permissions.of_target(spec, ANY_KERNEL, everything, base_image="debian")
    assert permissions.words(found).endswith("; and 1 more")


def following(repository: Discovery | None, base_image: str) -> Snapshot:
    """Make a snapshot with a driver that follows its nodes' repository."""
    changes = {"preflight": {"followRepository": True}, "build": {"baseImage": base_image}}
    known = {Repository("debian", base_image, "amd64"): repository} if repository else {}
    return snapshot(drivers=(driver(spec_changes=changes),), discoveries=known)


def discoveries(made: Plan) -> list[DiscoverKernels]:
    """Return which repositories a plan asks."""
    return [action for action in made.actions if isinstance(action, DiscoverKernels)]


def test_a_base_image_that_is_not_allowed_is_not_started_to_find_kernels() -> None:
    """Kernel discovery runs a container of it."""
    seen = following(None, "evil.example/x:1")
    assert discoveries(plan(seen, SETTINGS))
    made = plan(seen, settings(allowed(allowed_base_images="docker.io/library/*")))
    assert discoveries(made) == []
    assert made.drivers[0].ahead is not None
    assert made.drivers[0].ahead[0].target.reason == Reason.NOT_ALLOWED


def test_no_registry_is_asked_for_a_kernel_to_come() -> None:
    """Prebuilds and the labels of nodes that may move want no image that is not allowed."""
    found = Discovery(releases=(KERNEL, "6.1.0-56-cloud-amd64"), at=NOW - 10)
    seen = following(found, "debian:bookworm-slim")
    limits = versions(allowed(allowed_registries="r.io/*"))
    for images in (images_ahead, images_of_moves):
        assert list(images(seen, SETTINGS.template_versions))
        assert list(images(seen, limits)) == []


def test_preflight_refuses_before_it_asks_a_registry() -> None:
    """The verdict has the reason and the setting."""

    def never(*_words: object, **_options: object) -> Any:
        raise AssertionError

    seen = snapshot()
    limits = versions(allowed(allowed_registries="r.io/*"))
    check = Preflight(
        snapshot=seen,
        target=target(),
        template_versions=limits,
        registries=SimpleNamespace(inspect=never),
        build=never,
        clock=lambda: 0.0,
    ).check(seen.drivers[0])  # fmt: skip
    assert (check.verdict, check.reason) == ("FAILED", Reason.NOT_ALLOWED)
    assert "--allowed-registries" in check.message
