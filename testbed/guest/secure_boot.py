"""A guest that boots with Secure Boot: Debian's firmware for QEMU, with a key enrolled that everybody may sign with.

The package `ovmf` brings the firmware's variables with one certificate in PK, KEK and db ("snakeoil") and the private
key of it. A kernel that is signed with it boots, locks itself down, and trusts modules that are signed by keys in db.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from testbed.cache import cached_folder
from testbed.command import run
from testbed.packages import refreshed_apt, unpack
from testbed.progress import Progress

PACKAGES = ("ovmf", "sbsigntool")
MEMORY_MIB = 512
_PASSWORD = "snakeoil"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureBoot:
    """`tree` has the unpacked packages, `key_file` the private key in PEM without a password."""

    tree: Path
    key_file: Path

    @property
    def certificate_file(self) -> Path:
        """The certificate that the firmware knows, in PEM."""
        return self.tree / "usr/share/ovmf/PkKek-1-snakeoil.pem"

    def sign_kernel(self, vmlinuz: Path, folder: Path) -> Path:
        """Return a copy of a kernel that this firmware boots."""
        signed = folder / f"{vmlinuz.name}.signed"
        keys: list[str | Path] = ["--key", self.key_file, "--cert", self.certificate_file]
        run([self.tree / "usr/bin/sbsign", *keys, "--output", signed, vmlinuz])
        return signed

    def qemu_words(self, folder: Path) -> list[str]:
        """Return what QEMU is started with; the firmware's variables are kept in `folder`, for one guest alone."""
        firmware = self.tree / "usr/share/OVMF"
        variables = folder / "variables.fd"
        shutil.copyfile(firmware / "OVMF_VARS_4M.snakeoil.fd", variables)
        code = firmware / "OVMF_CODE_4M.secboot.fd"
        return [
            *("-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"),
            *("-global", "ICH9-LPC.disable_s3=1"),
            *("-drive", f"if=pflash,format=raw,unit=0,file={code},readonly=on"),
            *("-drive", f"if=pflash,format=raw,unit=1,file={variables}"),
        ]


def provide_secure_boot(progress: Progress) -> SecureBoot:
    """Download firmware and tools, once; nothing is installed."""
    with progress.step("Provide firmware with Secure Boot") as step:

        def make(folder: Path) -> None:
            for deb in refreshed_apt().download(PACKAGES, folder / "debs"):
                unpack(deb, folder)
            run(["rm", "-rf", folder / "debs"])
            locked = folder / "usr/share/ovmf/PkKek-1-snakeoil.key"
            run(["openssl", "pkey", "-in", locked, "-passin", f"pass:{_PASSWORD}", "-out", folder / "key.pem"])

        tree = cached_folder("secure-boot", make, step)
        return SecureBoot(tree=tree, key_file=tree / "key.pem")
