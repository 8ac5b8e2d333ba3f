"""How each driver fares on a kernel that no node runs yet: what is built, and what is said."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import (
    BuildFailed,
    ConfigurationError,
    DriverBuilderError,
    RegistryFull,
    TemporaryError,
    VerificationFailed,
)
from driver_builder.base.reasons import Reason
from driver_builder.cli import main
from driver_builder.cli.commands import preflight_command
from driver_builder.model import images
from driver_builder.model.image_state import Absent, ImageState, Present, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.nodes.changes import StartBuild
from driver_builder.plan.plan import plan
from driver_builder.prebuild.preflight import Preflight, PreflightResult, Success, parse_target
from driver_builder.registry.registry_access import Registries
from kube_api.client import Client
from tests.support.driver_builder.factories import (
    KERNEL,
    NOW,
    OTHER_KERNEL,
    PRESENT,
    SETTINGS,
    driver,
    node,
    snapshot,
    target,
    with_images,
)
from tests.support.driver_builder.model_world import World

COMING = "6.12.9+deb12-amd64"


@dataclass
class Bench:
    """Builds that take five seconds and end as arranged."""

    state: ImageState = field(default_factory=Absent)
    error: DriverBuilderError | None = None
    built: list[StartBuild] = field(default_factory=list)
    now: float = NOW

    def check(self, container: DriverContainer, wanted: KernelTarget | None = None) -> PreflightResult:
        """Check one driver."""
        checked = Preflight(
            snapshot=snapshot(drivers=(container,)),
            target=wanted or target(COMING),
            template_versions=SETTINGS.template_versions,
            registries=self,
            build=self._build,
            clock=lambda: self.now,
        )
        return checked.check(container)

    def inspect(
        self,
        namespace: str,  # noqa: ARG002 - of the protocol, as those below
        settings: RegistrySettings,  # noqa: ARG002
        image: ImageRef,
        architecture: str = "",  # noqa: ARG002
        *,
        signed_by: str | None = None,  # noqa: ARG002
    ) -> ImageState:
        """Let an image that is there have the key in its tag, unless it says which it has."""
        if not isinstance(self.state, Present):
            return self.state
        return replace(self.state, labels={images.KEY_LABEL: image.reference[-20:], **self.state.labels})

    def _build(self, action: StartBuild) -> str:
        self.built.append(action)
        self.now += 5
        if self.error is not None:
            raise self.error
        return ""


def test_what_is_built_is_what_a_node_on_that_kernel_would_want() -> None:
    """The same build key and tag as in the plan of the day when the node has moved."""
    bench = Bench()
    result = bench.check(driver())
    moved = with_images(snapshot(node(kernel="6.12.9_deb12-amd64", labels={}), drivers=(driver(),)), Absent())
    annotated = replace(moved.nodes[0], annotations={"driverwright.io/kernel-version": COMING})
    (action,) = plan(with_images(replace(moved, nodes=(annotated,)), Absent()), SETTINGS).actions
    assert isinstance(action, StartBuild)
    assert (bench.built[0].request, bench.built[0].image) == (action.request, action.image)
    assert (result.verdict, result.seconds, result.is_ok) == (Success.VERIFIED, 5.0, True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(BuildFailed(Reason.COMPILE_ERROR, "nv-pci.c:223: x", log_tail=("a", "b")), "CompileError",
                     id="does not compile"),
        pytest.param(VerificationFailed(Reason.WRONG_SYMBOL_CRC, "x"), "WrongSymbolCRC", id="wrong CRC"),
        pytest.param(RegistryFull("x"), "RegistryFull", id="registry full"),
        pytest.param(TemporaryError("x"), "BuilderUnavailable", id="engine away"),
    ],
)  # fmt: skip
def test_a_build_that_fails_says_why(error: DriverBuilderError, reason: str) -> None:
    """One word, the error's own sentence, and the end of the log."""
    result = Bench(error=error).check(driver())
    assert (result.verdict, result.reason, result.message, result.is_ok) == (
        "FAILED", reason, str(error), False,
    )  # fmt: skip
    assert result.log_tail == getattr(error, "log_tail", ())
    assert json.loads(json.dumps(result.fields()))["verdict"] == "FAILED"


