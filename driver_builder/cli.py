"""The command line: flags, logging, signals and exit codes. The only module that may end the process."""

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

from driver_builder import config, output, telemetry, templates
from driver_builder.actions import StartBuild
from driver_builder.build import LogSink
from driver_builder.builds import BuildQueue, Work
from driver_builder.config import Settings
from driver_builder.controller import Controller, Watcher, watchers
from driver_builder.desired import Recipes
from driver_builder.docker_builder import DockerBuilder, docker_engine
from driver_builder.errors import ConfigurationError, DriverBuilderError
from driver_builder.execute import Executor
from driver_builder.feature_rules_sync import FeatureRulesSync
from driver_builder.lease import REQUEST_SECONDS, Lease
from driver_builder.observe import Observer
from driver_builder.pipeline import build_and_push
from driver_builder.plan import Plan, PlanSettings, plan
from driver_builder.reconcile import Reconciler
from driver_builder.registries import Registries
from driver_builder.report import Reporter
from driver_builder.telemetry import Heartbeat
from kube_api.client import Client
from kube_api.errors import KubeApiError
from kube_api.resources import DRIVER_CONTAINERS, NODE_FEATURE_RULES

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit code: 0 done, 1 failed, 2 wrong usage or settings."""
    parser = _parser()
    flags = parser.parse_args(argv)
    logging.basicConfig(
        level=flags.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    try:
        code: int = flags.command(flags, config.settings(flags))
    except ConfigurationError as error:
        print(f"driver-builder: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (DriverBuilderError, KubeApiError) as error:
        print(f"driver-builder: {error}", file=sys.stderr)
        return EXIT_FAILED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="driver-builder",
        description="Keeps a driver image built, verified and rolled out for every kernel the nodes run.",
        epilog="Every flag is also an environment variable: DRIVER_BUILDER_ and the flag's name in capitals.",
    )
    parser.add_argument("--version", action="version", version=f"driver-builder {version('driverwright')}")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _command(commands, "run", _run, "run the controller until it is stopped", config.add_run_flags)
    _command(commands, "plan", _plan, "show what the controller would do next, and do nothing", _output_flag)
    _command(commands, "status", _status, "show every driver and how far each of its targets is", _status_flags)
    return parser


def _command(
    commands: Any,
    name: str,
    function: Callable[[argparse.Namespace, Settings], int],
    text: str,
    add_flags: Callable[[argparse.ArgumentParser], None],
) -> None:
    parser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    config.add_connection_flags(parser)
    add_flags(parser)
    parser.set_defaults(command=function)


def _output_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=output.FORMATS, default="table", help="how to print (default table)")


def _status_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("driver", nargs="?", metavar="DRIVER", help="only this DriverContainer")
    _output_flag(parser)


def _plan_settings(settings: Settings) -> PlanSettings:
    recipes = Recipes(
        digests=templates.recipe_digests(settings.templates), deadline_seconds=settings.build_deadline_seconds
    )
    return PlanSettings(
        recipes=recipes,
        retry_min_seconds=settings.retry_min_seconds,
        retry_max_seconds=settings.retry_max_seconds,
    )


def _run(_flags: argparse.Namespace, settings: Settings) -> int:
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
    plan_settings = _plan_settings(settings)
    registries = Registries(client, ca_file=settings.registry_ca_file)
    builds = BuildQueue(_build_work(settings, registries), wake=wake.set, limit=settings.max_builds)
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


def _follow_feature_rules(client: Client, settings: Settings, stop: threading.Event) -> None:
    if not settings.feature_rules:
        return
    sync = FeatureRulesSync(client, namespace=settings.feature_rules_namespace, stop=stop)
    Watcher(client, resource=NODE_FEATURE_RULES, namespace=None, changed=sync.wake.set, stop=stop).start()
    sync.start()


def _next_plan(settings: Settings) -> Plan:
    client = Client.from_environment(settings.kubeconfig)
    plan_settings = _plan_settings(settings)
    observer = Observer(
        client,
        Registries(client, ca_file=settings.registry_ca_file),
        namespaces=settings.namespaces,
        recipes=plan_settings.recipes,
        clock=time.time,
    )
    return plan(observer.observe(), plan_settings)


def _plan(flags: argparse.Namespace, settings: Settings) -> int:
    steps = [
        (part.driver.key, type(action).__name__, str(action))
        for part in _next_plan(settings).drivers
        for action in part.actions
    ]
    if flags.output == "table":
        print(output.table(("DRIVER", "ACTION", "WHAT"), steps) if steps else "nothing to do")
        return EXIT_OK
    print(output.document([dict(zip(("driver", "action", "what"), step, strict=True)) for step in steps], flags.output))
    return EXIT_OK


def _status(flags: argparse.Namespace, settings: Settings) -> int:
    client = Client.from_environment(settings.kubeconfig)
    drivers = [
        obj
        for namespace in settings.namespaces
        for obj in client.list(DRIVER_CONTAINERS.path(namespace=namespace)).items
        if flags.driver in (None, obj["metadata"]["name"])
    ]
    if flags.driver is not None and not drivers:
        print(
            f"driver-builder: no DriverContainer {flags.driver!r} in {', '.join(settings.namespaces)}", file=sys.stderr
        )
        return EXIT_FAILED
    if flags.output != "table":
        data = [{"metadata": _identity(obj), "status": obj.get("status") or {}} for obj in drivers]
        print(output.document(data, flags.output))
        return EXIT_OK
    rows = [row for obj in drivers for row in _status_rows(obj)]
    headers = ("NAMESPACE", "DRIVER", "VERSION", "KERNEL", "OS", "NODES", "READY", "STATE", "REASON", "MESSAGE")
    print(output.table(headers, rows) if rows else "no DriverContainer")
    return EXIT_OK


def _identity(obj: dict[str, Any]) -> dict[str, str]:
    return {field: obj["metadata"][field] for field in ("namespace", "name")}


def _status_rows(obj: dict[str, Any]) -> list[tuple[object, ...]]:
    status = obj.get("status") or {}
    head = (obj["metadata"]["namespace"], obj["metadata"]["name"], obj["spec"]["version"])
    targets = status.get("targets") or []
    if not targets:
        conditions = {item["type"]: item for item in status.get("conditions") or ()}
        ready = conditions.get("Ready", {"reason": "NotObserved", "message": "driver-builder has not looked at it yet"})
        return [(*head, "-", "-", 0, 0, "-", ready["reason"], ready["message"])]
    return [
        (
            *head, target["kernel"], f"{target['os']}/{target['architecture']}", target["nodes"], target["readyNodes"],
            target["state"], target["reason"], target["message"],
        )
        for target in targets
    ]  # fmt: skip


def _build_work(settings: Settings, registries: Registries) -> Work:
    def work(action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        with docker_engine(settings.docker_host) as api:
            known = registries.credentials(action.namespace, action.registry, action.image.host)
            builder = DockerBuilder(api, templates=settings.templates, credentials=known)
            return build_and_push(action, builder=builder, registries=registries, log=log, cancelled=cancelled)

    return work
