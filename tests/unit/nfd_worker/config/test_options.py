"""Flags: Go's ways of writing them, and how their texts are read."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.keys.namespaces import NamespaceOptions
from nfd_worker.config.arguments import build_parser
from nfd_worker.config.config import Settings
from nfd_worker.config.options import (
    OPTIONS,
    normalise_arguments,
    parse_bool,
    parse_interval,
    parse_list,
    parse_pattern,
    run_flags,
    with_command,
)


def parse(arguments: list[str]) -> dict[str, str]:
    """Let argparse read normalised arguments, as the command line does."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in OPTIONS:
        parser.add_argument(f"--{option.flag}", dest=option.flag, nargs="?" if option.is_switch else None)
    return {name: text for name, text in vars(parser.parse_args(normalise_arguments(arguments))).items() if text}


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        pytest.param(["-oneshot"], {"oneshot": "true"}, id="one dash"),
        pytest.param(["--oneshot"], {"oneshot": "true"}, id="two dashes"),
        pytest.param(["-no-publish=false"], {"no-publish": "false"}, id="switch with a value"),
        pytest.param(["-sleep-interval", "60s"], {"sleep-interval": "60s"}, id="value apart"),
        pytest.param(["--sleep-interval=60s"], {"sleep-interval": "60s"}, id="value attached"),
        pytest.param(["-label-sources", "-pci,all"], {"label-sources": "-pci,all"}, id="value that looks like a flag"),
        pytest.param(["-options", '{"core": {}}'], {"options": '{"core": {}}'}, id="value with blanks"),
        pytest.param(["-config=a=b"], {"config": "a=b"}, id="value with an equals sign"),
        pytest.param(["-owner-refs", "pod,ds", "-no-owner-refs", "-v", "4", "-logtostderr=true"],
                     {"owner-refs": "pod,ds", "no-owner-refs": "true", "v": "4", "logtostderr": "true"},
                     id="flags without effect"),
        pytest.param(["-oneshot", "-port", "0"], {"oneshot": "true", "port": "0"}, id="several"),
    ],
)  # fmt: skip
def test_flags_are_taken_as_go_takes_them(arguments: list[str], read: dict[str, str]) -> None:
    """The arguments of a migrated DaemonSet stay as they are."""
    assert parse(arguments) == read


@pytest.mark.parametrize(
    ("arguments", "normalised"),
    [
        pytest.param(["scan", "-o", "json"], ["scan", "-o", "json"], id="commands and their own flags"),
        pytest.param(["rules", "validate", "-"], ["rules", "validate", "-"], id="standard input"),
        pytest.param(["run", "--", "-oneshot"], ["run", "--", "-oneshot"], id="after two dashes"),
        pytest.param(["-version"], ["--version"], id="version"),
        pytest.param(["-help", "-h"], ["--help", "-h"], id="help"),
        pytest.param(["-port"], ["--port"], id="missing value"),
        pytest.param(["---oneshot"], ["---oneshot"], id="three dashes"),
        pytest.param(["-onshot", "x"], ["-onshot", "x"], id="unknown flag"),
        pytest.param(["oneshot", ""], ["oneshot", ""], id="no dash"),
    ],
)
def test_what_is_no_flag_of_ours_stays(arguments: list[str], normalised: list[str]) -> None:
    """Unknown words stay unchanged, for argparse to report."""
    assert normalise_arguments(arguments) == normalised


@given(st.lists(st.text(max_size=5) | st.sampled_from([f"-{option.flag}" for option in OPTIONS])))
def test_normalising_twice_is_normalising_once(arguments: list[str]) -> None:
    """Normalising is idempotent for any command line."""
    once = normalise_arguments(arguments)
    assert normalise_arguments(once) == once


def test_every_option_is_a_setting_or_says_why_not() -> None:
    """Each option sets a setting or has a reason why it has no effect."""
    known = {*Settings._fields, *NamespaceOptions._fields}
    assert all(option.setting in known if not option.no_effect else not option.setting for option in OPTIONS)
    assert all(option.help for option in OPTIONS)


