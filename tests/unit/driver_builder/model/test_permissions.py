"""The settings of what drivers may use: how they are written, and what they match."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.model import permissions
from driver_builder.model.permissions import Permissions

components = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True)
paths = st.lists(components, min_size=1, max_size=4).map("/".join)
hosts = st.lists(components, min_size=2, max_size=3).map(".".join)


@pytest.mark.parametrize(
    ("pattern", "image", "is_allowed"),
    [
        pytest.param("r.io/drivers/edu", "r.io/drivers/edu:1", True, id="one repository"),
        pytest.param("r.io/drivers/edu", "r.io/drivers/edu@sha256:" + "d" * 64, True, id="one repository by digest"),
        pytest.param("r.io/drivers/edu", "r.io/drivers/edu2", False, id="a longer name"),
        pytest.param("r.io/drivers/edu", "r.io/drivers/edu/more", False, id="below one repository"),
        pytest.param("r.io/drivers/*", "r.io/drivers/edu", True, id="below a folder"),
        pytest.param("r.io/drivers/*", "r.io/drivers/a/b/c", True, id="far below a folder"),
        pytest.param("r.io/drivers/*", "r.io/drivers", False, id="the folder itself"),
        pytest.param("r.io/drivers/*", "r.io/drivers-evil/edu", False, id="a folder whose name begins alike"),
        pytest.param("r.io/*", "r.io/drivers/edu", True, id="a whole registry"),
        pytest.param("r.io/*", "r.io.evil.example/drivers/edu", False, id="a host whose name begins alike"),
        pytest.param("r.io/*", "r.io:5000/drivers/edu", False, id="another port"),
        pytest.param("r.io:5000/*", "r.io:5000/edu:1", True, id="a port"),
        pytest.param("R.io/*", "r.IO/edu", True, id="capitals in a host"),
        pytest.param("localhost/*", "localhost/edu", True, id="localhost"),
        pytest.param("docker.io/library/debian", "debian:bookworm-slim", True, id="a short name"),
        pytest.param("docker.io/debian", "docker.io/library/debian", True, id="a short name with its host"),
        pytest.param("docker.io/library/*", "rockylinux/rockylinux:9", False, id="a short name of somebody else"),
        pytest.param("docker.io/rockylinux/*", "rockylinux/rockylinux:9", True, id="an owner at Docker Hub"),
        pytest.param("index.docker.io/*", "debian", True, id="Docker Hub by another name"),
        pytest.param("docker.io/*", "quay.io/x", False, id="another registry"),
        pytest.param("docker.io/a/*,quay.io/*", "quay.io/x", True, id="the second pattern"),
        pytest.param("none", "r.io/x", False, id="nothing"),
    ],
)
def test_a_pattern_matches_whole_parts_of_a_path(pattern: str, image: str, is_allowed: bool) -> None:
    """A repository or all below a folder, whatever the tag; names without a host are Docker Hub's."""
    assert permissions.allows_image(permissions.repository_patterns(pattern), image) is is_allowed


def test_a_host_that_is_given_is_never_taken_for_docker_hub() -> None:
    """The controller would send its request to a host of that name."""
    patterns = permissions.repository_patterns("docker.io/*")
    assert not permissions.allows_repository(patterns, "internal", "drivers/edu")
    assert permissions.allows_repository(patterns, "docker.io", "drivers/edu")


@given(hosts, paths, paths)
def test_a_folder_allows_all_below_it_and_nothing_beside_it(host: str, folder: str, rest: str) -> None:
    """Whatever the names are."""
    patterns = permissions.repository_patterns(f"{host}/{folder}/*")
    assert permissions.allows_image(patterns, f"{host}/{folder}/{rest}")
    assert not permissions.allows_image(patterns, f"{host}/{folder}")
    assert not permissions.allows_image(patterns, f"{host}/{folder}x/{rest}")
    assert not permissions.allows_image(patterns, f"x{host}/{folder}/{rest}")


