"""``nfd-worker rules``: rules tried on features from a file, and checked without any."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from feature_rules.features import Features
from feature_rules.keys.namespaces import NamespaceOptions
from feature_rules.load import load_rules
from feature_rules.model import LoadedRules, RuleProblem
from feature_rules.run import run_rules
from kube_api.log_lines import LONGEST_MESSAGE
from kube_api.text import printable
from nfd_worker.cli.documents import MAX_DOCUMENT, parse_document, read_text, shown
from nfd_worker.cli.feature_document import parse_features
from nfd_worker.cli.output import content_document, dump
from nfd_worker.cli.rule_checks import as_problem, static_problems
from nfd_worker.cycle import with_back_references
from nfd_worker.guarded_file import MAX_YAML_FILE
from nfd_worker.labels.labels import CLUSTER, make_content


def evaluate(files: Sequence[str], features_file: str, options: NamespaceOptions, output: str) -> int:
    """Print what the rules of all files make of the features; 1 when there are errors.

    Raises:
        ConfigurationError: for a file that cannot be read, or features that cannot be read.
    """
    document = evaluation(_load(files), read_features(features_file), options)
    sys.stdout.write(dump(document, output))
    return 1 if document["errors"] else 0


def validate(files: Sequence[str], options: NamespaceOptions) -> int:
    """Print one line for each mistake; 1 when there are any.

    Raises:
        ConfigurationError: for a file that cannot be read.
    """
    mistakes = [mistake for file in files for mistake in _mistakes(file, options)]
    sys.stdout.write("".join(f"{printable(str(mistake), LONGEST_MESSAGE)}\n" for mistake in mistakes))
    return 1 if mistakes else 0


def evaluation(loaded: LoadedRules, features: Features, options: NamespaceOptions) -> dict[str, Any]:
    """Run rules over features and make the document that ``rules eval`` prints; taints are on."""
    ran = run_rules(loaded.rules, features)
    named = with_back_references(features, ran)
    result = make_content({}, {CLUSTER: ran}, named, options._replace(enable_taints=True))
    variables = {name: value for output in ran.matched for name, value in output.vars.items()}
    outputs = {output.origin: output for output in ran.matched}
    names = {rule.origin: rule.name for rule in loaded.rules}
    problems = (
        *(problem._replace(rule=_name_of_bad_rule(problem)) for problem in loaded.problems),
        *(problem._replace(rule=names[problem.rule]) for problem in ran.problems),
        *(as_problem(refusal, outputs[refusal.origin]) for refusal in result.refusals),
    )
    return {
        **content_document(result.content),
        "vars": dict(sorted(variables.items())),
        "matched": [output.rule for output in ran.matched],
        "errors": [_error(problem) for problem in problems],
    }


def _error(problem: RuleProblem) -> dict[str, str]:
    place = f"{problem.file}:{problem.line}: " if problem.file else ""
    return {"rule": problem.rule, "field": problem.field, "message": place + problem.message}


def _name_of_bad_rule(problem: RuleProblem) -> str:
    """Take the name out of ``rule <object or file>/<name>``: objects have no slash in theirs, files may."""
    owned = problem.rule.removeprefix("rule ")
    file = f"{problem.file}/"
    return owned.removeprefix(file) if owned.startswith(file) else owned.partition("/")[2]


def _load(files: Sequence[str]) -> LoadedRules:
    loaded = [load_rules(read_text(file, MAX_YAML_FILE), shown(file), dialect="rule") for file in files]
    rules = tuple(rule for one in loaded for rule in one.rules)
    return LoadedRules(rules, tuple(problem for one in loaded for problem in one.problems))


def _mistakes(file: str, options: NamespaceOptions) -> list[RuleProblem]:
    text = read_text(file, MAX_YAML_FILE)
    loaded = load_rules(text, shown(file), dialect="rule")
    problems = (*loaded.problems, *static_problems(loaded.rules, text, shown(file), options))
    return sorted(problems, key=lambda problem: problem.line)


def read_features(file: str) -> Features:
    """Read features as ``scan --features`` prints them, alone or with the rest of its output.

    Raises:
        ConfigurationError: when the file cannot be read or holds something else.
    """
    document = parse_document(read_text(file, MAX_DOCUMENT), shown(file))
    if isinstance(document, Mapping) and "features" in document:
        document = document["features"]
    return parse_features(document, shown(file))
