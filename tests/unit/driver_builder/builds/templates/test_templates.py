"""From requests to Dockerfiles and build contexts, and what is not let into them."""

import io
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import BuildFailed, ConfigurationError
from driver_builder.base.reasons import Reason
from driver_builder.builds.templates import templates
from driver_builder.builds.templates.template_values import modules_text, template_values
from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    OwnTemplate,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.userspace import Userspace, UserspacePackages

TEMPLATE = """\
FROM {{ base_image }} AS build
{% if source_image %}
COPY --from={{ source_image }} {{ source_path }} /src
{% else %}
COPY source/ /src/
{% endif %}
RUN make KERNEL={{ kernel_version }} {{ make_args | join(" ") }} {{ modules | join(" ") }}
LABEL {{ driver }}={{ version }}-{{ os_id }}{{ os_version }}-{{ architecture }}
"""
RESERVED = "driverwright-cache/1@sha256:" + "0" * 64
PINNED = "registry.example.com:5000/team/src@sha256:" + "0" * 64
REQUEST = BuildRequest(
    recipe="k",
    driver=DriverKey("team/edu"),
    version="1.0",
    target=KernelTarget(KernelVersion("6.1.0-55-cloud-amd64"), "debian", "12", "amd64"),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={"Makefile": b"obj-m := edudrv.o", "hw/edudrv.c": b"int x;", "build.sh": b"make"}),
    modules=(ModuleSpec(name="edudrv", parameters=("debug=1", "ids=1,2")), ModuleSpec(name="edu-net")),
    args={"V": "1", "CC": "gcc-12"},
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A folder with one template."""
    (tmp_path / "debian.Dockerfile.j2").write_text(TEMPLATE)
    return tmp_path


def test_a_template_is_rendered_with_all_variables(directory: Path) -> None:
    """Arguments are sorted, so that equal requests give equal Dockerfiles."""
    assert templates.render(REQUEST, directory) == (
        "FROM debian:bookworm-slim AS build\n"
        "COPY source/ /src/\n"
        "RUN make KERNEL=6.1.0-55-cloud-amd64 CC=gcc-12 V=1 edudrv edu-net\n"
        "LABEL team/edu=1.0-debian12-amd64\n"
    )


def test_a_source_image_is_copied_from(directory: Path) -> None:
    """The template chooses by the variables; no source folder is in the context."""
    request = replace(REQUEST, source=SourceImage(reference=PINNED, path="/usr/src/edu"))
    assert f"COPY --from={PINNED} /usr/src/edu /src\n" in templates.render(request, directory)
    assert set(members(context_of(request, directory))) == {"Dockerfile", "modules"}


def context_of(request: BuildRequest, directory: Path) -> bytes:
    """The context that an engine is given."""
    return templates.build_context(request, templates.render(request, directory))


COMMIT = "c" * 40
SHA256 = "5" * 64
URL = "https://example.com/drivers/edu"
KINDS: list[Any] = [
    pytest.param(
        SourceGit(url=f"{URL}.git", commit=COMMIT, path="linux/edu"), f"{URL}.git {COMMIT} linux/edu", id="git"
    ),
    pytest.param(SourceGit(url=f"{URL}.git", commit=COMMIT), f"{URL}.git {COMMIT} ", id="git, the root"),
    pytest.param(SourceArchive(url=f"{URL}.tar.gz", sha256=SHA256), f"{URL}.tar.gz {SHA256} ", id="archive"),
    pytest.param(SourcePackage(name="edu-dkms", version="1:2.0-1~bpo12+1"), "edu-dkms 1:2.0-1~bpo12+1", id="package"),
    pytest.param(SourcePackage(name="edu-dkms"), "edu-dkms None", id="package, the newest"),
]
EVERY_KIND = """\
{% if source_git %}{{ source_git }} {{ source_commit }} {{ source_path }}
{% elif source_archive %}{{ source_archive }} {{ source_sha256 }} {{ source_path }}
{% elif source_package %}{{ source_package }} {{ source_version }}
{% endif %}"""


@pytest.mark.parametrize(("source", "expected"), KINDS)
def test_a_source_that_is_fetched_reaches_the_template(source: Source, expected: str, directory: Path) -> None:
    """What pins it too; nothing of it lies in the build context."""
    (directory / "debian.Dockerfile.j2").write_text(EVERY_KIND)
    request = replace(REQUEST, source=source)
    assert templates.render(request, directory).rstrip("\n") == expected
    assert set(members(context_of(request, directory))) == {"Dockerfile", "modules"}


@pytest.mark.parametrize(("source", "expected"), KINDS)
def test_a_template_for_other_sources_is_not_asked(source: Source, expected: str, directory: Path) -> None:
    """It would build nothing, and fail with the words of a COPY that finds no files."""
    kind = type(source).__name__.removeprefix("Source").lower()
    with pytest.raises(BuildFailed, match=rf"debian\.Dockerfile\.j2 cannot build from spec\.source\.{kind}") as caught:
        templates.render(replace(REQUEST, source=source), directory)
    assert caught.value.reason is Reason.TEMPLATE_INVALID
    assert expected


def members(context: bytes) -> dict[str, tarfile.TarInfo]:
    """The entries of a build context, by name."""
    with tarfile.open(fileobj=io.BytesIO(context)) as tar:
        return {member.name: member for member in tar}


def test_the_context_holds_what_the_dockerfile_copies(directory: Path) -> None:
    """Folders come before their files, scripts can be run, everything is of root and of 1970."""
    context = context_of(REQUEST, directory)
    entries = members(context)
    assert list(entries) == sorted(entries)
    assert {name for name, entry in entries.items() if entry.isdir()} == {"source", "source/hw"}
    assert {name for name, entry in entries.items() if entry.mode == 0o755 and entry.isfile()} == {
        "source/build.sh",
    }
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, 0)}
    with tarfile.open(fileobj=io.BytesIO(context)) as tar:
        content = tar.extractfile("modules")
        assert content is not None
        assert content.read() == b"edudrv debug=1 ids=1,2\nedu-net\n"


def test_equal_requests_give_equal_contexts(directory: Path) -> None:
    """The engine's cache is found again, whatever order a ConfigMap's keys come in."""
    assert isinstance(REQUEST.source, SourceFiles)
    turned = SourceFiles(files=dict(sorted(REQUEST.source.files.items(), reverse=True)))
    again = replace(REQUEST, recipe="other", source=turned, args=dict(sorted(REQUEST.args.items())))
    assert context_of(again, directory) == context_of(REQUEST, directory)


def test_nothing_of_the_loader_goes_into_a_build() -> None:
    """Its script is in no image of a driver: a fix of it rebuilds none."""
    directory = templates.templates_directory()
    for path in directory.glob("*.Dockerfile.j2"):
        request = replace(REQUEST, template=path.name.removesuffix(".Dockerfile.j2"))
        context = context_of(request, directory)
        assert {name.partition("/")[0] for name in members(context)} == {"Dockerfile", "modules", "source"}
        with tarfile.open(fileobj=io.BytesIO(context)) as tar:
            content = tar.extractfile("Dockerfile")
            assert content is not None
            assert b"loader" not in content.read()


def test_an_empty_source_is_still_a_folder(directory: Path) -> None:
    """COPY source/ finds it, and make says what is missing."""
    request = replace(REQUEST, source=SourceFiles(files={}))
    assert "source" in members(context_of(request, directory))


BAD_VALUES = [
    pytest.param({"template": "../etc"}, "template '../etc'", id="template outside its folder"),
    pytest.param({"base_image": "debian\nRUN x"}, "baseImage", id="base image with a second line"),
    pytest.param({"base_image": "debian AS x"}, "baseImage", id="base image with a blank"),
    pytest.param({"base_image": "Debian"}, "baseImage 'Debian'", id="base image in capitals"),
    pytest.param({"base_image": ""}, "baseImage ''", id="no base image"),
    pytest.param({"base_image": "debian:12\n"}, "baseImage", id="base image with a line end"),
    pytest.param({"args": {"1A": "x"}}, "argument name '1A'", id="argument name that begins with a digit"),
    pytest.param({"args": {"A": "x; rm"}}, "argument A 'x; rm'", id="argument with a second command"),
    pytest.param({"args": {"A": "$(id)"}}, "argument A", id="argument with a substitution"),
    pytest.param({"args": {"A": "a'b"}}, "argument A", id="argument with a quote"),
    pytest.param({"args": {"A": "a\nb"}}, "argument A", id="argument with two lines"),
    pytest.param({"modules": ()}, "modules", id="no module"),
    pytest.param({"modules": (ModuleSpec(name="a b"),)}, "module name 'a b'", id="module with a blank"),
    pytest.param(
        {"modules": (ModuleSpec(name="a", parameters=("x=1 y",)),)}, "parameter of a", id="parameter with a blank"
    ),
    pytest.param(
        {"modules": (ModuleSpec(name="a", parameters=("x=\x07",)),)}, "parameter of a", id="control character"
    ),
    pytest.param(
        {"modules": (ModuleSpec(name="a", parameters=("=1",)),)}, "parameter of a", id="parameter without name"
    ),
    pytest.param({"source": SourceImage(reference="debian:12", path="/")}, "must be pinned", id="source image by tag"),
    pytest.param({"source": SourceImage(reference=PINNED, path="src")}, "source path 'src'", id="relative path"),
    pytest.param({"source": SourceImage(reference=PINNED, path="/a/../b")}, "source path", id="path with .."),
    pytest.param({"source": SourceFiles(files={"../x": b""})}, "source file '../x'", id="file outside the source"),
    pytest.param({"source": SourceFiles(files={"/x": b""})}, "source file '/x'", id="absolute file"),
    pytest.param({"source": SourceFiles(files={"a/": b""})}, "source file 'a/'", id="file that is a folder"),
    pytest.param({"source": SourceGit(url="ssh://git@x/y", commit=COMMIT)}, "git url", id="git by ssh"),
    pytest.param({"source": SourceGit(url="https://u:p@x/y", commit=COMMIT)}, "without a user", id="git password"),
    pytest.param({"source": SourceGit(url="file:///etc", commit=COMMIT)}, "git url", id="git from the engine's files"),
    pytest.param({"source": SourceGit(url="ext::sh -c id", commit=COMMIT)}, "git url", id="git by a command"),
    pytest.param({"source": SourceGit(url='https://x/"; id', commit=COMMIT)}, "git url", id="git url with a quote"),
    pytest.param({"source": SourceGit(url=URL, commit="main")}, "git commit 'main'", id="branch"),
    pytest.param({"source": SourceGit(url=URL, commit=COMMIT[:12])}, "a full commit hash", id="abbreviated commit"),
    pytest.param({"source": SourceGit(url=URL, commit=COMMIT, path="../x")}, "git path", id="folder outside git"),
    pytest.param({"source": SourceArchive(url="ftp://x/y", sha256=SHA256)}, "archive url", id="archive by ftp"),
    pytest.param({"source": SourceArchive(url="https://x/$(id)", sha256=SHA256)}, "archive url", id="url that runs"),
    pytest.param({"source": SourceArchive(url=URL, sha256="")}, "archive sha256", id="archive without checksum"),
    pytest.param({"source": SourceArchive(url=URL, sha256=SHA256, path="/x")}, "archive path", id="absolute folder"),
    pytest.param({"source": SourcePackage(name="a b")}, "package name", id="package with a blank"),
    pytest.param({"source": SourcePackage(name="-o=x")}, "package name", id="package that is an option"),
    pytest.param({"source": SourcePackage(name="a-dkms", version="1 2")}, "package version", id="version with a blank"),
    pytest.param({"driver": "a b"}, "driver 'a b'", id="driver with a blank"),
    pytest.param({"version": "1\n"}, "version", id="version with a line end"),
]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"base_image": "driverwright-cache/1-2:latest"}, id="base image"),
        pytest.param(
            {"source": SourceImage(reference=f"docker.io/{RESERVED}", path="/")},
            id="source",
        ),
    ],
)
def test_what_builds_leave_in_the_engine_is_refused(changes: dict[str, Any]) -> None:
    """It is the source of other drivers."""
    with pytest.raises(BuildFailed, match="reserved for the builder's own images"):
        template_values(replace(REQUEST, **changes))


@pytest.mark.parametrize(("changes", "message"), BAD_VALUES)
def test_a_value_that_could_change_the_dockerfile_is_refused(
    changes: dict[str, Any], message: str, directory: Path
) -> None:
    """The message names the field, the value, and what may be written instead."""
    with pytest.raises(BuildFailed) as caught:
        context_of(replace(REQUEST, **changes), directory)
    assert caught.value.reason is Reason.TEMPLATE_INVALID
    assert message in str(caught.value)


COMPONENT = st.from_regex(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", fullmatch=True)


@given(
    host=st.sampled_from(["", "localhost/", "registry.example.com/", "10.0.0.1:5000/"]),
    components=st.lists(COMPONENT, min_size=1, max_size=4),
    tag=st.from_regex(r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?", fullmatch=True),
    digest=st.sampled_from(["", "@sha256:" + "a" * 64]),
)
def test_every_reference_of_the_oci_grammar_is_accepted(
    host: str, components: list[str], tag: str, digest: str
) -> None:
    """Nobody is kept from a registry by too narrow a pattern."""
    reference = f"{host}{'/'.join(components)}{tag}{digest}"
    assert template_values(replace(REQUEST, base_image=reference))["base_image"] == reference


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"source": SourceGit(url="https://xn--bcher-kva.example/a", commit=COMMIT)}, id="punycode"),
        pytest.param({"source": SourcePackage(name="kmod_NVIDIA")}, id="package of rpm"),
        pytest.param({"source": SourcePackage(name="a")}, id="package of one letter"),
        pytest.param({"modules": (ModuleSpec(name="a", parameters=("x.y=1", "x-y=1")),)}, id="parameters"),
    ],
)
def test_what_a_spec_may_say_is_rendered(changes: dict[str, Any]) -> None:
    """The rules are those of the spec; the parser accepted these and no build was possible."""
    request = replace(REQUEST, **changes)
    assert template_values(request)
    assert modules_text(request.modules)


@given(st.text(min_size=1))
def test_no_text_breaks_out_of_its_word(text: str) -> None:
    """What is accepted as an argument, a parameter or a reference has no blank, quote, $ or control character."""
    changes: list[dict[str, Any]] = [
        {"base_image": text},
        {"args": {"A": text}},
        {"modules": (ModuleSpec(name="a", parameters=(f"p={text}",)),)},
        {"source": SourceGit(url=f"https://x/{text}", commit=COMMIT)},
        {"source": SourceGit(url=URL, commit=COMMIT, path=text)},
        {"source": SourceArchive(url=text, sha256=SHA256)},
        {"source": SourcePackage(name=text)},
        {"source": SourcePackage(name="a-dkms", version=text)},
    ]
    for change in changes:
        request = replace(REQUEST, **change)
        try:
            template_values(request)
            modules_text(request.modules)
        except BuildFailed:
            continue
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & set(" \"'`$\\")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("FROM {{ nothing }}", "'nothing' is undefined", id="unknown variable"),
        pytest.param("{% if %}", "cannot be rendered", id="syntax error"),
        pytest.param("{{ modules + 1 }}", "cannot be rendered", id="an expression that fails"),
    ],
)
def test_a_template_with_an_error_is_named(text: str, message: str, directory: Path) -> None:
    """A typing error in a template never becomes an empty word."""
    (directory / "debian.Dockerfile.j2").write_text(text)
    with pytest.raises(BuildFailed, match=r"debian\.Dockerfile\.j2:1 ") as caught:
        templates.render(REQUEST, directory)
    assert message in str(caught.value)


@pytest.fixture
def part(directory: Path) -> Path:
    """A part that the template includes in its second line, after a source it does not mention itself."""
    (directory / "debian.Dockerfile.j2").write_text('FROM x\n{% include "parts/source.j2" %}\n')
    file = directory / "parts" / "source.j2"
    file.parent.mkdir()
    file.write_text("COPY {{ source_git or 'source' }}\n")
    return file


def test_a_part_is_rendered_in_its_place(part: Path, directory: Path) -> None:
    """With all values, and what it mentions counts as mentioned by the template."""
    assert templates.render(REQUEST, directory) == "FROM x\nCOPY source\n"
    git = replace(REQUEST, source=SourceGit(url="https://example.com/a.git", commit="1" * 40, path=""))
    assert templates.render(git, directory) == "FROM x\nCOPY https://example.com/a.git\n"
    part.write_text("COPY\n")
    with pytest.raises(BuildFailed, match=r"cannot build from spec\.source\.git"):
        templates.render(git, directory)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a\n{{ nothing }}", "template parts/source.j2:2 cannot be rendered: 'nothing' is", id="a value"),
        pytest.param("a\nb\n{% if %}", "template parts/source.j2:3 cannot be rendered", id="syntax"),
        pytest.param("{% include 'parts/b.j2' %}", "it cannot include 'parts/b.j2'", id="a part that is not there"),
    ],
)
def test_an_error_in_a_part_is_reported_by_its_line(text: str, message: str, part: Path, directory: Path) -> None:
    """Not by that of the template which includes it."""
    part.write_text(text)
    with pytest.raises(BuildFailed, match=re.escape(message)):
        templates.render(REQUEST, directory)


def own(text: str, **changes: Any) -> BuildRequest:
    """Ask for a build by a template of the admin's own."""
    template = OwnTemplate(place="ConfigMap team/edu/Dockerfile.j2", text=text)
    return replace(REQUEST, template="own", own_template=template, **changes)


