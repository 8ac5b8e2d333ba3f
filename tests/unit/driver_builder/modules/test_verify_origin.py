"""An image whose modules are another kernel's: verified as any other, let through only where the kernel takes them."""

from dataclasses import replace
from pathlib import Path

import pytest

from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.kernels import KernelVersion
from driver_builder.modules.reuse import Origin
from driver_builder.modules.verify import verify
from tests.support.driver_builder.kernel_modules import MAGIC, SYMVERS_47, SYMVERS_55, SYMVERS_56
from tests.unit.driver_builder.modules.test_verify import GOOD, KERNEL, REQUEST, image_of, without

NEW = KernelVersion("6.1.0-56-cloud-amd64")
REQUEST_56 = replace(REQUEST, target=replace(REQUEST.target, kernel_version=NEW))
ORIGIN = Origin(kernel=KERNEL, magic=MAGIC.replace("-55-", "-56-"))
F = Reason


def test_modules_of_another_kernel_pass_where_every_crc_agrees(tmp_path: Path) -> None:
    """Their path is that of the other kernel; the loader finds it by a link."""
    found = verify(image_of(tmp_path, GOOD), request=REQUEST_56, module_symvers=SYMVERS_56, origin=ORIGIN)
    assert {module.path.split("/")[3] for module in found} == {KERNEL}


def test_without_an_origin_they_do_not_pass(tmp_path: Path) -> None:
    """A builder that compiled against the wrong headers is a failure."""
    with pytest.raises(VerificationFailed) as caught:
        verify(image_of(tmp_path, GOOD), request=REQUEST_56, module_symvers=SYMVERS_56)
    assert caught.value.reason is F.MODULE_MISSING


@pytest.mark.parametrize(
    ("files", "symvers", "origin", "reason"),
    [
        pytest.param(GOOD, SYMVERS_47, ORIGIN, F.WRONG_SYMBOL_CRC, id="other CRCs"),
        pytest.param(GOOD, "0x00000000" + SYMVERS_56[10:], ORIGIN, F.WRONG_SYMBOL_CRC, id="a symbol without a CRC"),
        pytest.param(
            GOOD,
            SYMVERS_56,
            replace(ORIGIN, magic=MAGIC.replace("preempt", "preempt_rt")),
            F.WRONG_VERMAGIC,
            id="magic",
        ),
        pytest.param(GOOD, SYMVERS_56, replace(ORIGIN, kernel="6.1.0-47"), F.MODULE_MISSING, id="another folder"),
        pytest.param(without("modules.dep"), SYMVERS_56, ORIGIN, F.IMAGE_INVALID, id="no index"),
    ],
)
def test_whatever_else_is_wrong_is_found(
    files: dict[str, bytes], symvers: str, origin: Origin, reason: Reason, tmp_path: Path
) -> None:
    """By the same checks, and by those of re-use."""
    with pytest.raises(VerificationFailed) as caught:
        verify(image_of(tmp_path, files), request=REQUEST_56, module_symvers=symvers, origin=origin)
    assert caught.value.reason is reason


def test_a_signature_is_demanded_of_them_as_well(tmp_path: Path) -> None:
    """They bear that of the image they come from."""
    request = replace(REQUEST_56, signing_certificate=b"x")
    with pytest.raises(VerificationFailed, match="signing certificate"):
        verify(image_of(tmp_path, GOOD), request=request, module_symvers=SYMVERS_55, origin=ORIGIN)