def test_flags_and_variables_are_unique() -> None:
    """No two settings share a flag or a variable."""
    flags = [option.flag for option in OPTIONS]
    variables = [option.environment for option in OPTIONS if option.environment]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)


def test_the_rules_directory_has_its_variable() -> None:
    """The variable that the DaemonSet sets selects the rules directory."""
    assert {"NFD_WORKER_RULES_DIR", "NFD_WORKER_OPTIONS", "NODE_NAME", "HOST_ROOT"} <= {
        option.environment for option in OPTIONS
    }


def test_a_relative_rules_directory_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker reads below a root, where a relative path would mean another directory."""
    monkeypatch.chdir(tmp_path)
    read = {option.flag: option.parse for option in OPTIONS}["rules-dir"]
    assert [read("rules"), read("/rules"), read("")] == [f"{tmp_path}/rules", "/rules", ""]


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("T", True), ("True", True), ("0", False), ("f", False), ("FALSE", False)]
)
def test_truth_has_gos_words(text: str, value: bool) -> None:
    """Booleans are parsed as Go's strconv.ParseBool parses them."""
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "yes", "2"])
def test_other_words_are_no_truth(text: str) -> None:
    """A word that is no boolean is refused, and the message quotes it."""
    with pytest.raises(ValueError, match=f"{text!r} is neither true nor false"):
        parse_bool(text)


def test_lists_are_split_at_commas() -> None:
    """Blanks and empty entries are dropped."""
    assert parse_list(" a, b ,,c d,") == ("a", "b", "c d")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", float("inf")), ("-1s", float("inf")), ("100ms", 1.0), ("5m", 300.0)],
    ids=["zero is for ever", "less is for ever", "never under a second", "as told"],
)
def test_intervals_have_upstreams_limits(text: str, seconds: float) -> None:
    """Intervals have the limits of upstream, from whichever source they come."""
    assert parse_interval(text) == seconds


def test_a_pattern_is_kept_as_text_and_checked() -> None:
    """A pattern must be valid RE2 and is kept as text."""
    assert parse_pattern(r"^pci-(?U:\pL+)") == r"^pci-(?U:\pL+)"
    with pytest.raises(ValueError, match="is not a regular expression"):
        parse_pattern("(")


def test_ports_and_log_levels_are_read() -> None:
    """Log levels and formats are read in any letter case."""
    read = {option.flag: option.parse for option in OPTIONS}
    assert (read["port"]("65535"), read["log-level"]("DEBUG")) == (65535, "debug")
    assert read["log-format"]("JSON") == "json"
    assert read["feature-gates"]("AllAlpha=true,NodeFeatureAPI=true") is False
    assert read["feature-gates"]("AllAlpha=true,DisableAutoPrefix=false") is True


_FLAGS = st.sampled_from([option.flag for option in OPTIONS])
_ARGUMENTS = st.lists(
    st.builds("--{}={}".format, _FLAGS, st.text(max_size=5))
    | st.builds("-{}".format, _FLAGS)
    | st.sampled_from(["--", "run", "x", "-", "--=", "--help", "--nothing=1", "--oneshot"]),
    max_size=5,
)


@given(_ARGUMENTS)
def test_flags_of_run_are_read_as_argparse_reads_them(arguments: list[str]) -> None:
    """Or left to it: what it would refuse, and what asks for help."""
    normalised = with_command(normalise_arguments(arguments))
    flags = run_flags(normalised)
    if flags is not None:
        parsed = vars(build_parser().parse_args(normalised))
        assert parsed.pop("command") == "run"
        assert flags == {option.flag: parsed[option.flag.replace("-", "_")] for option in OPTIONS}


def test_what_nodes_run_needs_no_argparse() -> None:
    """The arguments of the DaemonSet, and of upstream's."""
    for arguments in (["run", "--port=9809"], ["-oneshot", "-sleep-interval", "60s"], []):
        assert run_flags(with_command(normalise_arguments(arguments))) is not None
    assert run_flags(["scan", "--root=/"]) is None
