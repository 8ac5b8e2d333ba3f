"""Settings: flags over environment over defaults."""

import argparse
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from driver_builder import config
from driver_builder.api.build_settings import BuilderKind
from driver_builder.base.errors import ConfigurationError
from driver_builder.config import Settings, settings
from driver_builder.model.agent_drains import AgentDrains
from driver_builder.model.defaults import Waits
from driver_builder.model.loader_privileges import LoaderPrivileges
from driver_builder.model.permissions import Permissions
from driver_builder.model.registry_reach import Reach, parse_networks
from driver_builder.model.setting import Group


def parsed(*words: str) -> argparse.Namespace:
    """Parse flags as the ``run`` command does."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    config.add_flags(parser, *Group)
    return parser.parse_args(words)


def test_without_flags_and_environment_there_are_defaults() -> None:
    """Every setting has a default."""
    assert settings(parsed(), {}) == Settings(
        log_level="info",
        log_format="text",
        kubeconfig=None,
        namespaces=("driverwright",),
        builder=BuilderKind.DOCKER,
        docker_host="unix:///var/run/docker.sock",
        docker_cert_path=None,
        loader_image="",
        device_agent_image="",
        device_agent_accounts=frozenset(),
        agent_drains=AgentDrains(),
        dra_driver_accounts=frozenset(),
        loader_privileges=LoaderPrivileges.PRIVILEGED,
        job_image="",
        hand_over_image="",
        job_node_selector={},
        job_tolerations=(),
        job_host_network=False,
        job_work_size="20Gi",
        job_output_size="4Gi",
        build_network="host",
        toolchains=False,
        templates=None,
        registry_ca_file=None,
        registry_reach=Reach(),
        registry_plain_http_passwords=False,
        max_builds=1,
        build_deadline_seconds=1800.0,
        max_build_deadline_seconds=14400.0,
        permissions=Permissions(),
        permission_texts={},
        waits=Waits(resync=60.0, retry_min=30.0, retry_max=3600.0),
        unload_deadline_seconds=600.0,
        max_unavailable_nodes=0,
        identity=os.uname().nodename,
        lease_name="driver-builder",
        feature_rules=True,
        feature_rules_namespace="driverwright",
        node_feature_namespaces=("driverwright",),
        port=8080,
        gc_repositories=(),
        keep_days=90,
        registry_config=None,
    )


CASES = [
    ("kubeconfig", "/flag", "/variable", "/flag", "/variable"),
    ("builder", "job", "docker", BuilderKind.JOB, BuilderKind.DOCKER),
    ("loader_image", "r/a:1", "r/b:1", "r/a:1", "r/b:1"),
    ("device_agent_image", "r/a:1", "r/b:1", "r/a:1", "r/b:1"),
    ("device_agent_accounts", "a/b, a/c.d", "none", frozenset({"a/b", "a/c.d"}), frozenset()),
    ("dra_driver_accounts", "a/b, a/c.d", "none", frozenset({"a/b", "a/c.d"}), frozenset()),
    ("loader_privileges", "least", "privileged", LoaderPrivileges.LEAST, LoaderPrivileges.PRIVILEGED),
    ("job_image", "r/a:1", "r/b:1", "r/a:1", "r/b:1"),
    ("hand_over_image", "r/a:1", "r/b:1", "r/a:1", "r/b:1"),
    ("job_node_selector", "a=b,x/c=", "d=e", {"a": "b", "x/c": ""}, {"d": "e"}),
    (
        "job_tolerations",
        "a=b:NoSchedule, x/c",
        "d:NoExecute",
        (
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
            {"key": "x/c", "operator": "Exists"},
        ),
        ({"key": "d", "operator": "Exists", "effect": "NoExecute"},),
    ),
    ("job_work_size", "1Gi", "2Gi", "1Gi", "2Gi"),
    ("build_network", "none", "builds", "none", "builds"),
    ("docker_host", "unix:///a", "unix:///b", "unix:///a", "unix:///b"),
    ("templates", "/flag", "/variable", Path("/flag"), Path("/variable")),
    ("registry_ca_file", "/flag", "/variable", "/flag", "/variable"),
    ("max_builds", "3", "4", 3, 4),
    ("build_deadline_seconds", "60", "90", 60.0, 90.0),
    ("max_build_deadline_seconds", "600", "900", 600.0, 900.0),
    ("unload_deadline_seconds", "10", "20", 10.0, 20.0),
    ("max_unavailable_nodes", "3", "4", 3, 4),
    ("port", "0", "9000", 0, 9000),
    ("keep_days", "14", "15", 14, 15),
    ("registry_config", "/flag", "/variable", Path("/flag"), Path("/variable")),
    ("waits", "5,1,8", "7.5,2,9", Waits(5.0, 1.0, 8.0), Waits(7.5, 2.0, 9.0)),
]


@pytest.mark.parametrize(
    ("name", "flag", "variable", "by_flag", "by_variable"), [pytest.param(*case, id=case[0]) for case in CASES]
)
def test_a_flag_goes_before_its_variable(name: str, flag: str, variable: str, by_flag: Any, by_variable: Any) -> None:
    """Each flag is also a variable; given both, the flag counts."""
    (row,) = [row for item in fields(Settings) if item.name == name for row in item.metadata["rows"]]
    assert getattr(settings(parsed(), {row.variable: variable}), name) == by_variable
    assert getattr(settings(parsed(row.flag, flag), {row.variable: variable}), name) == by_flag


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        pytest.param(("-n", "a", "-n", "b"), {}, ("a", "b"), id="several flags"),
        pytest.param(("-n", "a"), {"DRIVER_BUILDER_NAMESPACE": "b"}, ("a",), id="flag before variable"),
        pytest.param((), {"DRIVER_BUILDER_NAMESPACE": "a, b,"}, ("a", "b"), id="list in a variable"),
        pytest.param((), {"POD_NAMESPACE": "pod"}, ("pod",), id="the pod's"),
    ],
)
def test_namespaces_come_from_several_places(
    words: tuple[str, ...], environment: dict[str, str], expected: tuple[str, ...]
) -> None:
    """Flags, a variable, the pod's own namespace, in this order."""
    assert settings(parsed(*words), environment).namespaces == expected


