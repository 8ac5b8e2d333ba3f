"""What an image says about how it was made."""

import json
from dataclasses import replace

import pytest

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.builds.pipeline.provenance import config_digest, provenance, public_url
from driver_builder.builds.pipeline.verified_image import VerifiedImage
from driver_builder.model import images
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
from driver_builder.model.userspace import Userspace, UserspacePackages
from driver_builder.modules.verify import VerifiedModule
from tests.support.driver_builder.factories import target
from tests.support.driver_builder.module_signing import a_signer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
USERSPACE = Userspace(content=UserspacePackages(pins=(("libedu1", "1.0-1"),)))
REQUEST = BuildRequest(
    recipe="k1",
    driver=DriverKey("team/edu"),
    version="1.2",
    target=target(),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={"a.c": b"int x;"}),
    modules=(ModuleSpec(name="edudrv", parameters=("debug=1",)),),
)
MODULE = VerifiedModule(name="edudrv", path="/x", srcversion="A1", build_id="b2", vermagic="6.1 SMP")
MADE = VerifiedImage(
    image=ImageArchive(config={}, layers=()),
    module_symvers="",
    compiler="gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
    modules=(MODULE,),
)


def test_everything_that_went_in_is_written_down() -> None:
    """Under keys of OCI where it has one, under our own else; no time, so that digests can be reproduced."""
    assert provenance(REQUEST, MADE) == {
        "io.driverwright.build-key": REQUEST.key,
        "io.driverwright.driver": "team/edu",
        "org.opencontainers.image.version": "1.2",
        "io.driverwright.kernel": "6.1.0-55-cloud-amd64",
        "io.driverwright.os": "debian:12",
        "io.driverwright.architecture": "amd64",
        "io.driverwright.compiler": "gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
        "io.driverwright.module-symvers": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "io.driverwright.modules": '[{"identity": "A1", "name": "edudrv", "vermagic": "6.1 SMP"}]',
        "io.driverwright.build-image": "debian:bookworm-slim",
        "io.driverwright.config": config_digest(REQUEST),
        "io.driverwright.source": "files sha256:8e5e7027c842a6baf2ef5bd7b25deed193cfcf0a1a73c7a2a89b1dd8fe58ac83",
    }


def test_modules_that_the_named_ones_need_are_written_down_where_there_are_any() -> None:
    """Each once, under a label of their own: what reads the named ones finds no others among them."""
    needing = replace(MODULE, needs=(("edubase", "B2"), ("educore", "A2")))
    facts = provenance(REQUEST, replace(MADE, modules=(needing, replace(needing, name="second"))))
    assert json.loads(facts["io.driverwright.needed-modules"]) == [
        {"name": "edubase", "identity": "B2"},
        {"name": "educore", "identity": "A2"},
    ]
    assert [module["name"] for module in json.loads(facts["io.driverwright.modules"])] == ["edudrv", "second"]


def test_a_signer_is_written_down_where_there_is_one() -> None:
    """Whose key the modules are signed with."""
    facts = provenance(replace(REQUEST, signing_certificate=a_signer("ours").der), MADE)
    assert "'ours'" in facts["io.driverwright.module-signer"]


@pytest.mark.parametrize(
    ("source", "words", "url", "revision"),
    [
        pytest.param(
            SourceGit(url="https://anna:s3cret@git.example.com/edu.git?token=s3cret", commit=COMMIT, path="driver"),
            f"git https://git.example.com/edu.git {COMMIT} driver",
            "https://git.example.com/edu.git",
            COMMIT,
            id="git",
        ),
        pytest.param(
            SourceArchive(url="https://example.com/edu.tar.gz?token=s3cret", sha256="a" * 64),
            f"archive https://example.com/edu.tar.gz sha256:{'a' * 64}",
            "https://example.com/edu.tar.gz",
            f"sha256:{'a' * 64}",
            id="archive",
        ),
        pytest.param(
            SourceImage(reference=f"r.io/src@sha256:{'b' * 64}", path="/src"),
            f"image r.io/src@sha256:{'b' * 64} /src",
            None,
            None,
            id="image",
        ),
        pytest.param(SourcePackage(name="v4l2loopback-dkms"), "package v4l2loopback-dkms", None, None, id="package"),
        pytest.param(SourcePackage(name="a-dkms", version="1~2"), "package a-dkms 1~2", None, None, id="its version"),
    ],
)
def test_a_source_is_named_without_its_password(
    source: Source, words: str, url: str | None, revision: str | None
) -> None:
    """By where it came from and by what pins it; the standard keys only where they mean just that."""
    facts = provenance(replace(REQUEST, source=source), MADE)
    assert facts["io.driverwright.source"] == words
    assert facts.get("org.opencontainers.image.source") == url
    assert facts.get("org.opencontainers.image.revision") == revision
    assert "s3cret" not in str(facts)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        pytest.param("https://git.example.com:8443/a.git", "https://git.example.com:8443/a.git", id="nothing to hide"),
        pytest.param("https://token@git.example.com/a", "https://git.example.com/a", id="a token for a user"),
        pytest.param("https://a:p@ss@git.example.com/a#x", "https://git.example.com/a", id="an @ in the password"),
    ],
)
def test_a_public_url_has_no_secret(url: str, expected: str) -> None:
    """User, password, query and fragment are gone."""
    assert public_url(url) == expected


def test_a_user_space_is_known_by_its_files_and_by_what_it_is_made_of() -> None:
    """Links between files are only in the latter."""
    request, files = replace(REQUEST, userspace=USERSPACE), {"/userspace/a": "1"}
    known = {
        provenance(asked, MADE, userspace=found)[images.USERSPACE_LABEL]
        for asked, found in (
            (request, files),
            (request, {"/userspace/a": "2"}),
            (replace(request, userspace=replace(USERSPACE, version_file="b")), files),
        )
    }
    assert len(known) == 3
    assert images.USERSPACE_LABEL not in provenance(REQUEST, MADE)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(REQUEST, template="ubuntu"), id="template"),
        pytest.param(replace(REQUEST, own_template=OwnTemplate(place="", text="FROM x")), id="own template"),
        pytest.param(replace(REQUEST, firmware_path="/source/fw"), id="firmware"),
        pytest.param(replace(REQUEST, userspace=USERSPACE), id="user space"),
        pytest.param(replace(REQUEST, args={"DEBUG": "1"}), id="arguments"),
        pytest.param(replace(REQUEST, modules=(ModuleSpec(name="edudrv"),)), id="parameters"),
    ],
)
def test_another_configuration_has_another_digest(changed: BuildRequest) -> None:
    """Of what is not source and not kernel."""
    assert config_digest(changed) != config_digest(REQUEST)
    assert config_digest(replace(REQUEST, recipe="r2", version="2")) == config_digest(REQUEST)