@pytest.mark.parametrize(
    ("pattern", "url", "is_allowed"),
    [
        pytest.param("github.com", "https://github.com/a/b", True, id="a host"),
        pytest.param("GitHub.com", "https://GITHUB.com/a/b", True, id="capitals"),
        pytest.param("github.com", "https://evil.github.com/a", False, id="below a host"),
        pytest.param("github.com", "https://github.com.evil.example/a", False, id="a name that begins alike"),
        pytest.param("*.example.com", "https://git.example.com/a", True, id="below a domain"),
        pytest.param("*.example.com", "https://a.git.example.com/a", True, id="far below a domain"),
        pytest.param("*.example.com", "https://example.com/a", False, id="the domain itself"),
        pytest.param("*.example.com", "https://evilexample.com/a", False, id="a name that ends alike"),
        pytest.param("github.com", "https://github.com:443/a", True, id="the scheme's own port"),
        pytest.param("github.com", "https://github.com:22/a", False, id="another port"),
        pytest.param("git.example.com:8443", "https://git.example.com:8443/a", True, id="a port"),
        pytest.param("git.example.com:8443", "https://git.example.com/a", False, id="not its own port"),
        pytest.param("mirror.example.com", "http://mirror.example.com", True, id="no path"),
        pytest.param("none", "https://github.com/a", False, id="nothing"),
    ],
)
def test_a_host_is_matched_whole(pattern: str, url: str, is_allowed: bool) -> None:
    """With the scheme's own port unless another one is named."""
    assert permissions.allows_url(permissions.host_patterns(pattern), url) is is_allowed


