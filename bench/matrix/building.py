"""Builds one driver for one kernel with the product's own builder and verification, and keeps its modules."""

import shutil
import tempfile
import threading
import time
from pathlib import Path

from bench.matrix.results import Build, Outcome
from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed, VerificationFailed
from driver_builder.base.reasons import Reason, suspends
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink
from driver_builder.modules.verify import verify
from tests.support.driver_builder.image_tars import read_files


def build(builder: DockerBuilder, wanted: BuildRequest, *, keep: Path, log: LogSink) -> Build:
    """Build and verify, and say how it went; the modules of the image go to ``keep``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        try:
            built = builder.build(wanted, directory=Path(name), log=log, cancelled=threading.Event())
        except BuildFailed as error:
            is_refused = error.reason is Reason.NOT_APPLICABLE
            outcome = Outcome.NOT_APPLICABLE if is_refused else Outcome.FAILED
            return _result(wanted, began, outcome=outcome, reason=error.reason.value, message=str(error))
        return _verified(wanted, began, built, Path(name), keep)


def is_outside(found: Build) -> bool:
    """Whether it failed for a reason that is not the driver's, so that it is not kept: the next run tries again."""
    return bool(suspends(found.reason))


def _verified(wanted: BuildRequest, began: float, built: BuiltImage, directory: Path, keep: Path) -> Build:
    size = built.archive.stat().st_size
    image = read_image_archive(built.archive, directory / "layers")
    try:
        modules = verify(image, request=wanted, module_symvers=built.module_symvers)
    except VerificationFailed as error:
        return _result(
            wanted, began,
            outcome=Outcome.FAILED, reason=error.reason.value, message=str(error), image_bytes=size, verified=0,
        )  # fmt: skip
    found = _result(wanted, began, outcome=Outcome.BUILT, verified=len(modules), image_bytes=size)
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir(parents=True)
    for path, content in read_files(image, f"/lib/modules/{wanted.target.kernel_version}/updates").items():
        (keep / Path(path).name).write_bytes(content)
    return found


def _result(
    wanted: BuildRequest,
    began: float,
    *,
    outcome: Outcome,
    reason: str = "",
    message: str = "",
    verified: int | None = None,
    image_bytes: int | None = None,
) -> Build:
    return Build(
        driver=wanted.driver.partition("/")[2],
        version=wanted.version,
        kernel=str(wanted.target.kernel_version),
        key=wanted.key,
        outcome=outcome,
        seconds=round(time.monotonic() - began, 1),
        reason=reason,
        message=message,
        verified=verified,
        image_bytes=image_bytes,
    )