def test_an_own_template_is_given_the_same_values(directory: Path) -> None:
    """It takes the place of ours, whatever that is called."""
    assert templates.render(own(TEMPLATE), directory) == templates.render(REQUEST, directory)
    assert set(members(context_of(own("FROM scratch"), directory))) >= {"Dockerfile", "modules"}


def test_an_error_in_an_own_template_is_reported_by_its_line(directory: Path) -> None:
    """With the ConfigMap and its key; it is the template's fault."""
    with pytest.raises(BuildFailed) as caught:
        templates.render(own("a\nb\n{{ nothing }}"), directory)
    assert caught.value.reason is Reason.TEMPLATE_INVALID
    assert str(caught.value).startswith("template ConfigMap team/edu/Dockerfile.j2:3 cannot be rendered: 'nothing' is")


def test_firmware_is_not_left_out(directory: Path) -> None:
    """A template that does not know of it is not asked; its path is a word."""
    with pytest.raises(BuildFailed, match=r"leaves out spec\.module\.firmwarePath: it does not mention firmware_path"):
        templates.render(replace(REQUEST, firmware_path="/source/fw"), directory)
    knows = own("COPY {{ firmware_path }} /out", firmware_path="/source/fw")
    assert templates.render(knows, directory) == "COPY /source/fw /out"
    with pytest.raises(BuildFailed, match=r"module\.firmwarePath '/a b' cannot be written to a Dockerfile"):
        templates.render(replace(knows, firmware_path="/a b"), directory)