@pytest.mark.parametrize(
    ("changes", "state", "verdict", "words"),
    [
        pytest.param({}, PRESENT, Success.PRESENT, "@sha256:", id="verified before"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "skip": True}]}, Absent(), Success.NOT_WANTED, "skipped",
                     id="skipped"),
        pytest.param({"kernelMappings": [{"literal": KERNEL}]}, Absent(), "FAILED", "no rule", id="no rule"),
        pytest.param({"image": "?"}, Absent(), "FAILED", "spec.image", id="invalid spec"),
        pytest.param({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, Absent(), Success.NOT_WANTED,
                     "selects no node", id="other machines"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]}, Absent(), "FAILED",
                     "does not exist", id="prebuilt, missing"),
        pytest.param({"kernelMappings": [{"regexp": ".*", "image": "r.io/x:1"}]}, Unreachable(message="timeout"),
                     "FAILED", "timeout", id="prebuilt, not known"),
    ],
)  # fmt: skip
def test_what_need_not_or_cannot_be_built_is_not(
    changes: dict[str, Any], state: ImageState, verdict: str, words: str
) -> None:
    """No build starts, and the reason is reported."""
    bench = Bench(state=state)
    result = bench.check(driver(spec_changes=changes))
    assert (result.verdict, bench.built) == (verdict, [])
    assert words in result.message


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        pytest.param({}, replace(PRESENT, labels={**PRESENT.labels, images.KEY_LABEL: "other"}), "WrongBuildKey",
                     id="something else"),
        pytest.param({}, Present(digest=PRESENT.digest), "NoIdentity", id="without identities"),
        pytest.param({"signing": {"imageKeySecretRef": {"name": "key"}}}, replace(PRESENT, is_signed=False),
                     "ImageNotSigned", id="not signed"),
    ],
)  # fmt: skip
def test_an_image_that_no_node_would_be_given_is_not_well(changes: dict[str, Any], state: Present, reason: str) -> None:
    """What the controller would refuse to roll out is no image for the kernel, although its tag is there."""
    bench = Bench(state=state)
    result = bench.check(driver(spec_changes=changes))
    assert (result.verdict, result.reason, bench.built) == ("FAILED", reason, [])


def test_a_distribution_without_template_fails() -> None:
    """A distribution without a template fails before anything is built."""
    assert Bench().check(driver(), target(COMING, os_id="gentoo")).reason == "UnsupportedOS"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"kernel": "latest"}, id="kernel"),
        pytest.param({"os": "Debian 12"}, id="os"),
        pytest.param({"architecture": "x86-64!"}, id="architecture"),
    ],
)
def test_a_target_that_is_none_is_wrong_usage(words: dict[str, str]) -> None:
    """The value is named, with an example."""
    with pytest.raises(ConfigurationError, match=r"such as .*, debian:12, amd64"):
        parse_target(**{"kernel": KERNEL, "os": "debian:12", "architecture": "amd64", **words})


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Let the command run against a world, with an engine that builds everything, or what is given as an error."""
    world = World()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.add_driver("other")
    monkeypatch.setattr(Client, "from_environment", lambda *_words, **_more: world.client)
    monkeypatch.setattr(Registries, "inspect", lambda *_words, **_more: Absent())

    def run(*words: str, error: DriverBuilderError | None = None) -> int:
        def build(*_words: Any, **_more: Any) -> None:
            if error is not None:
                raise error

        monkeypatch.setattr(preflight_command, "_build", build)
        return main.main(["preflight", "--kernel", OTHER_KERNEL, "--os", "debian:12", *words])

    return run


def test_the_result_is_a_table(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each driver, 0 when all are well."""
    assert command() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["DRIVER", "KERNEL", "VERDICT", "REASON", "SECONDS", "MESSAGE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["driverwright/edu", OTHER_KERNEL, "verified", "-"],
        ["driverwright/other", OTHER_KERNEL, "verified", "-"],
    ]


def test_one_that_fails_is_enough_for_1(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """With the first error in the table and the end of the log beside it."""
    error = BuildFailed(Reason.COMPILE_ERROR, "nv-pci.c:223: too few arguments", log_tail=("make: ***",))
    assert command("edu", error=error) == 1
    printed = capsys.readouterr()
    assert "CompileError" in printed.out
    assert "nv-pci.c:223: too few arguments" in printed.out
    assert "driverwright/edu: make: ***" in printed.err


def test_it_can_be_read_by_programs(command: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    """One entry for each driver that was asked for."""
    assert command("other", "-o", "json") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["driver"], entry["verdict"]) == ("driverwright/other", "verified")
