"""``nfd-worker scan``: one cycle, shown and not sent."""

import sys
from collections.abc import Mapping, Sequence

from nfd_worker.cli.output import render
from nfd_worker.cli.pci_names import PciNames, read_pci_names
from nfd_worker.config.config import Settings
from nfd_worker.config.rule_files import RuleFiles
from nfd_worker.cycle import CycleReport, Outcome, run_cycle
from nfd_worker.gpu.scan_runner import ScanRunner
from nfd_worker.host import Host


def scan(settings: Settings, rules: Sequence[str], output: str, *, with_features: bool) -> int:
    """Look at the host once and print what was found; 1 when a source could not be read or a rule is wrong."""
    host = Host(settings.root)
    report = scan_host(host, settings, rules)
    names = read_pci_names(host) if output == "table" else PciNames()
    sys.stdout.write(render(report, output, with_features=with_features, names=names))
    return 1 if report.failed or report.problems else 0


def scan_host(host: Host, settings: Settings, rules: Sequence[str] = ()) -> CycleReport:
    """Run one cycle with all that belongs to it; waits for the sources that a child reads."""
    scanned: Mapping[str, Outcome] = {}
    if "gpu" in settings.feature_sources:
        scanned = {"gpu": ScanRunner().run_once(host)}
    return run_cycle(host, settings, {}, RuleFiles(host, settings.rules_dir, rules).read(), scanned)