def test_the_service_accounts_namespace_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod without POD_NAMESPACE the mounted file says where we are."""
    file = tmp_path / "namespace"
    file.write_text("mounted\n")
    monkeypatch.setattr(config, "_NAMESPACE_FILE", file)
    assert settings(parsed(), {}).namespaces == ("mounted",)


def test_where_registries_may_send_us_is_two_settings() -> None:
    """By flag or variable; a range that is none is named."""
    hosts = frozenset({"tokens.example.com:8443"})
    expected = Reach(forbidden=parse_networks("10.96.0.0/12,fd00::/8"), allowed=hosts)
    words = ("--registry-forbidden-ranges", "10.96.0.0/12,fd00::/8")
    environment = {"DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS": "tokens.example.com:8443"}
    assert settings(parsed(*words), environment).registry_reach == expected
    with pytest.raises(ConfigurationError, match=r"--registry-forbidden-ranges: 'pods'.*: write CIDR,\.\.\."):
        settings(parsed("--registry-forbidden-ranges", "pods"), {})


def test_what_drivers_may_use_is_several_settings() -> None:
    """By flags or variables; nothing is limited without them."""
    words = ("--allowed-registries", "r.io/drivers/*", "--max-build-resources", "cpu=4", "--no-custom-templates")
    environment = {"DRIVER_BUILDER_ALLOWED_SOURCE_HOSTS": "none", "DRIVER_BUILDER_PROTECT_SECRETS": "true"}
    assert settings(parsed(*words), environment).permissions == Permissions(
        registries=("r.io/drivers/*",),
        source_hosts=(),
        max_resources={"cpu": "4"},
        custom_templates=False,
        protected_secrets=True,
    )
    assert settings(parsed(), {"DRIVER_BUILDER_ALLOWED_SOURCE_HOSTS": ""}).permissions == Permissions()


def test_what_device_agents_may_have_drained_is_two_settings() -> None:
    """By flags or variables; nothing without them."""
    words = ("--agent-drain-resources", "nvidia.com/gpu*, nvidia.com/mig-*")
    environment = {"DRIVER_BUILDER_AGENT_DAEMONSETS": "driverwright/device-agent,a/b.c"}
    found = settings(parsed(*words), environment).agent_drains
    assert found == AgentDrains(
        resources=("nvidia.com/gpu*", "nvidia.com/mig-*"), daemon_sets=frozenset({"driverwright/device-agent", "a/b.c"})
    )
    none = {"DRIVER_BUILDER_AGENT_DRAIN_RESOURCES": "none", "DRIVER_BUILDER_AGENT_DAEMONSETS": "none"}
    assert settings(parsed(), none).agent_drains == AgentDrains()


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        pytest.param(
            ("--allowed-registries", "r.io"), {}, r"--allowed-registries: 'r\.io' is not a pattern", id="flag"
        ),
        pytest.param(
            (),
            {"DRIVER_BUILDER_PROTECT_SECRETS": "yes"},
            "DRIVER_BUILDER_PROTECT_SECRETS: 'yes' is neither true",
            id="variable",
        ),
        pytest.param(("--build-network", "container:x"), {}, "--build-network: 'container:x' is not", id="network"),
        pytest.param(("--job-work-size", "lots"), {}, "--job-work-size: 'lots' is not a quantity", id="size"),
        pytest.param(("--job-output-size", "0"), {}, "--job-output-size: '0' is no room", id="no room"),
        pytest.param(
            (), {"DRIVER_BUILDER_LOADER_PRIVILEGES": "none"}, "LOADER_PRIVILEGES: 'none' is not one of", id="privileges"
        ),
        pytest.param(("--allowed-base-images", ""), {}, "--allowed-base-images: '' is not a list", id="nothing"),
        pytest.param(
            ("--agent-drain-resources", "nvidia.com/gpu,gpu"),
            {},
            "--agent-drain-resources: 'gpu' is not an extended",
            id="resource",
        ),
        pytest.param(
            (), {"DRIVER_BUILDER_AGENT_DAEMONSETS": "agent"}, "AGENT_DAEMONSETS: 'agent' is not a DaemonSet", id="set"
        ),
    ],
)
def test_a_malformed_permission_is_refused(words: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    """A limit that is not understood would limit nothing: the program does not start."""
    with pytest.raises(ConfigurationError, match=message):
        settings(parsed(*words), environment)


def test_common_variables_are_understood() -> None:
    """DOCKER_HOST and POD_NAME are what others set; ours go before them."""
    common = {"DOCKER_HOST": "tcp://x", "POD_NAME": "pod-1"}
    assert (settings(parsed(), common).docker_host, settings(parsed(), common).identity) == ("tcp://x", "pod-1")
    ours = {**common, "DRIVER_BUILDER_DOCKER_HOST": "tcp://y", "DRIVER_BUILDER_IDENTITY": "me"}
    assert (settings(parsed(), ours).docker_host, settings(parsed(), ours).identity) == ("tcp://y", "me")


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        pytest.param({"DOCKER_CERT_PATH": "/certs"}, None, id="certificates without a wish for TLS"),
        pytest.param({"DOCKER_CERT_PATH": "/certs", "DOCKER_TLS_VERIFY": "1"}, Path("/certs"), id="both"),
        pytest.param({"DOCKER_TLS_VERIFY": "1"}, Path.home() / ".docker", id="where the docker command looks"),
        pytest.param({"DRIVER_BUILDER_DOCKER_CERT_PATH": "/ours"}, Path("/ours"), id="ours"),
    ],
)
def test_certificates_of_the_engine_are_found_as_by_docker(environment: dict[str, str], path: Path | None) -> None:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH mean what they mean to the docker command."""
    assert settings(parsed(), environment).docker_cert_path == path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("UNLOAD_DEADLINE_SECONDS", "soon", id="a word"),
        pytest.param("UNLOAD_DEADLINE_SECONDS", "0", id="zero seconds"),
        pytest.param("UNLOAD_DEADLINE_SECONDS", "nan", id="not a number"),
        pytest.param("UNLOAD_DEADLINE_SECONDS", "inf", id="forever"),
        pytest.param("BUILD_DEADLINE_SECONDS", "-1", id="negative"),
        pytest.param("MAX_BUILDS", "0", id="no builds"),
        pytest.param("MAX_BUILDS", "1.5", id="one and a half builds"),
        pytest.param("MAX_BUILDS", "1e999", id="more than can be counted"),
        pytest.param("PORT", "http", id="port by name"),
        pytest.param("PORT", "70000", id="port too large"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str) -> None:
    """The message names the variable and its value."""
    with pytest.raises(ConfigurationError) as caught:
        settings(parsed(), {f"DRIVER_BUILDER_{name}": value})
    assert f"DRIVER_BUILDER_{name}: {value!r}" in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--unload-deadline-seconds", "nan"), id="not a number"),
        pytest.param(("--unload-deadline-seconds", "0"), id="zero seconds"),
        pytest.param(("--max-builds", "0"), id="no builds"),
        pytest.param(("--max-builds", ""), id="nothing"),
        pytest.param(("--max-builds", "1e999"), id="more than can be counted"),
        pytest.param(("--port", "-1"), id="negative port"),
        pytest.param(("--builder", "kaniko"), id="no builder"),
        pytest.param(("--log-level", "loud"), id="no level"),
    ],
)
def test_a_wrong_flag_is_named(words: tuple[str, ...]) -> None:
    """The message names the flag and its value."""
    flag, value = words
    with pytest.raises(ConfigurationError, match=rf"^{flag}: '{value}' is "):
        settings(parsed(*words), {})


