"""The command ``convert``: what goes to which stream, and how it ends."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from driver_builder.checks import lint_files
from driver_builder.cli import main

Json = dict[str, Any]

MODULE = """\
apiVersion: kmm.sigs.x-k8s.io/v1beta1
kind: Module
metadata: {name: edu, namespace: drivers}
spec:
  selector: {pool: edu}
  moduleLoader:
    container:
      modprobe: {moduleName: edudrv}
      kernelMappings:
        - literal: 6.1.0-55-amd64
          containerImage: r.example.com/drivers/edu:1
"""


def converted(tmp_path: Path, text: str, *flags: str) -> int:
    """Convert a file; returns the exit code."""
    file = tmp_path / "module.yaml"
    file.write_text(text)
    return main.main(["convert", "kmm", str(file), *flags])


def test_a_module_that_fits_is_written_and_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output can be applied."""
    assert converted(tmp_path, MODULE) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert yaml.safe_load(printed.out)["kind"] == "DriverContainer"


def test_a_warning_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has file, line, driver and field."""
    assert (
        converted(tmp_path, MODULE.replace("    container:\n", "    container:\n      imagePullPolicy: Always\n")) == 0
    )
    place, _, words = capsys.readouterr().err.partition(": warning: ")
    assert place == f"{tmp_path}/module.yaml:8"
    assert words.startswith("drivers/edu: spec.moduleLoader.container.imagePullPolicy: ")


def test_what_needs_a_person_ends_with_one_and_the_rest_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline stops; a person goes on with what there is."""
    assert converted(tmp_path, f"{MODULE}---\n{MODULE.replace('moduleName: edudrv', 'rawArgs: {load: [a]}')}") == 1
    printed = capsys.readouterr()
    assert len(list(yaml.safe_load_all(printed.out))) == 1
    assert ":20: error: drivers/edu: spec.moduleLoader.container.modprobe.rawArgs: " in printed.err
    assert ":13: error: drivers/edu: no DriverContainer was made of it" in printed.err


def test_what_a_driver_container_may_not_hold_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the rules of the controller, and of lint."""
    text = MODULE.replace("moduleName: edudrv", "moduleName: edudrv, parameters: ['a=b c']")
    assert converted(tmp_path, text) == 1
    assert (
        "of the DriverContainer: spec.module.parameters.edudrv[0]: 'a=b c' is not a parameter"
        in capsys.readouterr().err
    )


def test_lists_and_other_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list is taken apart; what is no Module is named, and what stands for it."""
    items = [yaml.safe_load(MODULE), {"kind": "ConfigMap"}, {"kind": "PreflightValidation"},
             {**yaml.safe_load(MODULE), "apiVersion": "kmm.sigs.x-k8s.io/v2"}]  # fmt: skip
    assert converted(tmp_path, yaml.safe_dump({"kind": "List", "items": items})) == 1
    printed = capsys.readouterr()
    assert len(list(yaml.safe_load_all(printed.out))) == 1
    assert "warning: ConfigMap: is left as it is" in printed.err
    assert "error: PreflightValidation: driver-builder preflight" in printed.err
    assert "'kmm.sigs.x-k8s.io/v2' is unknown: use one of kmm.sigs.x-k8s.io/v1beta1" in printed.err


def test_both_versions_of_modules_are_read(tmp_path: Path) -> None:
    """With the same fields."""
    assert converted(tmp_path, MODULE.replace("v1beta1", "v1beta2")) == 0


