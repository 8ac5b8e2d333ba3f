"""A node that does not rest: all that can change for a worker changes, a few times a second, in an order by seed."""

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

SECONDS = float(os.environ.get("CHURN_SECONDS", "900"))
A_SECOND = 4.0
"""How many operations."""

_RULE = """\
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {{name: rule-{n}}}
spec:
  rules:
"""
_RULES = (
    """\
  - name: {n}-simple-{k}
    labels: {{example.com/simple-{n}-{k}: "{k}"}}
    matchFeatures:
    - {{feature: pci.device, matchExpressions: {{vendor: {{op: In, value: ["10de", "{k}"]}}}}}}
""",
    """\
  - name: {n}-template-{k}
    labelsTemplate: |
      {{{{ range .pci.device }}}}example.com/{n}-{k}-{{{{ .device }}}}=present
      {{{{ end }}}}
    matchFeatures:
    - {{feature: pci.device, matchExpressions: {{class: {{op: In, value: ["0302"]}}}}}}
""",
    """\
  - name: {n}-expression-{k}
    labels: {{example.com/expression-{n}-{k}: "true"}}
    matchFeatures:
    - {{feature: kernel.version, matchExpressions: {{full: {{op: InRegexp, value: ["^[0-9]+\\\\.{k}?.*"]}}}}}}
""",
)


class Churn:
    """Changes the files of a node. ``etc``: the directory with ``features.d``; ``port``: of the worker's endpoint."""

    def __init__(self, etc: Path, rules: Path, conf: Path, port: int) -> None:
        self._random = random.Random(11)  # noqa: S311 - no secret
        self._features, self._custom, self._rules, self._conf = etc / "features.d", etc / "custom.d", rules, conf
        self._port = port
        self.operations = 0
        self.has_regexps = False

    def run(self, seconds: float, minute: Callable[[], object]) -> None:
        """Go on for so long; ``minute`` is called after each."""
        start, minutes, before = time.monotonic(), 0, self.operations
        kinds = [self._feature_file] * 8 + [self._custom_rules] * 2 + [self._cluster_rules] * 3
        kinds += [self._configuration, self._scrape, self._scrape]
        while (now := time.monotonic() - start) < seconds:
            self._random.choice(kinds)()
            self.operations += 1
            time.sleep(max(0.0, (self.operations - before) / A_SECOND - now))
            if now >= (minutes + 1) * 60:
                minutes += 1
                minute()

    def _feature_file(self) -> None:
        file = self._features / f"file-{self._random.randrange(20)}"
        if self._random.random() < 0.3:
            file.unlink(missing_ok=True)
            return
        count = self._random.choice([1, 5, 20])
        text = "".join(f"churn-{file.name}-{n}={self._random.randrange(100)}\n" for n in range(count))
        if self._random.random() < 0.5:
            file.write_text(text)
            return
        (new := self._features / ".new").write_text(text)
        new.rename(file)

    def _custom_rules(self) -> None:
        n = self._random.randrange(5)
        self._put(self._custom / f"team-{n}" / "rules.yaml", self._rule_text(n))

    def _cluster_rules(self) -> None:
        n = self._random.randrange(10)
        self._put(self._rules / f"rule-{n}.yaml", _RULE.format(n=n) + self._rule_text(n))

    def _put(self, file: Path, text: str) -> None:
        kind = self._random.random()
        if kind < 0.2:
            file.unlink(missing_ok=True)
            with suppress(OSError):
                shutil.rmtree(file.parent) if file.parent.parent == self._custom else None
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{broken" if kind < 0.3 else text)

    def _rule_text(self, n: int) -> str:
        kinds = _RULES if self.has_regexps else _RULES[:-1]
        return "".join(self._random.choice(kinds).format(n=n, k=k) for k in range(self._random.choice([1, 3, 10])))

    def _configuration(self) -> None:
        interval, field = self._random.choice([1, 2, 5]), self._random.choice(["vendor", "device", "class"])
        text = f"core: {{sleepInterval: {interval}s}}\nsources: {{pci: {{deviceLabelFields: [{field}]}}}}\n"
        self._conf.write_text(text if self._random.random() < 0.9 else "core: [")

    def _scrape(self) -> None:
        with urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            answer.read()
