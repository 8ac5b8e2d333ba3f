"""What plain dkms says of a package on the same base image: no template, no verification, its own exit code."""

import io
import re

import docker

from bench.matrix.drivers import EDU
from bench.matrix.results import Plain
from driver_builder.base.errors import TemporaryError
from driver_builder.model.build import BuildRequest, SourcePackage

_SAID = re.compile(r"plain dkms (\S+) ended with (\d+)")
_BACKPORTS = (
    "targets=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' 'Origin: Debian');"
    ' codename=$(. /etc/os-release; echo "$VERSION_CODENAME");'
    ' uri=$(echo "$targets" | sed -n "s/^$codename //p" | sed -n 1p);'
    ' echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri $codename-backports main"'
    " >/etc/apt/sources.list.d/backports.list; apt-get update -q"
)
_DOCKERFILE = """\
FROM {base}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -q; apt-get install -q --yes --no-install-recommends dkms gcc make libc6-dev
RUN ln -sf /bin/true /usr/sbin/update-initramfs; \
    apt-cache show linux-headers-{kernel} >/dev/null 2>&1 || {{ {backports}; }}; \
    apt-get install -q --yes --no-install-recommends linux-headers-{kernel}
RUN apt-get download -q {package}; \
    apt-get satisfy -q --yes --no-install-recommends "$(dpkg-deb --field ./*.deb Depends)"; \
    dpkg-deb --extract ./*.deb /; \
    folder=$(dirname /usr/src/*/dkms.conf); \
    module=$(sed -n 's/^ *PACKAGE_NAME=//p' "$folder/dkms.conf" | tr -d "\\"'" ); \
    dkms add "$folder"; \
    code=0; dkms build -k {kernel} "$module/${{folder##*-}}" || code=$?; \
    echo "plain dkms $(dpkg-query --show --showformat '${{Version}}' dkms) ended with $code"
"""


def is_asked(request: BuildRequest) -> bool:
    """Whether it is a package: what has no dkms.conf is none for dkms."""
    return not request.driver.endswith(f"/{EDU}")


def dockerfile(request: BuildRequest) -> str:
    """Return what installs dkms and headers as an admin does, and builds the package by dkms alone."""
    assert isinstance(request.source, SourcePackage)
    kernel = request.target.kernel_version
    return _DOCKERFILE.format(base=request.base_image, kernel=kernel, package=request.source.name, backports=_BACKPORTS)


def ask(api: docker.APIClient, request: BuildRequest) -> Plain:
    """Build the package by plain dkms.

    Raises:
        TemporaryError: it did not come to that.
    """
    log = ""
    file = io.BytesIO(dockerfile(request).encode())
    for line in api.build(fileobj=file, tag="driver-matrix/plain", network_mode="host", rm=True, decode=True):
        log += line.get("stream", "") + line.get("error", "")
    if not (said := _SAID.search(log)):
        raise TemporaryError(f"plain dkms was not asked of {request.driver}: {log[-600:]}")
    driver, kernel = request.driver.partition("/")[2], str(request.target.kernel_version)
    return Plain(driver=driver, kernel=kernel, key=request.key, dkms=said[1], code=int(said[2]))
