"""The policies of ``deploy/admission``, judged by a newer Kubernetes' own admission plugin (Debian sid's).

``tests/contract/test_admission_policies.py`` evaluates them by CEL's C++ library; here the same requests go through the
plugin of the API server: which policy is meant, its conditions, variables and messages, and what is answered.
"""

from collections.abc import Iterator

import pytest

from testbed.newer_kubernetes import JUDGE, SOURCES, NewerKubernetes
from testbed.policy_judge import PolicyJudge, Verdict
from tests.contract.test_admission_policies import ACTS, MAY, PROGRAMS, documents, policy, review
from tests.recording import Say
from tests.support.admission import Refusal, Review
from tests.support.forbidden_changes import Act

CASES = [(program, name, act) for program in PROGRAMS for name, act in (ACTS[program] | MAY[program]).items()]
OTHERS = ("system:node:node-a", "system:serviceaccount:elsewhere:nfd-worker", "admin")


@pytest.fixture(scope="module")
def judge(newer_kubernetes: NewerKubernetes) -> Iterator[PolicyJudge]:
    """The plugin with the policies of all programs in force."""
    manifests = [manifest for program in PROGRAMS for manifest in documents(program)]
    with PolicyJudge(newer_kubernetes.path(JUDGE), manifests) as made:
        yield made


@pytest.fixture(autouse=True)
def recorded(judge: PolicyJudge, newer_kubernetes: NewerKubernetes, tested_on: Say) -> None:
    """Record which release it is, as the plugin tells it."""
    package = newer_kubernetes.versions[SOURCES[1]]
    tested_on("rules", rules="admission policies", Kubernetes=judge.release, package=package)


def verdict(judge: PolicyJudge, asked: Review) -> Verdict:
    """Ask the plugin what the contract tests ask the library."""
    subresource = asked.resource.partition("/")[2]
    return judge.judge(
        user=asked.user, new=asked.new, old=asked.old, extra=asked.extra, subresource=subresource, name=asked.name
    )


def parts(message: str) -> tuple[str, list[str]]:
    """Split a refusal into its sentence and the keys that it lists, whose order nothing fixes."""
    sentence, _, listed = message.partition(": ")
    return sentence, sorted(listed.split(", "))


@pytest.mark.parametrize(
    ("program", "act"), [pytest.param(program, act, id=f"{program}: {name}") for program, name, act in CASES]
)
def test_the_plugin_says_what_the_library_says(judge: PolicyJudge, program: str, act: Act) -> None:
    """Of several reasons to refuse a request the plugin gives the first; the others' policies are about others."""
    asked = review(program, act)
    refusals: tuple[Refusal, ...] = policy(program).review(asked)
    found = verdict(judge, asked)
    assert found.allowed is (refusals == ()), found
    if refusals:
        assert (found.code, found.reason) == (403, refusals[0].reason)
        said = found.message.partition(f"'driverwright-{program}' denied request: ")[2]
        assert parts(said) == parts(refusals[0].message)


@pytest.mark.parametrize("user", OTHERS)
def test_nobody_else_is_meant(judge: PolicyJudge, user: str) -> None:
    """Kubelets, controllers and people write Nodes as before."""
    refused = [
        name for program, name, act in CASES if not verdict(judge, review(program, act)._replace(user=user)).allowed
    ]
    assert refused == []


def test_a_message_that_would_be_too_long_is_a_short_one(judge: PolicyJudge) -> None:
    """The plugin drops a longer one than 5 KiB for one that says nothing."""
    many = {f"kubernetes.io/{'x' * 50}-{number}": "1" for number in range(100)}
    found = verdict(judge, review("nfd-worker", Act({"metadata": {"labels": many}}, "")))
    assert found.message.endswith(" denied request: nfd-worker may not change these labels")


def test_a_policy_that_does_not_compile_refuses(newer_kubernetes: NewerKubernetes) -> None:
    """Each request, and says why: nothing above is accepted because the plugin passes over what it cannot read."""
    made, binding = documents("nfd-worker")
    broken = {**made, "spec": {**made["spec"], "variables": [{"name": "x", "expression": "object.nothing.here"}]}}
    with PolicyJudge(newer_kubernetes.path(JUDGE), [broken, binding]) as judge:
        found = verdict(judge, review("nfd-worker", Act({}, "")))
    assert (found.allowed, found.code) == (False, 422)
    assert "compilation failed: ERROR: <input>:1:10: undefined field 'ownNode'" in found.message
