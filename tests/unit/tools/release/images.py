"""Images of a few files, such as those of a program: Debian's packages below, and Python's above."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.archives.image_layers import store_layer
from tests.support.driver_builder.image_tars import tar_of

SITE = "/opt/driverwright/lib/python3.11/site-packages"
STATUS = """\
Package: libpython3.11-minimal
Status: install ok installed
Architecture: amd64
Source: python3.11
Version: 3.11.2-6+deb12u6
Description: a library
 of several lines

Package: python3.11
Status: install ok installed
Architecture: amd64
Version: 3.11.2-6+deb12u6

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: base-files
Status: install ok installed
Architecture: amd64
Version: 12.4+deb12u12
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: python

Files: *
Copyright: many
License: PSF-2
 The text of the license.

Files: Modules/zlib/*
License: Zlib

License: GPL-2+
 A text that no file above names.
"""
BASE: dict[str, str] = {
    "/usr/lib/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n',
    "/var/lib/dpkg/status": "Package: base-files\nStatus: install ok installed\nArchitecture: amd64\nVersion: 12\n",
    "/usr/lib/base": "x" * 1000,
}
DEBIAN: dict[str, str] = {
    "/var/lib/dpkg/status": STATUS,
    "/var/lib/dpkg/info/libpython3.11-minimal:amd64.list": "/.\n/lib/python3.11\n/lib/python3.11/abc.py\n",
    "/var/lib/dpkg/info/python3.11.list": "/usr/bin/python3.11\n",
    "/usr/share/doc/python3.11/copyright": COPYRIGHT,
    "/usr/bin/python3.11": "p" * 500,
    "/usr/lib/python3.11/abc.py": "a" * 30,
    "/usr/lib/python3.11/__pycache__/abc.cpython-311.pyc": "c" * 40,
}
PYTHON: dict[str, str] = {
    f"{SITE}/google_re2-1.1.dist-info/METADATA": "Metadata-Version: 2.4\nName: google_re2\nVersion: 1.1\n"
    "Classifier: License :: OSI Approved :: BSD License\n\nName: of the description\n",
    f"{SITE}/google_re2-1.1.dist-info/RECORD": 're2/__init__.py,sha256=x,1\n"re2/a,b.so",,\n../../../bin/re,,\n',
    f"{SITE}/re2/__init__.py": "i" * 20,
    f"{SITE}/re2/__pycache__/__init__.cpython-311.pyc": "i" * 25,
    f"{SITE}/re2/a,b.so": "s" * 200,
    "/opt/driverwright/bin/re": "b" * 3,
    "/opt/driverwright/pyvenv.cfg": "v" * 7,
    f"{SITE}/urllib3-2.8.0.dist-info/METADATA": "Name: urllib3\nVersion: 2.8.0\nLicense-Expression: MIT OR CC0-1.0\n"
    "Classifier: License :: OSI Approved\n",
    f"{SITE}/old-1.dist-info/METADATA": "Name: old\nVersion: 1\nLicense: Apache 2.0\n",
    f"{SITE}/whole-1.dist-info/METADATA": "Name: whole\nVersion: 1\nLicense: first line\n        second line\n",
}


def image(folder: Path, layers: Sequence[Mapping[str, str]] = (BASE, DEBIAN, PYTHON)) -> ImageArchive:
    """Make an image with these files."""
    made = []
    for number, files in enumerate(layers):
        tar = tar_of({path.lstrip("/"): content.encode() for path, content in files.items()})
        made.append(store_layer([tar], folder / f"{number}.tar.gz"))
    empty = ImageArchive(config={"architecture": "amd64", "os": "linux", "config": {}}, layers=())
    return empty.with_layers(made)