def test_further_packages_are_not_left_out(directory: Path) -> None:
    """A template that does not know of them is refused; their names are words."""
    with pytest.raises(BuildFailed, match=r"leaves out spec\.build\.packages: it does not mention build_packages"):
        templates.render(replace(REQUEST, packages=("g++",)), directory)
    knows = own("{{ build_packages | join(' ') }}", packages=("g++", "spatch"))
    assert templates.render(knows, directory) == "g++ spatch"
    assert templates.render(replace(knows, packages=()), directory) == ""
    with pytest.raises(BuildFailed, match="build package '--yes' cannot be written to a Dockerfile"):
        templates.render(replace(knows, packages=("--yes",)), directory)


def test_a_user_space_is_not_left_out(directory: Path) -> None:
    """A template that does not know of it is refused; its values are words."""
    content = UserspacePackages(pins=(("a", "1-1"), ("b", "1-2")))
    with pytest.raises(BuildFailed, match=r"leaves out spec\.userspace: it does not mention userspace_packages"):
        templates.render(replace(REQUEST, userspace=Userspace(content=content)), directory)
    text = "{{ userspace_packages | join(' ') }} {{ userspace_archive }}"
    knows = own(text, userspace=Userspace(content=content))
    assert templates.render(knows, directory) == "a=1-1 b=1-2 None"
    wrong = Userspace(content=UserspacePackages(pins=(("a b", "1"),)))
    with pytest.raises(BuildFailed, match="userspace package 'a b' cannot be written to a Dockerfile"):
        templates.render(replace(knows, userspace=wrong), directory)


