"""NodeFeatureRule objects to the one ConfigMap that every worker mounts, so that no worker asks the API server. Pure.

Objects are those of Node Feature Discovery (``nfd.k8s-sigs.io/v1alpha1``). A rule that cannot work is left out and
reported by an Event on its object, as is an object that hits a bug; the others are copied as they are.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from feature_rules.load import load_rules
from feature_rules.model import RuleProblem
from kube_api.resources import NODE_FEATURE_RULES

CONFIG_MAP = "nfd-worker-rules"
"""Name of the ConfigMap; the worker's DaemonSet mounts it as its rules directory."""

LARGEST_CONFIG_MAP = 1_000_000
"""Bytes of rules that fit: the API server refuses a ConfigMap of more than 1 MiB."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleObject:
    """What identifies a NodeFeatureRule in an Event."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRules:
    """``data``: key of the ConfigMap -> one object as YAML. ``problems``: object -> what was left out of it."""

    data: Mapping[str, str]
    problems: Mapping[RuleObject, tuple[RuleProblem, ...]]


def compile_rules(objects: Iterable[Json]) -> CompiledRules:
    """Check all objects, in the order of their names, and make the ConfigMap's content of the good rules."""
    data: dict[str, str] = {}
    problems: dict[RuleObject, tuple[RuleProblem, ...]] = {}
    size = 0
    for obj in sorted(objects, key=lambda item: str(item["metadata"]["name"])):
        name = str(obj["metadata"]["name"])
        good, wrong = contained("rules", name, partial(_check, obj, name), _not_checked)
        key, text = f"{name}.yaml", _to_yaml(name, good)
        size += len(key) + len(text.encode())
        if size > LARGEST_CONFIG_MAP:
            size -= len(key) + len(text.encode())
            wrong = (*wrong, _too_large(name))
        elif good:
            data[key] = text
        if wrong:
            problems[RuleObject(name=name, uid=str(obj["metadata"].get("uid", "")))] = wrong
    return CompiledRules(data=data, problems=problems)


def _check(obj: Json, name: str) -> tuple[list[Any], tuple[RuleProblem, ...]]:
    """Part an object's rules into those that load and what is wrong with the others."""
    rules = (obj.get("spec") or {}).get("rules") or []
    good: list[Any] = []
    problems: list[RuleProblem] = []
    for rule in rules:
        # One at a time: of several rules with the same name only the wrong one is left out.
        loaded = load_rules(_to_json(name, [rule]), name)
        problems += [problem._replace(file="", line=0) for problem in loaded.problems]
        if not loaded.problems:
            good.append(rule)
    return good, tuple(problems)


def _not_checked(error: InternalError) -> tuple[list[Any], tuple[RuleProblem, ...]]:
    return [], (RuleProblem(rule="", field="", message=str(error)),)


def _document(name: str, rules: list[Any]) -> Json:
    return {
        "apiVersion": NODE_FEATURE_RULES.api_version,
        "kind": NODE_FEATURE_RULES.kind,
        "metadata": {"name": name},
        "spec": {"rules": rules},
    }


def _to_json(name: str, rules: list[Any]) -> str:
    return json.dumps(_document(name, rules))


def _to_yaml(name: str, rules: list[Any]) -> str:
    return str(yaml.safe_dump(_document(name, rules), sort_keys=False))


def _too_large(name: str) -> RuleProblem:
    message = (
        f"{name} does not fit into ConfigMap {CONFIG_MAP}, which holds at most {LARGEST_CONFIG_MAP} bytes "
        "of rules in all: shorten or remove rules; objects are taken in the order of their names"
    )
    return RuleProblem(rule="", field="", message=message)
