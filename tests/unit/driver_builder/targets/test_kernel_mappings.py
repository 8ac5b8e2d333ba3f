"""Which rule, template and base image a kernel falls under."""

from typing import Any

import pytest

from driver_builder.api.spec_parser import parse_spec
from driver_builder.builds.templates import templates
from driver_builder.model.kernels import KernelVersion
from driver_builder.targets.resolve_target import (
    ANY_KERNEL,
    BASE_IMAGES,
    TEMPLATES,
    base_image_for,
    mapping_for,
    template_for,
)
from tests.support.driver_builder.factories import spec, target


@pytest.mark.parametrize(
    ("mappings", "kernel", "expected"),
    [
        pytest.param([{"literal": "6.1.0"}], "6.1.0", 0, id="literal"),
        pytest.param([{"literal": "6.1.0"}], "6.1x0", None, id="a literal's dot is a dot"),
        pytest.param([{"literal": "6.1.0+"}], "6.1.0+", 0, id="a literal's plus is a plus"),
        pytest.param([{"regexp": r"6\.1\."}], "6.1.0", None, id="the whole release, not its beginning"),
        pytest.param([{"regexp": "1.0"}], "6.1.0", None, id="the whole release, not its end"),
        pytest.param([{"regexp": r"6\.1\..*"}], "6.1.0", 0, id="regexp"),
        pytest.param([{"regexp": "6.*"}, {"literal": "6.1.0"}], "6.1.0", 0, id="the first match wins"),
        pytest.param([{"literal": "5.15.0"}, {"regexp": "6.*"}], "6.1.0", 1, id="the second where the first fails"),
        pytest.param([{"regexp": "a|6.1.0|b"}], "6.1.0", 0, id="alternatives match as a whole"),
        pytest.param([{"regexp": "6.1|6.1.0"}], "6.1.0", 0, id="a shorter alternative does not hide a longer one"),
    ],
)
def test_the_first_whole_match_wins(mappings: list[dict[str, Any]], kernel: str, expected: int | None) -> None:
    """Rules are tried in order; one applies when it matches all of the kernel release."""
    read = parse_spec(spec(kernelMappings=mappings))
    found = mapping_for(read, KernelVersion(kernel))
    assert found == (None if expected is None else read.kernel_mappings[expected])


def test_without_rules_every_kernel_is_wanted() -> None:
    """A spec that says nothing about kernels means all of them."""
    assert mapping_for(parse_spec(spec()), KernelVersion("6.1.0")) is ANY_KERNEL


@pytest.mark.parametrize(
    ("rule", "build", "os_id", "expected"),
    [
        pytest.param("a", "b", "debian", "a", id="the mapping's"),
        pytest.param(None, "b", "debian", "b", id="the build's"),
        pytest.param(None, None, "debian", "debian", id="the distribution's"),
        pytest.param(None, None, "gentoo", None, id="none known"),
    ],
)
def test_the_nearest_template_is_used(rule: str | None, build: str | None, os_id: str, expected: str | None) -> None:
    """The mapping's template goes before the build's, and that before the distribution's own."""
    read = parse_spec(spec(build={"template": build}, kernelMappings=[{"regexp": ".*", "template": rule}]))
    assert template_for(read, read.kernel_mappings[0], target(os_id=os_id)) == expected


@pytest.mark.parametrize(
    ("build", "os_version", "expected"),
    [
        pytest.param("mine:1", "12", "mine:1", id="the build's"),
        pytest.param(None, "12", "debian:bookworm-slim", id="the distribution's"),
        pytest.param(None, "13", "debian:trixie-slim", id="the next release's"),
        pytest.param(None, "13.8", "debian:trixie-slim", id="a point release's"),
        pytest.param(None, "9", None, id="none known"),
    ],
)
def test_the_base_image_is_the_builds_or_the_distributions(
    build: str | None, os_version: str, expected: str | None
) -> None:
    """A base image is named by the spec or known for the operating system."""
    assert base_image_for(parse_spec(spec(build={"baseImage": build})), target(os_version=os_version)) == expected


@pytest.mark.parametrize(
    ("os_id", "os_version", "template", "base_image"),
    [
        pytest.param("ubuntu", "22.04", "ubuntu", "ubuntu:22.04", id="Ubuntu"),
        pytest.param("rhel", "9.4", "rhel", "registry.access.redhat.com/ubi9/ubi:9.4", id="RHEL"),
        pytest.param("rocky", "9.4", "rhel", "rockylinux/rockylinux:9", id="Rocky"),
        pytest.param("almalinux", "8.10", "rhel", "almalinux:8", id="AlmaLinux"),
        pytest.param("centos", "10", "rhel", "quay.io/centos/centos:stream10", id="CentOS Stream"),
        pytest.param("centos", "7", "rhel", None, id="CentOS before Stream"),
        pytest.param("ol", "9.5", "rhel", "oraclelinux:9", id="Oracle Linux"),
        pytest.param("fedora", "42", "fedora", "fedora:42", id="Fedora"),
        pytest.param("sles", "15.6", "sles", "registry.suse.com/bci/bci-base:15.6", id="SLES"),
        pytest.param("opensuse-leap", "15.6", "sles", "opensuse/leap:15.6", id="Leap"),
        pytest.param("opensuse-tumbleweed", "20240801", "sles", "opensuse/tumbleweed:latest", id="Tumbleweed"),
        pytest.param("amzn", "2023", "amazon", "amazonlinux:2023", id="Amazon Linux"),
        pytest.param("flatcar", "4081.2.1", "flatcar", "debian:trixie-slim", id="Flatcar"),
        pytest.param("debian", "", "debian", None, id="Debian's next release has no number"),
        pytest.param("ubuntu", "rolling", "ubuntu", None, id="a version that is not a number"),
        pytest.param("talos", "1.9", None, None, id="takes no modules from outside"),
    ],
)
def test_a_distribution_has_its_template_and_image(
    os_id: str, os_version: str, template: str | None, base_image: str | None
) -> None:
    """ID and VERSION_ID of os-release say both; what nobody tried is not guessed."""
    read, node = parse_spec(spec()), target(os_id=os_id, os_version=os_version)
    assert (template_for(read, ANY_KERNEL, node), base_image_for(read, node)) == (template, base_image)


def test_all_named_templates_exist_and_have_an_image() -> None:
    """A distribution is known in whole or not at all."""
    assert TEMPLATES.keys() == BASE_IMAGES.keys()
    assert set(TEMPLATES.values()) <= templates.template_versions().keys()


@pytest.mark.parametrize(
    "regexp",
    [
        pytest.param("([0-9a-z.+-]+)+!", id="exponential for a backtracking engine"),
        pytest.param("(" * 8000 + ")" * 8000, id="more groups than there is memory for"),
    ],
)
def test_a_hostile_pattern_is_answered_at_once(regexp: str) -> None:
    """A user's expression takes linear time and little memory, whatever it is."""
    read = parse_spec(spec(kernelMappings=[{"regexp": regexp}, {"regexp": ".*"}]))
    assert mapping_for(read, KernelVersion("6.1.0-55-cloud-amd64" * 3)) == read.kernel_mappings[1]
