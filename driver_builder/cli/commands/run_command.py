"""The command ``run``: the controller itself, put together and run until it is stopped."""

import argparse
import logging
import signal
import threading
import time
from collections.abc import Callable
from functools import partial

from prometheus_client import REGISTRY

from driver_builder import config
from driver_builder.api.build_settings import BuilderKind
from driver_builder.base import telemetry
from driver_builder.base.errors import ConfigurationError
from driver_builder.base.telemetry import Heartbeat
from driver_builder.builds import build_logs
from driver_builder.builds.build_logs import BuildLogs
from driver_builder.builds.build_queue import BuildQueue, Secrets, Work
from driver_builder.builds.build_references import proxy_password, read_build_ca
from driver_builder.builds.log_artifacts import LogArtifacts
from driver_builder.builds.pipeline import toolchain_queue
from driver_builder.builds.pipeline.toolchain_queue import ToolchainQueue
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.cli import common
from driver_builder.cli.builder_choice import builder_for, secret_values
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.image_answers import ImageAnswers
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.named_contents import SECRET_SECONDS
from driver_builder.cluster.observe import Observer
from driver_builder.config import Settings
from driver_builder.controller import jobs
from driver_builder.controller.controller import Controller
from driver_builder.controller.execute import Executor
from driver_builder.controller.feature_rules_sync import FeatureRulesSync
from driver_builder.controller.lease import REQUEST_SECONDS, Lease
from driver_builder.controller.metrics import CacheCollector, StateCollector
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler
from driver_builder.controller.report import Reporter
from driver_builder.controller.supervisor import Supervisor
from driver_builder.model.build import LogSink
from driver_builder.model.build_proxy import variables
from driver_builder.node_features.sync import NodeFeaturesSync
from driver_builder.nodes.changes import DiscoverKernels, StartBuild
from driver_builder.prebuild import discovery_queue
from driver_builder.prebuild.discovery_queue import DiscoveryQueue
from driver_builder.prebuild.job_kernel_discovery import DiscoveryPod, JobKernelDiscovery
from driver_builder.registry.registry_access import Registries
from driver_builder.retention.recorder import ImageRecorder
from driver_builder.snapshot.node_pods import EvictionRefused
from kube_api.client import Client
from kube_api.log_lines import follow_signals

