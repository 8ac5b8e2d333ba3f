"""``driver-builder convert``: makes DriverContainers of the objects of another operator. No cluster is needed.

Standard output has what was made and nothing else, standard error a line for each field that has no counterpart, and
for each problem of the new object that ``lint`` finds: ``driver-builder convert kmm FILE | kubectl apply -f -``.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from driver_builder.api.spec_reader import Path
from driver_builder.api.spec_rules import EXTENDED_RESOURCE
from driver_builder.base.check_result import Remark, Status, has_failed
from driver_builder.base.errors import ConfigurationError
from driver_builder.checks import lint
from driver_builder.checks.lint import LintContext
from driver_builder.checks.lint_files import Document, FileResult, parse_documents, read_documents
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK
from driver_builder.config import Settings
from driver_builder.convert import kmm
from driver_builder.convert.kmm import Known
from kube_api.text import printable

Json = dict[str, Any]

_LONGEST = 1000
"""Characters of a line: names of fields, and of objects that were not made, are the file's."""

_ELSEWHERE = {
    "ManagedClusterModule": "convert its spec.moduleSpec as a Module, and apply the result in each cluster: clusters "
    "that share a registry build a driver once",
    "PreflightValidation": "driver-builder preflight --kernel does that",
    "PreflightValidationOCP": "driver-builder preflight --kernel does that",
}
"""Other kinds of KMM, and what stands for them."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the files, and what they do not say."""
    parser.add_argument("origin", choices=("kmm",), help="kmm: Modules of Kernel Module Management")
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="manifest, directory of manifests, or - for standard input"
    )
    parser.add_argument(
        "--kernels",
        metavar="RELEASE,...",
        default="",
        help="kernel releases of the nodes, for images that are named by kernel: kubectl get nodes -o "
        "jsonpath='{.items[*].status.nodeInfo.kernelVersion}'",
    )
    parser.add_argument(
        "--resource",
        metavar="MODULE=RESOURCE",
        action="append",
        default=[],
        help="extended resource that the device plugin of a Module offers, such as edu=example.com/edu",
    )


def run(flags: argparse.Namespace, _settings: Settings) -> int:
    """Convert the files; returns 1 if a field needs a person.

    Raises:
        ConfigurationError: a file cannot be read, none has a Module, or a flag is wrong.
    """
    kernels = tuple(dict.fromkeys(re.split(r"[,\s]+", flags.kernels.strip()))) if flags.kernels.strip() else ()
    known = Known(kernels=kernels, resources=dict(map(_resource, flags.resource)))
    made: list[Json] = []
    results: list[FileResult] = []
    found = 0
    for document in read_documents(flags.files):
        if isinstance(document, FileResult):
            results.append(document)
            continue
        for value, path in lint.objects(document.value):
            if _is_module(value):
                found += 1
                results += _converted(document, value, path, known, made)
            else:
                results.append(_of_another_kind(document, value, path))
    if not found and not has_failed(results):
        raise ConfigurationError(f"no {kmm.KIND} of kmm.sigs.x-k8s.io in {', '.join(flags.files)}")
    for result in results:
        words = ": ".join(filter(None, (result.driver, result.sentence)))
        print(f"{result.place}: {result.status.word('error')}: {printable(words, _LONGEST)}", file=sys.stderr)
    print(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True) if made else "", end="")
    return EXIT_FAILED if has_failed(results) else EXIT_OK


def _resource(text: str) -> tuple[str, str]:
    module, equals, resource = text.partition("=")
    if not (module and equals) or EXTENDED_RESOURCE.wrong_with(resource):
        raise ConfigurationError(f"--resource: {text!r}: write MODULE=RESOURCE, such as edu=example.com/edu")
    return module, resource


def _is_module(value: Mapping[str, Any]) -> bool:
    return value.get("kind") == kmm.KIND and str(value.get("apiVersion")) in kmm.API_VERSIONS


def _of_another_kind(document: Document, value: Mapping[str, Any], path: Path) -> FileResult:
    kind = str(value.get("kind", "object without kind"))[:80]
    status = Status.FAILED if kind == kmm.KIND or kind in _ELSEWHERE else Status.WARNING
    words = _ELSEWHERE.get(kind, "is left as it is")
    if kind == kmm.KIND:
        version, known = str(value.get("apiVersion"))[:80], ", ".join(sorted(kmm.API_VERSIONS))
        words = f"apiVersion {version!r} is unknown: use one of {known}"
    return document.result(path, Remark((), words, status), kind)


def _converted(
    document: Document, value: Mapping[str, Any], path: Path, known: Known, made: list[Json]
) -> Iterator[FileResult]:
    """Convert one Module, add what came out, and say what it is not."""
    conversion, name = kmm.convert(value, known), lint.key_of(value)
    results = (document.result(path, remark, name) for remark in conversion.remarks.said)
    yield from sorted(results, key=lambda result: result.line)
    if conversion.driver is None:
        yield document.result(path, Remark((), "no DriverContainer was made of it", Status.FAILED), name)
        return
    made.append(conversion.driver)
    for own in parse_documents("", yaml.safe_dump(conversion.driver)):
        for wrong in lint.lint(own, conversion.driver, (), LintContext()) if isinstance(own, Document) else ():
            yield document.result(path, Remark((), f"of the DriverContainer: {wrong.sentence}", wrong.status), name)
