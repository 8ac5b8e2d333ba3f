"""Which of the machine's apt archives are Debian's own."""

from testbed.apt_sources import (
    Archive,
    archives_of,
    debian_archives,
    parse_index_targets,
    parse_os_release,
    sources_text,
)


def target(
    codename: str, *, origin: str = "Debian", component: str = "main", site: str = "http://mirror.test/debian/"
) -> str:
    """Return one paragraph as `apt-get indextargets` prints it."""
    return (
        f"MetaKey: {component}/binary-amd64/Packages\nCodename: {codename}\nOrigin: {origin}\nTrusted: yes\n"
        f"Component: {component}\nRepo-URI: {site}\nRelease: {codename}\n"
    )


def archives(*paragraphs: str) -> list[Archive]:
    """Return the archives chosen from paragraphs."""
    return debian_archives(parse_index_targets("\n".join(paragraphs)), "bookworm")


def test_the_base_suite_comes_first_and_security_is_kept() -> None:
    """The order is that of the suites, whatever apt's order was."""
    found = archives(
        target("bookworm-security", site="http://mirror.test/security/"), target("bookworm-updates"), target("bookworm")
    )
    assert [archive.suite for archive in found] == ["bookworm", "bookworm-updates", "bookworm-security"]
    assert found[2].uri == "http://mirror.test/security"


def test_components_of_one_suite_are_joined() -> None:
    """Several components of one suite make one archive."""
    found = archives(target("bookworm"), target("bookworm", component="contrib"))
    assert found == [Archive(uri="http://mirror.test/debian", suite="bookworm", components=("main", "contrib"))]


def test_a_third_party_that_uses_the_suite_name_is_left_out() -> None:
    """The name of the suite alone proves nothing."""
    assert archives(target("bookworm", origin="Somebody Else")) == []


def test_other_suites_are_left_out() -> None:
    """Neither another release nor a third party's own suite is taken."""
    assert archives(target("sid"), target("nodistro", origin="Node Source")) == []


def test_an_archive_that_apt_does_not_trust_is_left_out() -> None:
    """An archive without a signature is not used."""
    assert archives(target("bookworm").replace("Trusted: yes", "Trusted: no")) == []


def test_backports_are_kept() -> None:
    """Backports carry further kernels and call their origin differently."""
    assert [archive.suite for archive in archives(target("bookworm-backports", origin="Debian Backports"))] == [
        "bookworm-backports"
    ]


OWN = archives(
    target("bookworm"),
    target("bookworm-updates"),
    target("bookworm-security", site="http://mirror.test/security/"),
    target("bookworm-backports", origin="Debian Backports"),
)


def test_another_release_lies_beside_this_one() -> None:
    """Its suites are at the same addresses; its backports only where they are asked for."""
    there = {archive.suite: archive.uri.rpartition("/")[2] for archive in archives_of(OWN, "trixie", backports=True)}
    assert there == {
        "trixie": "debian", "trixie-updates": "debian", "trixie-security": "security", "trixie-backports": "debian"
    }  # fmt: skip
    assert [archive.suite for archive in archives_of(OWN, "trixie")] == list(there)[:3]


def test_the_own_release_is_as_it_is_and_sid_has_one_suite() -> None:
    """Neither updates nor a security archive of sid exist."""
    assert archives_of(OWN, "bookworm") == OWN
    assert [archive.suite for archive in archives_of(OWN, "sid", backports=True)] == ["sid"]


def test_sources_name_the_keyring_and_every_type() -> None:
    """Each archive is written once for binaries and once for sources."""
    text = sources_text(archives(target("bookworm")), ("deb", "deb-src"))
    assert text.splitlines() == [
        f"{kind} [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.test/debian bookworm main"
        for kind in ("deb", "deb-src")
    ]


def test_os_release_values_lose_their_quotes() -> None:
    """Comments and quotes are not part of the values."""
    assert parse_os_release('# comment\nID=debian\nVERSION_ID="12"\n') == {"ID": "debian", "VERSION_ID": "12"}