def test_standard_input_and_flags(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels as kubectl prints them; a resource by the name of its Module."""
    text = MODULE.replace("literal: 6.1.0-55-amd64", "regexp: '^6'").replace("edu:1", "edu:${KERNEL_FULL_VERSION}")
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(f"{text}  devicePlugin: {{container: {{image: r.example.com/p:1}}}}\n")
    )
    flags = ["--kernels", "6.1.0-55-amd64 6.1.0-56-amd64\n6.1.0-55-amd64", "--resource", "edu=example.com/edu"]
    assert main.main(["convert", "kmm", "-", *flags]) == 0
    spec = yaml.safe_load(capsys.readouterr().out)["spec"]
    assert [mapping["literal"] for mapping in spec["kernelMappings"]] == ["6.1.0-55-amd64", "6.1.0-56-amd64"]
    assert spec["stages"]["devicePlugin"]["resourceName"] == "example.com/edu"


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        pytest.param("kind: ConfigMap", [], "no Module of kmm.sigs.x-k8s.io in ", id="no Module"),
        pytest.param(MODULE, ["--resource", "edu"], "write MODULE=RESOURCE", id="no resource"),
        pytest.param(MODULE, ["--resource", "edu=e d/u"], "write MODULE=RESOURCE", id="not a resource"),
    ],
)
def test_a_wrong_call_ends_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, flags: list[str], words: str
) -> None:
    """Nothing is written then."""
    assert converted(tmp_path, text, *flags) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [", "is not YAML", id="no YAML"),
        pytest.param("[" * 3000 + "]" * 3000, "is nested too deeply", id="deep"),
        pytest.param("a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)), "is too large", id="aliases"),
        pytest.param("a: &a {b: *a}", "is too large", id="contains itself"),
    ],
)  # fmt: skip
def test_files_that_are_none_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """They neither end in a stack trace nor take all memory."""
    assert converted(tmp_path, text) == 1
    assert words in capsys.readouterr().err


def test_a_file_that_is_too_long_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a device that has no end."""
    monkeypatch.setattr(lint_files, "MAX_SIZE", 10)
    assert converted(tmp_path, MODULE) == 2
    assert "has more than 10 characters" in capsys.readouterr().err


WORDS = st.sampled_from(["edudrv", "edu-2", "a b", "", "/firmware", "x=1", "r.example.com/d/e:1",
                         "e:${KERNEL_FULL_VERSION}", "6.1.0-55-amd64", "^6", ".*", "(", "ä"])  # fmt: skip
NAMES, PATHS = st.sampled_from(["edudrv", "edu-2"]) | WORDS, st.just("/firmware") | WORDS
IMAGES = st.sampled_from(["r.example.com/d/e:1", "r.example.com/d/e:${KERNEL_FULL_VERSION}"]) | WORDS
KERNELS = st.sampled_from(["6.1.0-55-amd64", "6.1.0-56-amd64"]) | WORDS
JUNK = st.recursive(st.none() | st.booleans() | st.integers() | WORDS, lambda inner: st.lists(inner, max_size=2)
                    | st.dictionaries(WORDS, inner, max_size=2), max_leaves=4)  # fmt: skip


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Make an object with some of the fields, and now and then something else in the place of one."""
    mostly = {name: st.integers(0, 9).flatmap([JUNK, *[good] * 9].__getitem__) for name, good in fields.items()}
    return st.fixed_dictionaries({}, optional=mostly)


NAMED = objects(name=NAMES)
BUILDS = objects(dockerfileConfigMap=NAMED, secrets=st.lists(NAMED, max_size=2), buildArgs=JUNK, kanikoParams=JUNK)
SIGNS = objects(keySecret=NAMED, certSecret=NAMED, filesToSign=st.lists(WORDS, max_size=1), unsignedImage=IMAGES)
TLS = objects(insecure=st.booleans(), insecureSkipTLSVerify=st.booleans())
MAPPING = {"containerImage": IMAGES, "build": BUILDS, "sign": SIGNS, "registryTLS": TLS,
           "inTreeModulesToRemove": st.lists(NAMES, max_size=2)}  # fmt: skip
MAPPINGS = st.lists(objects(literal=KERNELS, **MAPPING) | objects(regexp=WORDS, **MAPPING), max_size=3)
MODPROBES = objects(moduleName=NAMES, parameters=st.lists(WORDS, max_size=1), dirName=PATHS, firmwarePath=PATHS,
                    modulesLoadingOrder=st.lists(NAMES, max_size=2), rawArgs=JUNK, args=JUNK)  # fmt: skip
CONTAINERS = objects(modprobe=MODPROBES, kernelMappings=MAPPINGS, version=NAMES, inTreeModuleToRemove=NAMES, **MAPPING)
PLUGINS = objects(container=objects(image=IMAGES, command=st.lists(WORDS, max_size=2), env=JUNK), volumes=JUNK)
SPECS = objects(selector=st.dictionaries(NAMES, NAMES, max_size=2), imageRepoSecret=NAMED,
                tolerations=st.lists(objects(key=NAMES, operator=st.just("Exists")), max_size=2), devicePlugin=PLUGINS,
                dra=JUNK)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(spec=SPECS, container=CONTAINERS, kernels=st.lists(KERNELS, max_size=2))
def test_what_converts_without_an_error_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: Json, container: Json, kernels: list[str]
) -> None:
    """Whatever a Module holds: with exit code 0, lint accepts what was written; otherwise an error says why."""
    module = yaml.safe_load(MODULE)
    module["spec"]["moduleLoader"]["container"] |= container
    module["spec"] |= spec
    flags = ["--kernels", ",".join(kernels), "--resource", "edu=example.com/edu"]
    code = converted(tmp_path, yaml.safe_dump(module), *flags)
    printed = capsys.readouterr()
    assert code == (1 if ": error: " in printed.err else 0)
    if code == 0:
        (tmp_path / "driver.yaml").write_text(printed.out)
        assert main.main(["lint", str(tmp_path / "driver.yaml")]) == 0, capsys.readouterr().out


def test_what_a_file_names_does_not_reach_the_terminal_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of fields, objects and kinds are of the file: no control sequence, no line of their own."""
    hostile = MODULE.replace("name: edu,", r'name: "\e]0;title\a\n",')
    text = "---\n".join((MODULE + r'  "\e[2Jx\u202e": 1' + "\n", r'kind: "\e[31mRed"' + "\n", hostile))
    assert converted(tmp_path, text) == 1
    lines = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() and line.startswith(f"{tmp_path}/module.yaml:") for line in lines)
    assert r"error: drivers/edu: spec['\x1b[2Jx\u202e']: is not known" in lines[0]
