"""Each part of a BuildRequest is in the key, the digests and the templates' variables, or is left out for a reason."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from driver_builder.builds.pipeline.provenance import config_digest
from driver_builder.builds.templates.template_values import template_values
from driver_builder.model.build import BuildRequest, ModuleSpec, OwnTemplate, Signing, SourceGit
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.toolchain import toolchain_key
from driver_builder.model.userspace import Userspace, UserspacePackages
from tests.support.driver_builder.factories import OTHER_KERNEL, SOURCE, target

REQUEST = BuildRequest(
    driver=DriverKey("team/edu"), version="1.0.0", target=target(), template="debian", recipe="debian:1",
    base_image="debian:bookworm-slim", source=SOURCE, modules=(ModuleSpec(name="edudrv"),),
)  # fmt: skip
OTHER: Mapping[str, Any] = {
    "driver": DriverKey("others/edu"),
    "version": "1.0.1",
    "target": target(OTHER_KERNEL),
    "template": "ubuntu",
    "recipe": "debian:2",
    "base_image": "debian:trixie-slim",
    "source": SourceGit(url="https://r.io/edu", commit="a" * 40),
    "modules": (ModuleSpec(name="helper"),),
    "args": {"V": "1"},
    "rebuild": "1",
    "deadline_seconds": 60.0,
    "signing_certificate": b"der",
    "signing": Signing(image_key_secret="cosign"),
    "own_template": OwnTemplate(place="", text="FROM scratch"),
    "firmware_path": "/source/firmware",
    "depends": (("team/base", "key"),),
    "extra_symvers": "0x1 symbol",
    "userspace": Userspace(content=UserspacePackages(pins=(("libedu1", "1.0-1"),))),
    "packages": ("g++",),
    "tools_image": "debian:trixie-slim",
}
"""Another value of each field."""

NOT_IN_THE_IMAGE = {
    "deadline_seconds": "how long a build may take changes nothing in the image",
    "signing": "who signs is the certificate; this says where the keys are",
    "extra_symvers": "follows from depends, and is read only when the image has to be built",
}
OF_THE_RECIPE = {
    "template": "recipe begins with its name",
    "own_template": "recipe is its digest",
}
OF_A_VERSION = dict.fromkeys(
    ("driver", "version", "target", "source", "recipe", "base_image", "rebuild", "depends", "signing_certificate",
     "tools_image"),
    "has a label of its own, or is the same driver made by other tools: the digest is of what a spec configures",
)  # fmt: skip
OF_THE_DRIVER = dict.fromkeys(
    ("version", "source", "modules", "args", "signing_certificate", "firmware_path", "depends", "userspace",
     "packages"),
    "the stage headers has nothing of a driver, so that drivers share it",
)  # fmt: skip
USES: Mapping[str, tuple[Callable[[BuildRequest], object], Mapping[str, str]]] = {
    "build key": (lambda request: request.key, NOT_IN_THE_IMAGE | OF_THE_RECIPE),
    "config digest": (config_digest, NOT_IN_THE_IMAGE | OF_A_VERSION),
    "toolchain key": (
        toolchain_key,
        NOT_IN_THE_IMAGE | OF_THE_DRIVER | {"template": OF_THE_RECIPE["template"]},
    ),
    "variables of templates": (
        template_values,
        NOT_IN_THE_IMAGE
        | {"template": "is what is rendered", "own_template": "is what is rendered", "recipe": "its version"}
        | {"signing_certificate": "modules are signed after the build"},
    ),
}


def test_every_part_has_another_value_here() -> None:
    """A new field is looked at below."""
    assert OTHER.keys() == {part.name for part in fields(BuildRequest)}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("part", OTHER)
def test_a_part_is_in_it_or_left_out_for_a_reason(use: str, part: str) -> None:
    """A forgotten one would leave nodes with an image that was made of something else."""
    of, left_out = USES[use]
    assert (of(replace(REQUEST, **{part: OTHER[part]})) == of(REQUEST)) is (part in left_out)
