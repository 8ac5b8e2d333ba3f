"""All checks of ``doctor``, in their order: each reads what it needs, and one that cannot be made stops no other.

Place in the flow: ``doctor`` prints the findings as they come; ``collect`` makes a report of what was read.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from driver_builder import config
from driver_builder.api import driver_container
from driver_builder.api.build_settings import BuilderKind
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.boundary import contained
from driver_builder.base.check_result import CheckResult, failed, unknown, warning
from driver_builder.base.errors import ConfigurationError, InternalError
from driver_builder.builds.job.job_manifest import SERVICE_ACCOUNT
from driver_builder.checks import (
    check_builders,
    check_controller,
    check_definitions,
    check_dra,
    check_drivers,
    check_registries,
    check_rights,
    check_server,
    check_workers,
)
from driver_builder.checks.check_builders import JobSetup
from driver_builder.checks.check_registries import MAX_REGISTRIES, RegistryPlace
from driver_builder.checks.check_rights import Scope
from driver_builder.checks.deployed import DEPLOYMENT, WORKERS, Command, command_of, container_of
from driver_builder.checks.finding import Unread, not_read
from driver_builder.cli import common
from driver_builder.cli.examination import ask_engine, ask_registries, manifests
from driver_builder.cli.examination.cluster_reader import AT_ONCE, ClusterReader, attempt
from driver_builder.cluster import resource_api
from driver_builder.config import DEFAULT_DOCKER_HOST, Settings
from driver_builder.model.server_version import minor_of
from driver_builder.model.setting import Group
from driver_builder.objects.tolerations import of_pending
from driver_builder.snapshot.inventory import Node, read_node
from kube_api.client import Client
from kube_api.errors import KubeApiError
from kube_api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    LEASES,
    NAMESPACES,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    NODES,
    SERVICE_ACCOUNTS,
    Resource,
)

Json = dict[str, Any]
Progress = Callable[[str], None]
Value = TypeVar("Value")

HOME = "driverwright"
"""The namespace of the controller in ``deploy/``."""
QUICK_SECONDS = 5.0
"""Timeout of what may hang behind the API server: the metrics of a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person gave on the command line: ``own`` is how this process connects.

    ``namespaces`` are those that were named; ``place`` a repository without a driver; ``account`` the controller's
    service account, as namespace and name, None for the one of its Deployment.
    """

    own: Settings
    namespaces: tuple[str, ...] = ()
    place: RegistryPlace | None = None
    account: tuple[str, str] | None = None


class Examination:
    """One run of the checks. What they read is kept for a report."""

    def __init__(self, client: Client, options: Options, *, progress: Progress, quick: Client) -> None:
        self.reader = ClusterReader(client)
        self.options = options
        self.version: Json = {}
        self.command = Command()
        self.settings = options.own
        """As the controller has them, where its Deployment can be read."""
        self.home = options.own.namespaces[0]
        """The controller's namespace."""
        self.namespaces = options.own.namespaces
        self.deployment: Json | Unread | None = None
        self.drivers: tuple[DriverContainer, ...] = ()
        self.registries = common.registries(options.own, client)
        self._client = client
        self._quick = ClusterReader(quick)
        self._progress = progress
        self._nodes: tuple[Node, ...] | Unread = ()

    @property
    def effective(self) -> Settings:
        """The controller's settings, with the connections and files of this process."""
        own = self.options.own
        return replace(
            self.settings,
            kubeconfig=own.kubeconfig,
            namespaces=self.namespaces,
            templates=own.templates,
            registry_ca_file=own.registry_ca_file,
        )

    def findings(self) -> Iterator[CheckResult]:
        """Make every check; without an API server there is nothing to check but it."""
        self._progress("the API server")
        try:
            self.version, date = self._client.get_dated("/version")
        except KubeApiError as error:
            yield failed("server", str(error), "Correct --kubeconfig, or the network between here and the API server")
            return
        yield check_server.check_version(self.version)
        yield check_server.check_clock(date, time.time())
        sections: tuple[tuple[str, Callable[[], Iterator[CheckResult]]], ...] = (
            ("controller", self._find_controller),
            ("namespaces", self._check_namespaces),
            ("definitions", self._check_definitions),
            ("drivers", self._read_drivers),
            ("rights", self._check_rights),
            ("controller", self._check_controller),
            ("workers", self._check_workers),
            ("registry", self._check_registries),
            ("builders", self._check_builders),
        )
        for name, section in sections:
            yield from apart(name, section, partial(_not_made, name))

    def _find_controller(self) -> Iterator[CheckResult]:
        """Read the Deployment, and from it how the controller is set up."""
        self._progress("the controller")
        for namespace in dict.fromkeys((*self.options.own.namespaces, HOME)):
            found = self.reader.get(DEPLOYMENTS, DEPLOYMENT, namespace)
            self.deployment = self.deployment or found
            if isinstance(found, dict):
                self.home, self.deployment = namespace, found
                break
        if isinstance(self.deployment, dict):
            self.command = command_of(self.deployment)
            where = f"Correct Deployment {self.home}/{DEPLOYMENT}"
            try:
                flags = _flags_of(self.command)
                self.settings = config.settings(flags, self.command.environment)
            except ConfigurationError as error:
                yield failed("controller", f"its settings are wrong: {error}", where)
            else:
                retired = config.warnings(flags, self.command.environment)
                yield from (warning("controller", words, where) for words in retired)
                self.namespaces = self.settings.namespaces
                yield from self._not_watched()
                self.registries = common.registries(self.effective, self._client)

    def _not_watched(self) -> Iterator[CheckResult]:
        others = [name for name in self.options.namespaces if name not in self.namespaces and name != self.home]
        for name in others:
            yield failed(
                "namespaces",
                f"the controller does not watch {name}",
                f"Add --namespace {name} to Deployment {DEPLOYMENT}",
            )
        self.namespaces = (*self.namespaces, *others)

    def _check_namespaces(self) -> Iterator[CheckResult]:
        yield from check_server.check_namespaces({name: self.reader.get(NAMESPACES, name) for name in self.namespaces})

    def _check_definitions(self) -> Iterator[CheckResult]:
        self._progress("custom resource definitions")
        shipped, minor = manifests.definition(DRIVER_CONTAINERS), minor_of(self.version)
        yield check_definitions.check_own(DRIVER_CONTAINERS, self._definition(DRIVER_CONTAINERS), shipped, minor)
        foreign = (
            (NODE_FEATURE_RULES, self.settings.feature_rules, "workers get no NodeFeatureRules", "--no-feature-rules"),
            (NODE_FEATURES, self.settings.node_feature_namespaces, "no other program can set labels by NodeFeatures",
             "--node-feature-namespaces=none"),
        )  # fmt: skip
        for resource, is_used, without, flag in foreign:
            if is_used:
                found = self._definition(resource)
                yield check_definitions.check_foreign(resource, found, without=without, flag=flag)

    def _definition(self, resource: Resource) -> Json | Unread | None:
        return self.reader.get(CUSTOM_RESOURCE_DEFINITIONS, f"{resource.plural}.{resource.group}")

    def _check_rights(self) -> Iterator[CheckResult]:
        self._progress("permissions")
        scope = Scope(
            namespaces=self.namespaces,
            lease_name=self.settings.lease_name,
            rules_namespace=self.settings.feature_rules_namespace if self.settings.feature_rules else "",
            node_feature_namespaces=self.settings.node_feature_namespaces,
            uses_jobs=self._uses(BuilderKind.JOB),
        )
        needed = check_rights.rights(manifests.roles(), scope)
        account = self.options.account or (self.home, _account_of(self.deployment))
        asked: tuple[str, str] | None = account
        who = f"service account {'/'.join(account)}"
        first = self.reader.reviews(needed[:1], account)
        if self.options.account is None and any(isinstance(answer, Unread) for answer in first.values()):
            # Who may not ask about others may still ask about itself: in the controller's pod that is the same.
            asked, who = None, "the identity that doctor runs with"
        answers = self.reader.reviews(needed, asked)
        yield from check_rights.check_rights(answers, who)
        specs = {item.key: item.spec for item in self.drivers if isinstance(item.spec, DriverSpec)}
        draining = {key: spec.rollout.drain for key, spec in specs.items() if spec.rollout.drain}
        if draining:
            by_claims = any(drain.dra_drivers for drain in draining.values())
            needed = check_rights.rights(manifests.drain_roles(), scope)
            needed = tuple(right for right in needed if by_claims or not right.is_for_claims)
            yield check_rights.check_drain(self.reader.reviews(needed, asked), who, draining)
        if drivers := check_dra.with_dra(self.drivers):
            yield check_dra.check_api(drivers, self._without_slices())
            needed = check_rights.rights(manifests.dra_roles(), scope)
            yield check_dra.check_rights_of_dra(self.reader.reviews(needed, asked), who, drivers)
            yield from check_dra.check_accounts(drivers, self.settings.dra_driver_accounts)

    def _without_slices(self) -> str | Unread:
        versions = attempt(lambda: resource_api.served_versions(self._client))
        if isinstance(versions, Unread):
            return versions
        found = versions or ()
        return "" if resource_api.VERSION in found else resource_api.without_version(found)

    def _check_controller(self) -> Iterator[CheckResult]:
        self._progress("the controller's pods")
        pods = self.reader.pods_of(DEPLOYMENT, self.home)
        where = dict.fromkeys((*self.options.own.namespaces, HOME))
        yield from check_controller.check_deployment(self.deployment, pods, namespaces=where)
        if isinstance(self.deployment, dict):
            yield from check_controller.check_setup(loader_image=self.settings.loader_image)
            running = () if isinstance(pods, Unread) else self._quick.versions(pods)
            yield check_controller.check_version("controller", common.own_version(), running, self.command.image)
            name = f"{self.settings.namespaces[0]}/{self.settings.lease_name}"
            lease = self.reader.get(LEASES, self.settings.lease_name, self.settings.namespaces[0])
            yield check_controller.check_lease(lease, time.time(), name=name)

    def _check_workers(self) -> Iterator[CheckResult]:
        self._progress("nfd-worker and the labels of nodes")
        namespace = self.settings.feature_rules_namespace
        found, pods = self.reader.get(DAEMON_SETS, WORKERS, namespace), self.reader.pods_of(WORKERS, namespace)
        yield from check_workers.check_workers(found, pods, namespace=namespace)
        if isinstance(found, dict):
            ready = () if isinstance(pods, Unread) else [pod for pod in pods if check_workers.is_ready(pod)]
            image = str(container_of(found, WORKERS).get("image", ""))
            yield check_controller.check_version("workers", common.own_version(), self._quick.versions(ready), image)
        self._nodes = self.reader.items(NODES, reduce=read_node)
        yield from check_workers.check_labels(self._nodes, self.drivers, namespace=namespace)

    def _check_registries(self) -> Iterator[CheckResult]:
        places = dict(check_registries.places(self.drivers))
        if self.options.place is not None:
            places.setdefault(self.options.place, ())
        asked = dict(list(places.items())[:MAX_REGISTRIES])
        self._progress(f"{len(asked)} registries")
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = threads.map(lambda place: ask_registries.ask(self.registries, place), asked)
            for (place, drivers), answer in zip(asked.items(), answers, strict=True):
                if isinstance(answer, Unread):
                    yield not_read("registry", f"{place.repository}", answer)
                else:
                    yield check_registries.check_registry(place, drivers, answer)
        yield from check_registries.check_no_places(len(places))
        if self.settings.registry_ca_file and not self.options.own.registry_ca_file:
            yield unknown(
                "registry",
                f"the controller trusts the CA in {self.settings.registry_ca_file}, which was not used here",
                "Give that file here as well: --registry-ca-file",
            )

    def _check_builders(self) -> Iterator[CheckResult]:
        if self._uses(BuilderKind.DOCKER):
            address = self.options.own.docker_host
            if address == DEFAULT_DOCKER_HOST:
                controller = f"-n {self.home} deployment/{DEPLOYMENT}"
                yield check_builders.engine_not_asked(self.settings.docker_host, controller)
            else:
                self._progress(f"the engine at {address}")
                yield check_builders.check_engine(address, ask_engine.ask(address, self.options.own.docker_cert_path))
        if self._uses(BuilderKind.JOB):
            accounts = {name: self.reader.get(SERVICE_ACCOUNTS, SERVICE_ACCOUNT, name) for name in self.namespaces}
            setup = JobSetup(
                image=self.settings.job_image,
                hand_over_image=self.settings.hand_over_image,
                node_selector=self.settings.job_node_selector,
                tolerations=(*self.settings.job_tolerations, *of_pending(self.drivers)),
                accounts=accounts,
            )
            yield from check_builders.check_jobs(setup, self._nodes)

    def _read_drivers(self) -> Iterator[CheckResult]:
        unread = False
        for name in self.namespaces:
            found = self.reader.items(DRIVER_CONTAINERS, name, reduce=driver_container.parse)
            if isinstance(found, Unread):
                unread = True
                yield not_read("drivers", f"DriverContainers of namespace {name}", found)
            else:
                self.drivers += found
        if self.drivers or not unread:
            yield from check_drivers.check_drivers(self.drivers)

    def _uses(self, kind: BuilderKind) -> bool:
        """Return whether builds of this kind are the controller's default, or a driver's choice."""
        chosen = {driver.spec.build.builder for driver in self.drivers if isinstance(driver.spec, DriverSpec)}
        return self.settings.builder is kind or kind in chosen


def apart(
    name: str, part: Callable[[], Iterator[Value]], instead: Callable[[InternalError], tuple[Value, ...]]
) -> tuple[Value, ...]:
    """Do one part, or what stands in for it after a bug of ours, which stops no other part."""
    return contained("check", name, lambda: tuple(part()), instead, passing=())


def _not_made(check: str, error: InternalError) -> tuple[CheckResult, ...]:
    return (unknown(check, str(error), "Report it, with the traceback above"),)


def _account_of(deployment: Json | Unread | None) -> str:
    if not isinstance(deployment, dict):
        return DEPLOYMENT
    return str(deployment["spec"]["template"]["spec"].get("serviceAccountName") or "default")


def _flags_of(command: Command) -> argparse.Namespace:
    """Read the controller's flags as the controller does.

    Raises:
        ConfigurationError: one has no value.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    config.add_flags(parser, Group.CONNECTION, *config.RUN)
    try:
        # Flags of another version are left out.
        flags, _ = parser.parse_known_args(list(command.arguments))
    except argparse.ArgumentError as error:
        raise ConfigurationError(str(error)) from error
    return flags
