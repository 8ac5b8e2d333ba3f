"""A Dockerfile whose commands trust further CAs: what changes in it, and what each command is then run by."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.templates.templates import Variant, render, templates_directory
from driver_builder.builds.templates.toolchain_stage import toolchain_dockerfile
from driver_builder.builds.templates.trust import runner, trusting, variables
from driver_builder.nodes.changes import StartBuild
from tests.support.driver_builder.golden_cases import ABSENT, CASES, actions

MARK = "<as before>"
PEM = "-----BEGIN CERTIFICATE-----\nTUlJ\n-----END CERTIFICATE-----"


def shown(text: str) -> str:
    """Return a Dockerfile with a mark for what runs a command."""
    words = ", ".join(re.escape(word) for word in ('"/bin/sh"', '"-c"'))
    return re.sub(rf'{words}, "d=[^\n]*?\\n", "sh", ', f"{MARK} ", text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            'FROM a AS b\nSHELL ["/bin/bash", "-c"]\nRUN x; \\\n    FROM\nFROM b AS c\nRUN y\n',
            f'FROM a AS b\nSHELL [{MARK} "/bin/bash", "-c"]\nRUN x; \\\n    FROM\nFROM b AS c\nRUN y\n',
            id="a stage has the shell of the one that it stands on",
        ),
        pytest.param(
            "FROM a\n# RUN\nCOPY b c\nRUN x\nRUN y\n",
            f'FROM a\n# RUN\nCOPY b c\nSHELL [{MARK} "/bin/sh", "-c"]\nRUN x\nRUN y\n',
            id="without SHELL",
        ),
        pytest.param('FROM a\nRUN ["b", "c"]\n', f'FROM a\nRUN [{MARK} "b", "c"]\n', id="without a shell"),
        pytest.param(
            "FROM a\nRUN [ ! -d b ] || cp [b]\n",
            f'FROM a\nSHELL [{MARK} "/bin/sh", "-c"]\nRUN [ ! -d b ] || cp [b]\n',
            id="a test of the shell",
        ),
        pytest.param(
            "from a as B\nrun x\nFROM b\nrun y\n",
            f'from a as B\nSHELL [{MARK} "/bin/sh", "-c"]\nrun x\nFROM b\nrun y\n',
            id="small letters",
        ),
        pytest.param("FROM scratch\nCOPY --from=a / /\n", "FROM scratch\nCOPY --from=a / /\n", id="nothing is run"),
    ],
)
def test_commands_are_run_by_the_script(given: str, expected: str) -> None:
    """All else stays, and so do stages that run nothing: the driver's image is one."""
    assert shown(trusting(given)) == expected


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("name", sorted(CASES))
def test_of_every_template_only_the_shells_change(name: str, variant: Variant) -> None:
    """So a toolchain is cut out of it as before, and its last stage, which is the image, is the same."""
    request = next((item.request for item in actions(CASES[name].seen, ABSENT) if isinstance(item, StartBuild)), None)
    if request is None:
        return
    given = render(request, templates_directory(), variant)
    made = trusting(given)
    assert made.replace(f"SHELL [{made_of()}, ", "SHELL [") in (given, with_shells(given))
    assert made.rpartition("\nFROM ")[2] == given.rpartition("\nFROM ")[2]
    assert toolchain_dockerfile(made) == (trusting(kept) if (kept := toolchain_dockerfile(given)) is not None else None)


def made_of() -> str:
    """Return the words before those of a shell, as they are written."""
    return trusting('FROM a\nSHELL ["x"]\n').partition("SHELL [")[2].partition(', "x"')[0]


def with_shells(text: str) -> str:
    """Return a custom template, which names no shell, with the usual one."""
    return text.replace("\nRUN ", '\nSHELL ["/bin/sh", "-c"]\nRUN ', 1)


def run(tmp_path: Path, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command by the script, with a folder of its own for what is temporary."""
    given = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), **environment}
    argv = [*runner(), "/bin/bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(argv, env=given, capture_output=True, text=True, check=False)


def test_a_command_knows_the_certificates_and_leaves_none(tmp_path: Path) -> None:
    """In one file with those of the system, by the variables of each program; where they came by is unset."""
    command = (
        'for file in "$CURL_CA_BUNDLE" "$GIT_SSL_CAINFO" "$SSL_CERT_FILE"; do tail -n 3 "$file"; done; '
        'grep -c "BEGIN" "$SSL_CERT_FILE" || true; cat "$APT_CONFIG"; echo "${FTP_PROXY-none} ${ftp_proxy-none}"'
    )
    done = run(tmp_path, command, **variables(f"# a comment\n{PEM}\n"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{PEM}\n" * 3)
    assert done.stdout.splitlines()[-1] == "none none"
    assert re.search(r'Acquire::https::CaInfo "/[^"]*/ca\.crt";', done.stdout)
    assert not list(tmp_path.iterdir())


def test_the_exit_code_of_a_command_stays(tmp_path: Path) -> None:
    """Templates say by it why a build failed; nothing is left then either."""
    assert run(tmp_path, "exit 67").returncode == 67
    assert not list(tmp_path.iterdir())


def test_a_command_whose_certificates_cannot_be_removed_fails(tmp_path: Path) -> None:
    """A layer would have them."""
    broken = tmp_path / "programs"
    broken.mkdir()
    (broken / "rm").write_text("#!/bin/sh\nexit 1\n")
    (broken / "rm").chmod(0o755)
    assert run(tmp_path, "true", PATH=f"{broken}:/usr/bin:/bin").returncode == 1


def test_a_bundle_is_given_in_two_parts_without_comments() -> None:
    """Linux limits one variable to 128 KiB; together they are what was given."""
    bundle = "\n".join(f"# authority {number}\n{PEM.replace('TUlJ', 'A' * 2000)}" for number in range(100))
    given = variables(bundle)
    assert "".join(given.values()) == "\n".join(line for line in bundle.splitlines() if not line.startswith("#"))
    assert all(len(value) < 128 << 10 for value in given.values())


def test_a_bundle_that_an_engine_cannot_take_is_refused() -> None:
    """With what helps."""
    with pytest.raises(ConfigurationError, match=r"spec\.build\.caConfigMap: .* set spec\.build\.builder: job"):
        variables("\n".join([PEM.replace("TUlJ", "A" * 2000)] * 200))
