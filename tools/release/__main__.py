"""Makes a release in ``build/release``, which appears whole or not at all: ``make release``."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from docker.errors import DockerException

from driver_builder.base.errors import DriverBuilderError
from tools import product_images
from tools.product_images import BASE_IMAGE, REPOSITORY, ImageError
from tools.release.files import make_release, summary
from tools.release.origin import OriginError, read_origin
from tools.release.source_files import ReleaseError, check_source

OUTPUT = REPOSITORY / "build" / "release"


def main() -> int:
    """Make a release, and say what it has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--allow-dirty", action="store_true", help="also where files differ from the commit")
    parser.add_argument("--base-image", default=BASE_IMAGE, help="base of all images")
    parser.add_argument("--docker-host", help="container engine (default: DOCKER_HOST)")
    flags = parser.parse_args()
    try:
        origin = check_source(read_origin(REPOSITORY, os.environ), allow_dirty=flags.allow_dirty)
        api = product_images.local_engine(flags.docker_host)
        OUTPUT.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(prefix=".release-", dir=OUTPUT.parent) as scratch:
            fresh = Path(scratch) / OUTPUT.name
            fresh.mkdir()
            made = make_release(api, origin, fresh, base_image=flags.base_image, say=_say)
            shutil.rmtree(OUTPUT, ignore_errors=True)
            fresh.rename(OUTPUT)
    except (ReleaseError, ImageError, OriginError, DriverBuilderError, DockerException) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"\n{summary(OUTPUT, made)}\n")
    print(f"{OUTPUT.relative_to(REPOSITORY)}: version {origin.version}, commit {origin.revision or 'unknown'}")
    print("Nothing was pushed or published.")
    return 0


def _say(line: str) -> None:
    print(f"release: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
