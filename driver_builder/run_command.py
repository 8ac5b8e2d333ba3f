"""The command ``run``: the controller itself, put together and kept running until it is stopped."""

import argparse
import logging
import signal
import threading
import time

from prometheus_client import REGISTRY

from driver_builder import build_logs, commands, config, telemetry
from driver_builder.actions import StartBuild
from driver_builder.build import LogSink
from driver_builder.build_logs import BuildLogs
from driver_builder.builds import BuildQueue, Secrets, Work
from driver_builder.commands import EXIT_OK
from driver_builder.config import Settings
from driver_builder.controller import Controller, Watcher, watchers
from driver_builder.docker_builder import DockerBuilder, docker_engine
from driver_builder.execute import Executor
from driver_builder.feature_rules_sync import FeatureRulesSync
from driver_builder.lease import REQUEST_SECONDS, Lease
from driver_builder.metrics import StateCollector
from driver_builder.observe import Observer
from driver_builder.pipeline import build_and_push
from driver_builder.reconcile import Reconciler
from driver_builder.registries import Registries
from driver_builder.report import Reporter
from driver_builder.telemetry import Heartbeat
from kube_api.client import Client
from kube_api.resources import NODE_FEATURE_RULES

logger = logging.getLogger(__name__)

add_flags = config.add_run_flags


def run(_flags: argparse.Namespace, settings: Settings) -> int:
    """Act on the cluster while the Lease is held; gives the exit code."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    client = Client.from_environment(settings.kubeconfig)
    heartbeat = Heartbeat()
    if settings.port:
        telemetry.serve(settings.port, healthy=heartbeat.is_alive)
    # A client of its own: a request that hangs must not outlive the Lease.
    impatient = Client.from_environment(settings.kubeconfig, timeout_seconds=REQUEST_SECONDS)
    lease = Lease(impatient, namespace=settings.namespaces[0], name=settings.lease_name, identity=settings.identity)
    if not lease.acquire(stop):
        return EXIT_OK
    logger.info("acting as %s in namespaces %s", settings.identity, ", ".join(settings.namespaces))
    lost = threading.Thread(target=_hold, args=(lease, stop), name="lease")
    lost.start()
    try:
        _act(client, settings, stop, heartbeat)
    finally:
        stop.set()
        lost.join()
        lease.release()
    return EXIT_OK


def _hold(lease: Lease, stop: threading.Event) -> None:
    lease.hold(stop)
    # Without the Lease another controller acts: ours ends, its container restarts and waits.
    stop.set()


def _act(client: Client, settings: Settings, stop: threading.Event, heartbeat: Heartbeat) -> None:
    wake = threading.Event()
    plan_settings = commands.plan_settings(settings)
    registries = Registries(client, ca_file=settings.registry_ca_file)
    builds = BuildQueue(
        _build_work(settings, registries),
        wake=wake.set,
        limit=settings.max_builds,
        secrets=_secrets(registries),
        keep_log=BuildLogs(client).keep,
    )
    collector = StateCollector(builds.states)
    REGISTRY.register(collector)
    observer = Observer(
        client,
        registries,
        namespaces=settings.namespaces,
        recipes=plan_settings.recipes,
        builds=builds,
        clock=time.time,
    )
    reconciler = Reconciler(
        observer=observer,
        executor=Executor(client, builds),
        reporter=Reporter(client),
        builds=builds,
        settings=plan_settings,
        planned=collector.saw,
    )
    _follow_feature_rules(client, settings, stop)
    for watcher in watchers(client, namespaces=settings.namespaces, changed=wake.set, stop=stop):
        watcher.start()
    try:
        Controller(reconciler=reconciler, wake=wake, resync_seconds=settings.resync_seconds, heartbeat=heartbeat).run(
            stop
        )
    finally:
        builds.stop()
        REGISTRY.unregister(collector)


def _follow_feature_rules(client: Client, settings: Settings, stop: threading.Event) -> None:
    if not settings.feature_rules:
        return
    sync = FeatureRulesSync(client, namespace=settings.feature_rules_namespace, stop=stop)
    Watcher(client, resource=NODE_FEATURE_RULES, namespace=None, changed=sync.wake.set, stop=stop).start()
    sync.start()


def _build_work(settings: Settings, registries: Registries) -> Work:
    def work(action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        with docker_engine(settings.docker_host) as api:
            known = registries.credentials(action.namespace, action.registry, action.image.host)
            builder = DockerBuilder(api, templates=settings.templates, credentials=known)
            return build_and_push(action, builder=builder, registries=registries, log=log, cancelled=cancelled)

    return work


def _secrets(registries: Registries) -> Secrets:
    def secrets(action: StartBuild) -> tuple[str, ...]:
        known = registries.credentials(action.namespace, action.registry, action.image.host)
        return build_logs.secrets_of(known.values())

    return secrets