@pytest.mark.parametrize(
    ("arguments", "environment", "is_on"),
    [
        pytest.param(["--no-feature-rules"], {}, False, id="flag"),
        pytest.param([], {"DRIVER_BUILDER_NO_FEATURE_RULES": "true"}, False, id="environment"),
        pytest.param([], {"DRIVER_BUILDER_NO_FEATURE_RULES": "false"}, True, id="environment says no"),
    ],
)
def test_feature_rules_can_be_left_to_others(arguments: list[str], environment: dict[str, str], is_on: bool) -> None:
    """A cluster that runs nfd-master for its rules keeps it."""
    assert settings(parsed(*arguments), environment).feature_rules is is_on


@pytest.mark.parametrize(
    ("arguments", "environment", "is_on"),
    [
        pytest.param(["--toolchains"], {}, True, id="flag"),
        pytest.param([], {"DRIVER_BUILDER_TOOLCHAINS": "true"}, True, id="environment"),
        pytest.param(["--toolchains", "--templates", "mine"], {}, False, id="templates of the user's own"),
    ],
)
def test_toolchains_are_for_our_own_templates(arguments: list[str], environment: dict[str, str], is_on: bool) -> None:
    """What stages of another Dockerfile are called, and what is in them, is not known."""
    assert settings(parsed(*arguments), environment).toolchains is is_on


