"""Which kernel a node can move to: its own stream's newest, and nothing that a person would have to decide on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.prebuild.newest_kernel import family_of, is_newer, newest, stream_of
from tests.support.driver_builder.factories import target

DEBIAN_12 = (
    *("6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64", "6.1.0-56-cloud-amd64", "6.1.0-57-amd64", "6.1.0-57-common"),
    *("6.12.9+deb12-cloud-amd64", "6.12.107+deb12-cloud-amd64", "6.12.30+deb13-cloud-amd64", "6.12-cloud-amd64"),
    *("6.6.13+bpo-cloud-amd64", "6.10.11+bpo-cloud-amd64", "6.1.0-57-rt-amd64"),
)


@pytest.mark.parametrize(
    ("os_id", "running", "releases", "expected"),
    [
        pytest.param("debian", "6.1.0-9-cloud-amd64", DEBIAN_12, "6.1.0-56-cloud-amd64", id="Debian, its flavour"),
        pytest.param("debian", "6.1.0-55-amd64", DEBIAN_12, "6.1.0-57-amd64", id="Debian, plain flavour"),
        pytest.param("debian", "6.1.0-55-rt-amd64", DEBIAN_12, "6.1.0-57-rt-amd64", id="Debian, real-time"),
        pytest.param("debian", "6.12.9+deb12-cloud-amd64", DEBIAN_12, "6.12.107+deb12-cloud-amd64",
                     id="Debian, newer series of the same release"),
        pytest.param("debian", "6.6.13+bpo-cloud-amd64", DEBIAN_12, "6.10.11+bpo-cloud-amd64",
                     id="Debian backports go from series to series"),
        pytest.param("debian", "6.1.0-0.deb11.5-amd64", ["6.1.0-0.deb11.28-amd64"], "6.1.0-0.deb11.28-amd64",
                     id="Debian 11 backports"),
        pytest.param("debian", "6.12.41+deb13+1-amd64", ["6.12.41+deb13+2-amd64"], "6.12.41+deb13+2-amd64",
                     id="Debian, two uploads of one version"),
        pytest.param("debian", "6.12.115+deb13-amd64", ["6.12.115+deb13.1-amd64", "7.2.12+deb13-amd64"],
                     "6.12.115+deb13.1-amd64", id="Debian 13, a second build, and its backports"),
        pytest.param("debian", "6.1.0-9-arm64", DEBIAN_12, None, id="Debian, another machine's repository"),
        pytest.param("ubuntu", "5.15.0-117-generic",
                     ["5.15.0-118-generic", "5.15.0-1100-aws", "6.8.0-40-generic", "5.15.0-119-generic-64k"],
                     "5.15.0-118-generic", id="Ubuntu, no jump to hardware enablement"),
        pytest.param("ubuntu", "6.5.0-1014-aws", ["6.5.0-1022-aws", "6.8.0-1009-aws"], "6.5.0-1022-aws",
                     id="Ubuntu on AWS"),
        pytest.param("rocky", "5.14.0-427.el9_4.x86_64",
                     ["5.14.0-427.5.1.el9_4.x86_64", "5.14.0-427.13.1.el9_4.x86_64", "5.14.0-503.11.1.el9_5.x86_64",
                      "5.14.0-427.40.1.el9_4.x86_64+rt", "5.14.0-427.40.1.el9_4.aarch64"],
                     "5.14.0-427.13.1.el9_4.x86_64", id="RHEL family, its minor release"),
        pytest.param("rhel", "5.14.0-427.13.1.el9_4.x86_64+rt", ["5.14.0-427.40.1.el9_4.x86_64+rt"],
                     "5.14.0-427.40.1.el9_4.x86_64+rt", id="RHEL real-time"),
        pytest.param("rhel", "4.18.0-553.5.1.rt7.346.el8_10.x86_64",
                     ["4.18.0-553.8.1.rt7.349.el8_10.x86_64", "4.18.0-553.16.1.el8_10.x86_64"],
                     "4.18.0-553.8.1.rt7.349.el8_10.x86_64", id="RHEL 8 real-time"),
        pytest.param("centos", "5.14.0-437.el9.x86_64", ["5.14.0-480.el9.x86_64"], "5.14.0-480.el9.x86_64",
                     id="CentOS Stream"),
        pytest.param("ol", "5.15.0-209.161.7.2.el9uek.x86_64",
                     ["5.15.0-300.163.18.1.el9uek.x86_64", "6.12.0-100.28.2.el9uek.x86_64"],
                     "5.15.0-300.163.18.1.el9uek.x86_64", id="Oracle UEK stays on its series"),
        pytest.param("fedora", "6.8.9-300.fc40.x86_64", ["6.14.5-100.fc40.x86_64", "6.14.6-200.fc41.x86_64"],
                     "6.14.5-100.fc40.x86_64", id="Fedora moves from series to series"),
        pytest.param("amzn", "6.1.112-122.189.amzn2023.x86_64",
                     ["6.1.115-126.197.amzn2023.x86_64", "6.12.22-27.96.amzn2023.x86_64"],
                     "6.1.115-126.197.amzn2023.x86_64", id="Amazon Linux"),
        pytest.param("sles", "6.4.0-150600.23.7-default",
                     ["6.4.0-150600.23.25-default", "6.4.0-150700.53.3-default", "6.4.0-150600.8.37-azure"],
                     "6.4.0-150600.23.25-default", id="SLES, its service pack"),
        pytest.param("opensuse-tumbleweed", "6.10.2-1-default", ["6.11.0-1-default"], "6.11.0-1-default",
                     id="Tumbleweed"),
    ],
)  # fmt: skip
def test_the_newest_of_the_nodes_own_stream(
    os_id: str, running: str, releases: list[str], expected: str | None
) -> None:
    """As the package manager of the node would choose, without a person who decides on another series."""
    stream = stream_of(os_id, running)
    assert stream
    assert newest(os_id, stream, releases) == expected
    if expected is not None:
        assert is_newer(target(running, os_id=os_id), expected)
        assert not is_newer(target(expected, os_id=os_id), running)


@pytest.mark.parametrize(
    ("os_id", "release", "stream"),
    [
        pytest.param("debian", "6.1.0-56-cloud-amd64", "6.1 cloud-amd64", id="Debian"),
        pytest.param("debian", "6.12.107+deb13-amd64", "6.12 deb13 amd64", id="Debian 13"),
        pytest.param("debian", "6.10.11+bpo-amd64", "bpo amd64", id="Debian backports"),
        pytest.param("rocky", "5.14.0-427.13.1.el9_4.x86_64+rt", "5.14 el9_4 x86_64 rt", id="Rocky"),
        pytest.param("flatcar", "6.6.65-flatcar", None, id="no packages"),
        pytest.param("gentoo", "6.6.65-gentoo", None, id="unknown distribution"),
        pytest.param("debian", "6.6.52-custom+", None, id="own kernel"),
        pytest.param("debian", "6.1.0", None, id="without flavour"),
        pytest.param("debian", "junk!", None, id="not a valid kernel release"),
    ],
)
def test_a_stream_has_words_that_people_can_read(os_id: str, release: str, stream: str | None) -> None:
    """They stand in the status; a kernel that came from no package of the distribution has none."""
    assert stream_of(os_id, release) == stream


@pytest.mark.parametrize(
    ("os_id", "release"),
    [
        pytest.param("debian", "6.1.0" + ".1" * 28 + "_a", id="Debian"),
        pytest.param("debian", "6.1.0" + ".1" * 500 + "_a", id="Debian, in an annotation"),
        pytest.param("ubuntu", "5.15.0-" + "1" * 55 + "_", id="Ubuntu"),
        pytest.param("rhel", "5.14.0-1.rt" + "1.1" * 14 + ".el9" + "_" * 4 + "+", id="RHEL"),
        pytest.param("fedora", "6.1.0-1" + ".1" * 26 + ".fc", id="Fedora"),
        pytest.param("amzn", "6.1.0-1" + ".1" * 25 + ".amzn", id="Amazon Linux"),
        pytest.param("sles", "6.1.0-1" + ".1" * 27 + "_", id="SLES"),
    ],
)
def test_a_hostile_release_is_given_up_on(os_id: str, release: str) -> None:
    """A kubelet may label its node with anything: no release keeps the controller busy."""
    assert stream_of(os_id, release) is None


def test_no_kernel_is_newer_than_one_of_another_stream() -> None:
    """Nothing is said of kernels that nobody can compare."""
    assert not is_newer(target("6.1.0-9-amd64"), "6.12.107+deb13-amd64")
    assert not is_newer(target("6.6.65-custom", os_id="gentoo"), "6.6.66-custom")


@pytest.mark.parametrize(
    ("os_id", "family"), [("debian", "debian"), ("alma", None), ("almalinux", "rhel"), ("flatcar", None)]
)
def test_families_are_those_of_the_templates(os_id: str, family: str | None) -> None:
    """A distribution without kernel packages has no repository to ask."""
    assert family_of(os_id) == family


@given(st.permutations(["6.1.0-9-amd64", "6.1.0-10-amd64", "6.1.0-100-amd64"]), st.text(max_size=8))
def test_order_and_strange_words_do_not_matter(releases: list[str], strange: str) -> None:
    """What a repository prints is a set of words, some of which are no kernels."""
    assert newest("debian", "6.1 amd64", [strange, *releases]) == "6.1.0-100-amd64"