@pytest.mark.parametrize(
    ("labels", "selector", "is_allowed"),
    [
        pytest.param("pool=gpu", {"pool": "gpu"}, True, id="a label"),
        pytest.param("pool=gpu", {"pool": "gpu", "zone": "a"}, True, id="a label and another one"),
        pytest.param("pool=gpu,pool=fpga", {"pool": "fpga"}, True, id="the second label"),
        pytest.param("pool=gpu", {"pool": "web"}, False, id="another value"),
        pytest.param("pool=gpu", {"zone": "a"}, False, id="another label"),
        pytest.param("pool=gpu", {}, False, id="every node"),
        pytest.param("pool", {"pool": "web"}, True, id="any value"),
        pytest.param("pool=", {"pool": "web"}, False, id="the empty value"),
        pytest.param("pool=", {"pool": ""}, True, id="the empty value, selected"),
    ],
)
def test_a_selector_has_one_of_the_labels(labels: str, selector: dict[str, str], is_allowed: bool) -> None:
    """Labels beside it only select fewer nodes."""
    assert permissions.allows_selector(permissions.node_labels(labels), selector) is is_allowed


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        pytest.param(permissions.repository_patterns, "r.io", "'r.io' is not a pattern", id="a host alone"),
        pytest.param(permissions.repository_patterns, "debian", "'debian' is not a pattern", id="a short name"),
        pytest.param(permissions.repository_patterns, "drivers/edu", "is not a pattern", id="no host"),
        pytest.param(permissions.repository_patterns, "r.io/x:1", "is not a pattern", id="a tag"),
        pytest.param(permissions.repository_patterns, "r.io/x*", "is not a pattern", id="a part of a name"),
        pytest.param(permissions.repository_patterns, "r.io/*/x", "is not a pattern", id="a star inside"),
        pytest.param(permissions.repository_patterns, "*", "is not a pattern", id="everything"),
        pytest.param(permissions.repository_patterns, "r.io/../x", "is not a pattern", id="a way up"),
        pytest.param(permissions.repository_patterns, "https://r.io/x", "is not a pattern", id="a URL"),
        pytest.param(permissions.repository_patterns, "r.io/x,none", "none alone", id="nothing and something"),
        pytest.param(permissions.repository_patterns, " , ", "is not a list", id="commas"),
        pytest.param(permissions.repository_patterns, "r.io/x," * 257, "at most 256", id="very many"),
        pytest.param(permissions.host_patterns, "https://github.com", "is not a host", id="a URL for a host"),
        pytest.param(permissions.host_patterns, "github.com/a", "is not a host", id="a path"),
        pytest.param(permissions.host_patterns, "git*.com", "is not a host", id="a part of a host"),
        pytest.param(permissions.host_patterns, "*", "is not a host", id="every host"),
        pytest.param(permissions.host_patterns, "r.io:99999", "a port from 1 to 65535", id="a port that is too high"),
        pytest.param(permissions.host_patterns, "r.io:0", "a port from 1 to 65535", id="port 0"),
        pytest.param(permissions.host_patterns, "r.io:0443", "a port from 1 to 65535", id="a port with a leading 0"),
        pytest.param(permissions.repository_patterns, "r.io:65536/*", "a port from 1", id="a registry's port too high"),
        pytest.param(permissions.host_patterns, "None", "none alone, in lower case", id="nothing, with a capital"),
        pytest.param(permissions.node_labels, "NONE,pool=a", "in lower case", id="nothing in capitals, in a list"),
        pytest.param(permissions.node_labels, "a b=c", "is not a label", id="a key with a blank"),
        pytest.param(permissions.node_labels, "pool=!", "is not a label", id="a value that no label has"),
        pytest.param(permissions.namespaces, "apps,Jobs", "'Jobs' is not a namespace", id="a namespace in capitals"),
        pytest.param(permissions.namespaces, "a" * 64, "is not a namespace", id="a namespace that is too long"),
        pytest.param(permissions.resources, "cpu", "RESOURCE=QUANTITY", id="no amount"),
        pytest.param(permissions.resources, "cpu=lots", "is not a quantity", id="no quantity"),
        pytest.param(permissions.resources, "cpu=0", "an amount above 0", id="nothing of a resource"),
        pytest.param(permissions.resources, "cpus=4", "has no resource cpus", id="no resource of Kubernetes"),
        pytest.param(permissions.resources, "cpu=4,cpu=8", "twice", id="a resource twice"),
        pytest.param(permissions.resources, "memory=8", "a unit", id="bytes without a unit"),
    ],
)
def test_a_malformed_setting_is_named(read: Callable[[str], object], text: str, words: str) -> None:
    """The message has the word and says what to write."""
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        read(text)


def test_settings_that_are_not_given_limit_nothing() -> None:
    """Everything that worked before the settings existed is allowed."""
    assert permissions.read({setting.name: None for setting in permissions.SETTINGS}) == Permissions()
    nothing = Permissions()
    assert permissions.allows_image(nothing.base_images, "anything")
    assert permissions.allows_url(nothing.source_hosts, "https://anywhere/x")
    assert permissions.allows_selector(nothing.node_labels, {})


def test_a_setting_that_is_not_given_is_what_it_was() -> None:
    """Only what is given changes, a switch that is switched off as well."""
    known = Permissions(registries=("r.io/*",), source_hosts=(), protected_secrets=True, custom_templates=False)
    changed = permissions.read({"allowed_source_hosts": "github.com", "protect_secrets": "false"}, known)
    assert changed == replace(known, source_hosts=("github.com",), protected_secrets=False)
    assert permissions.read({}, known) == known


def test_the_last_port_is_one() -> None:
    """Ports from 1 to 65535 are taken."""
    assert permissions.host_patterns("r.io:1,r.io:65535") == ("r.io:1", "r.io:65535")


def test_a_resource_has_its_largest_amount() -> None:
    """As in a LimitRange."""
    assert permissions.resources("cpu=4, memory=8Gi") == {"cpu": "4", "memory": "8Gi"}
    assert permissions.resources("none") == {}