@pytest.mark.parametrize(
    ("arguments", "environment", "namespaces"),
    [
        pytest.param([], {"POD_NAMESPACE": "drivers"}, ("drivers",), id="the pod's"),
        pytest.param(["--node-feature-namespaces=gpu-operator, b,gpu-operator"], {}, ("gpu-operator", "b"), id="flag"),
        pytest.param([], {"DRIVER_BUILDER_NODE_FEATURE_NAMESPACES": "b,a"}, ("b", "a"), id="environment, in its order"),
        pytest.param(["--node-feature-namespaces=none"], {"POD_NAMESPACE": "drivers"}, (), id="none"),
    ],
)
def test_namespaces_of_node_features_are_in_their_order(
    arguments: list[str], environment: dict[str, str], namespaces: tuple[str, ...]
) -> None:
    """The first one comes first; each counts once."""
    assert settings(parsed(*arguments), environment).node_feature_namespaces == namespaces


@pytest.mark.parametrize("text", ["a b", "A", "a,,b", "*", "a,none/", "-a", "x" * 64])
def test_a_namespace_of_node_features_that_is_none_is_refused(text: str) -> None:
    """The message names the flag, the value and what to write."""
    with pytest.raises(ConfigurationError, match=r"--node-feature-namespaces: .* write NAME,\.\.\. or none"):
        settings(parsed(f"--node-feature-namespaces={text}"), {})


