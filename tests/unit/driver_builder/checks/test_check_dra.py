"""What doctor says where a plugin is a DRA driver: the API, the right to see it, the account."""

from typing import Any

import pytest

from driver_builder.base.check_result import Status
from driver_builder.checks.check_dra import check_accounts, check_api, check_rights_of_dra, with_dra
from driver_builder.checks.check_rights import Scope, rights
from driver_builder.checks.finding import Unread
from driver_builder.cli.examination import manifests
from tests.support.driver_builder.factories import NAMESPACE, driver

PLUGIN: dict[str, Any] = {"image": "r.io/dra:1", "dra": {"driver": "gpu.example.com", "serviceAccountName": "dra"}}
DRIVER = driver(spec_changes={"stages": {"devicePlugin": PLUGIN}})
ACCOUNT = f"{NAMESPACE}/dra"
RIGHTS = rights(manifests.dra_roles(), Scope(namespaces=("a",), lease_name="b"))


def test_drivers_with_another_plugin_are_not_looked_at() -> None:
    """Nothing is asked for them."""
    assert with_dra([driver(), DRIVER]) == (DRIVER,)


@pytest.mark.parametrize(
    ("unserved", "verdict", "words"),
    [
        pytest.param("", Status.OK, "it has ResourceSlices", id="served"),
        pytest.param("the API server has no resource.k8s.io", Status.WARNING,
                     f"which stages.devicePlugin.dra of {DRIVER.key} needs", id="not served"),
        pytest.param(Unread(message="503"), Status.UNKNOWN, "cannot be read: 503", id="unknown"),
    ],
)  # fmt: skip
def test_whether_the_api_is_there(unserved: str | Unread, verdict: Status, words: str) -> None:
    """A driver is loaded without it."""
    finding = check_api([DRIVER], unserved)
    assert (finding.status, words in finding.message) == (verdict, True), finding


@pytest.mark.parametrize(
    ("answer", "verdict", "words", "remedy"),
    [
        pytest.param(True, Status.OK, "x may read ResourceSlices", "", id="granted"),
        pytest.param(False, Status.WARNING, "watch resourceslices.resource.k8s.io; ",
                     "kubectl apply -f deploy/driver-builder/dra.yaml", id="missing"),
        pytest.param(Unread(message="403"), Status.UNKNOWN, "could not be asked: 403", "administrator", id="unknown"),
    ],
)  # fmt: skip
def test_the_right_to_slices(answer: bool | Unread, verdict: Status, words: str, remedy: str) -> None:
    """Those of their manifest: list and watch, and nothing else."""
    assert [str(right) for right in RIGHTS] == [
        "list resourceslices.resource.k8s.io", "watch resourceslices.resource.k8s.io",
    ]  # fmt: skip
    finding = check_rights_of_dra(dict.fromkeys(RIGHTS, answer), "x", [DRIVER])
    assert (finding.status, words in finding.message, remedy in finding.remedy) == (verdict, True, True), finding


def test_an_account_that_is_not_allowed_is_named() -> None:
    """With the flag."""
    assert list(check_accounts([DRIVER], {ACCOUNT})) == []
    (finding,) = check_accounts([DRIVER], set())
    assert (
        finding.message
        == f"--dra-driver-accounts does not name {ACCOUNT} of {DRIVER.key}: the DRA driver is not started"
    )