logger = logging.getLogger(__name__)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``run``."""
    config.add_flags(parser, *config.RUN)


def run(_flags: argparse.Namespace, settings: Settings) -> int:
    """Act on the cluster while the Lease is held; returns the exit code.

    Raises:
        ConfigurationError: the image of the loader is missing, which every driver pod needs.
    """
    if not settings.loader_image:
        raise ConfigurationError(
            "driver pods copy their loader from an image: set --loader-image or DRIVER_BUILDER_LOADER_IMAGE"
        )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    follow_signals()
    client = Client.from_environment(settings.kubeconfig)
    heartbeat, supervisor = Heartbeat(), Supervisor(stop)
    jobs.pause_all()
    if settings.port:
        telemetry.serve(settings.port, healthy=lambda: heartbeat.is_alive() and supervisor.is_alive())
    # Its own client: a request that hangs must not outlive the Lease.
    impatient = Client.from_environment(settings.kubeconfig, timeout_seconds=REQUEST_SECONDS)
    lease = Lease(impatient, namespace=settings.namespaces[0], name=settings.lease_name, identity=settings.identity)
    if not lease.acquire(stop):
        return EXIT_OK
    logger.info("acting as %s in namespaces %s", settings.identity, ", ".join(settings.namespaces))
    holding = supervisor.start("lease", lambda: _hold(lease, stop))
    try:
        _act(client, settings, stop, heartbeat, supervisor)
    finally:
        stop.set()
        holding.join()
        lease.release()
    return EXIT_FAILED if supervisor.broken else EXIT_OK


def _hold(lease: Lease, stop: threading.Event) -> None:
    lease.hold(stop)
    # Without the Lease another controller acts: this one ends, its container restarts and waits.
    stop.set()


def _act(
    client: Client, settings: Settings, stop: threading.Event, heartbeat: Heartbeat, supervisor: Supervisor
) -> None:
    wake = threading.Event()
    plan_settings = common.plan_settings(settings)
    registries = common.registries(settings, client, account_seconds=SECRET_SECONDS)
    answers = ImageAnswers(registries, wake=wake.set)
    recorder = ImageRecorder(client, namespaces=settings.namespaces, versions=plan_settings.template_versions)
    toolchains = ToolchainQueue(
        _toolchain_work(client, settings, registries, recorder), secrets=_secrets(client, registries)
    )
    builds = BuildQueue(
        _build_work(client, settings, registries, answers, stop, recorder=recorder, built=toolchains.submit),
        wake=wake.set,
        limit=settings.max_builds,
        secrets=_secrets(client, registries),
        keep_log=BuildLogs(client).keep,
        attach_log=LogArtifacts(registries).attach,
    )
    discoveries = DiscoveryQueue(_discovery_work(client, settings, registries), wake=wake.set)
    collector = StateCollector(builds.states)
    REGISTRY.register(collector)
    cache = ClusterCache(client, namespaces=settings.namespaces)
    writes = KeptWrites(client, cache)
    in_cache = CacheCollector(cache)
    REGISTRY.register(in_cache)
    refused_evictions: dict[str, EvictionRefused] = {}
    observer = Observer(
        client,
        cache=cache,
        builds=builds,
        discoveries=discoveries,
        clock=time.time,
        secret_seconds=SECRET_SECONDS,
        refused_evictions=refused_evictions,
        accounts=plan_settings.plugin_accounts,
        agent_drains=settings.agent_drains,
    )
    reconciler = Reconciler(
        observer=observer,
        images=ImageReader(
            answers, plan_settings.template_versions, pushed=registries.pushed, news=lambda: answers.news
        ),
        executor=Executor(writes, builds, discoveries, is_stopping=stop.is_set, refused_evictions=refused_evictions),
        reporter=Reporter(writes, is_stopping=stop.is_set),
        builds=builds,
        settings=plan_settings,
        planned=collector.saw,
        needed=recorder.saw,
        is_stopping=stop.is_set,
        changes=lambda: writes.changes,
        again=wake.set,
    )
    labels = NodeFeaturesSync(client, cache, namespaces=settings.node_feature_namespaces, stop=stop, written=wake.set)
    rules = FeatureRulesSync(client, namespace=settings.feature_rules_namespace, stop=stop)
    parts = jobs.Parts(
        resync_seconds=settings.waits.resync,
        wake=wake.set,
        record_images=recorder.record,
        forget_answers=answers.prune,
        compare_labels=labels.wake.set,
        compare_rules=rules.wake.set if settings.feature_rules else None,
    )
    writers = [
        # Also where nobody may set any label: those of before go.
        supervisor.start(labels.name, labels.run),
        supervisor.start(jobs.NAME, partial(jobs.run_jobs, parts, stop)),
    ]
    for item in labels.namespaces:
        supervisor.start(item.follower.name, partial(item.follower.run, stop, lambda: None))
    if settings.feature_rules:
        supervisor.start(rules.rules.name, partial(rules.rules.run, stop, rules.wake.set))
        writers.append(supervisor.start(rules.name, rules.run))
    for follower in cache.followers:
        supervisor.start(follower.name, partial(follower.run, stop, wake.set))
    supervisor.start(cache.slices.name, partial(cache.slices.run, stop, wake.set))
    try:
        Controller(reconciler=reconciler, wake=wake, heartbeat=heartbeat).run(stop)
    finally:
        stop.set()
        answers.stop()
        # First of the queues: it ends without waiting, and takes nothing more from builds that end.
        toolchains.stop()
        builds.stop()
        discoveries.stop()
        # Before the Lease is given back: the next controller writes the same ConfigMap, and the same nodes.
        for writer in writers:
            writer.join()
        REGISTRY.unregister(collector)
        REGISTRY.unregister(in_cache)


def _build_work(
    client: Client,
    settings: Settings,
    registries: Registries,
    answers: ImageAnswers,
    stop: threading.Event,
    *,
    recorder: ImageRecorder,
    built: Callable[[StartBuild], None],
) -> Work:
    keys = SigningSecrets(client)

    def work(action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        # What reads, verifies and signs images needs 10 MiB: a controller has it from its first build on.
        from driver_builder.builds.pipeline.pipeline import build_and_push  # noqa: PLC0415 - see above

        try:
            with builder_for(action, settings, client=client, registries=registries, is_leaving=stop.is_set) as builder:
                digest = build_and_push(
                    action,
                    builder=builder,
                    registries=registries,
                    secrets=keys,
                    log=log,
                    cancelled=cancelled,
                    pushed=partial(recorder.pushed, action),
                    use_toolchain=settings.toolchains,
                )
            if settings.toolchains:
                built(action)
            return digest
        finally:
            # Before the queue says that the build has ended: an absence from before would start it again.
            answers.forget(action.image)

    return work


def _toolchain_work(
    client: Client, settings: Settings, registries: Registries, recorder: ImageRecorder
) -> toolchain_queue.Work:
    keys = SigningSecrets(client)

    def work(action: StartBuild, log: LogSink, cancelled: threading.Event) -> None:
        from driver_builder.builds.pipeline.toolchain_image import keep_toolchain  # noqa: PLC0415 - as in _build_work

        with builder_for(action, settings, client=client, registries=registries) as builder:
            keep_toolchain(
                action,
                builder=builder,
                registries=registries,
                secrets=keys,
                log=log,
                cancelled=cancelled,
                pushed=recorder.pushed,
            )

    return work


def _discovery_work(client: Client, settings: Settings, registries: Registries) -> discovery_queue.Work:
    def work(action: DiscoverKernels, cancelled: threading.Event) -> tuple[str, ...]:
        if (action.builder or settings.builder) is BuilderKind.JOB:
            pod = DiscoveryPod(
                pull_secret=action.registry.secret,
                node_selector=settings.job_node_selector,
                tolerations=settings.job_tolerations,
                host_network=settings.job_host_network,
                proxy=action.proxy,
                ca=action.ca_config_map,
            )
            by_job = JobKernelDiscovery(client, action.namespace, pod)
            return by_job.discover(action.repository, cancelled=cancelled)
        # The SDK of engines needs 8 MiB, and only those who build with an engine have it.
        from driver_builder.builds.docker.docker_engine import docker_engine  # noqa: PLC0415 - see above
        from driver_builder.prebuild.docker_kernel_discovery import DockerKernelDiscovery  # noqa: PLC0415 - see above

        with docker_engine(settings.docker_host, certificates=settings.docker_cert_path) as api:
            known = registries.credentials(action.namespace, action.registry)
            password = proxy_password(action.namespace, action.proxy, client)
            discovery = DockerKernelDiscovery(
                api,
                credentials=known,
                network=settings.build_network,
                proxy=variables(action.proxy, password) if action.proxy else None,
                ca=read_build_ca(client, action.namespace, action.ca_config_map),
            )
            return discovery.discover(action.repository, cancelled=cancelled)

    return jobs.measured(jobs.KERNEL_DISCOVERY)(work)


def _secrets(client: Client, registries: Registries) -> Secrets:
    def secrets(action: StartBuild) -> tuple[str, ...]:
        known = registries.credentials(action.namespace, action.registry, action.image.host)
        keys = SigningSecrets(client).texts(action.namespace, action.request)
        return (*build_logs.secrets_of(known.values()), *secret_values(action, client), *keys)

    return secrets