@pytest.mark.parametrize("text", ["a b", "=x", "a:Never", "a:", ":NoSchedule", "a=b c"])
def test_a_toleration_of_no_taint_is_refused(text: str) -> None:
    """The message says how a taint is written."""
    with pytest.raises(ConfigurationError, match=r"DRIVER_BUILDER_JOB_TOLERATIONS: .* write KEY\[=VALUE\]\[:EFFECT\],"):
        settings(parsed(), {"DRIVER_BUILDER_JOB_TOLERATIONS": text})


RETIRED = [
    pytest.param("docker-cert-path", "/ours", "docker_cert_path", Path("/ours"), id="certificates"),
    pytest.param("feature-rules-namespace", "nfd", "feature_rules_namespace", "nfd", id="namespace of workers"),
    pytest.param("identity", "me", "identity", "me", id="holder of the Lease"),
    pytest.param("job-output-size", "9Gi", "job_output_size", "9Gi", id="room of a result"),
    pytest.param("lease-name", "mine", "lease_name", "mine", id="Lease"),
    pytest.param("resync-seconds", "soon", "waits", Waits(), id="resync, without effect"),
    pytest.param("retry-min-seconds", "5", "waits", Waits(), id="first retry, without effect"),
    pytest.param("retry-max-seconds", "60", "waits", Waits(), id="retries, without effect"),
]


@pytest.mark.parametrize(("name", "value", "of", "expected"), RETIRED)
def test_a_retired_setting_is_accepted_with_a_warning(name: str, value: str, of: str, expected: Any) -> None:
    """By flag and variable; it applies for a last time where a Deployment would not work without it."""
    variable = f"DRIVER_BUILDER_{name.upper().replace('-', '_')}"
    for place, words, environment in (
        (f"--{name}", (f"--{name}={value}",), {}),
        (variable, (), {variable: value}),
    ):
        assert getattr(settings(parsed(*words), environment), of) == expected
        (warning,) = config.warnings(parsed(*words), environment)
        effect = "ignored" if expected == Waits() else "applies for the last time in this version"
        assert warning.startswith(f"{place} is retired since 0.2, and {effect}: ")
    assert list(config.warnings(parsed(), {})) == []


def test_each_retired_setting_is_in_the_table_above() -> None:
    """None is accepted that no test knows."""
    retired = {row.flag for row in config.SETTINGS if row.retired}
    assert retired == {f"--{case.values[0]}" for case in RETIRED}


@pytest.mark.parametrize(
    ("work", "output"), [("20Gi", "4Gi"), ("1Gi", "4Gi"), ("100Gi", str(20 << 30)), ("50G", str(10**10))]
)
def test_the_result_of_a_build_may_have_a_fifth_of_its_room(work: str, output: str) -> None:
    """And never less than by default."""
    assert settings(parsed("--job-work-size", work), {}).job_output_size == output