def test_an_unknown_template_is_refused_with_the_known_ones(directory: Path) -> None:
    """The admin sees what could be written."""
    with pytest.raises(BuildFailed, match="there is no template 'ubuntu'; known: debian"):
        templates.render(replace(REQUEST, template="ubuntu"), directory)


@pytest.mark.parametrize("line", ["{# recipe: 12 #}", "{#- recipe:12 -#}", "{# recipe: 12 #} {# more words #}"])
def test_a_recipe_has_the_version_that_its_template_says(line: str, directory: Path) -> None:
    """The number is what a build key has of it, whatever else the text says."""
    path = directory / "debian.Dockerfile.j2"
    for rest in (TEMPLATE, TEMPLATE + "# a comment\n"):
        path.write_text(f"{line}\n{rest}")
        assert templates.template_versions(directory) == {"debian": "debian:12"}


@pytest.mark.parametrize(
    "line", ["", "{# recipe: #}", "{# recipe: 0 #}", "FROM x {# recipe: 1 #}", "\n{# recipe: 1 #}"]
)
def test_a_template_without_a_version_is_refused(line: str, directory: Path) -> None:
    """An image would never be built again for it, or for everything; the message has the line to write."""
    path = directory / "debian.Dockerfile.j2"
    path.write_text(f"{line}\nFROM x\n")
    with pytest.raises(ConfigurationError, match=re.escape(f"{path} has no version: write {{# recipe: 1 #}}")):
        templates.template_versions(directory)


def copied_package(root: Path) -> Path:
    """Where the package's own file would lie below ``root``."""
    return root / "driver_builder" / "builds" / "templates" / "templates.py"


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda root: root / "dockerfiles" / "driver", id="a checkout"),
        pytest.param(lambda root: root / "share" / "driverwright" / "dockerfiles" / "driver", id="an installation"),
    ],
)
def test_the_templates_are_found(
    place: Callable[[Path], Path], directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the package, or below the interpreter's prefix."""
    monkeypatch.setattr(templates, "__file__", str(copied_package(tmp_path)))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    place(tmp_path).mkdir(parents=True)
    shutil.move(directory / "debian.Dockerfile.j2", place(tmp_path))
    assert templates.templates_directory() == place(tmp_path)


def test_a_folder_without_templates_is_refused(tmp_path: Path) -> None:
    """The folder that was given is named, and no other one is taken silently."""
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        templates.templates_directory(tmp_path)
