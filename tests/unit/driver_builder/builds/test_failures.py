"""Why builds fail, from the output of real ones (Debian 12, Docker 20.10)."""

import pytest

from driver_builder.base.errors import (
    BuildFailed,
    ConfigurationError,
    DriverBuilderError,
    PermanentError,
    RegistryFull,
    RegistryRefused,
    RegistryRejected,
    RegistryUnauthorized,
    RegistryUnavailable,
    TemporaryError,
    VerificationFailed,
)
from driver_builder.base.reasons import Reason
from driver_builder.builds.failures import classify, reason_of
from driver_builder.registry.registry_responses import RegistryBusy
from kube_api.errors import Forbidden, KubeApiError, Unreachable

HEADERS = """\
Step 3/9 : RUN apt-get install -y linux-headers-9.9.9-cloud-amd64 || exit 64
Reading package lists...
Building dependency tree...
E: Unable to locate package linux-headers-9.9.9-cloud-amd64
E: Couldn't find any package by glob 'linux-headers-9.9.9-cloud-amd64'
E: Couldn't find any package by regex 'linux-headers-9.9.9-cloud-amd64'"""
NO_CANDIDATE = "E: Package 'linux-headers-6.1.0-9-amd64' has no installation candidate"
COMPILE = """\
make: Entering directory '/usr/src/linux-headers-6.1.0-55-cloud-amd64'
  CC [M]  /src/bad.o
/src/bad.c: In function 'bad_init':
/src/bad.c:3:36: error: too few arguments to function 'pci_resize_resource'
    3 | static int __init bad_init(void) { pr_err("No space left on device: out of memory"); }
      |                                    ^~~~~~~~~~~~~~~~~~~
/usr/src/linux-headers-6.1.0-55-common/include/linux/pci.h:1388:18: note: declared here
/src/bad.c:3:73: error: implicit declaration of function 'missing_call' [-Werror=implicit-function-declaration]
cc1: some warnings being treated as errors
make[1]: *** [/usr/src/linux-headers-6.1.0-55-common/scripts/Makefile.build:255: /src/bad.o] Error 1
make: *** [/usr/src/linux-headers-6.1.0-55-common/Makefile:2065: /src] Error 2"""
PROBES = """\
/src/probe/test.c:4:24: error: storage size of 'test' isn't known
make[3]: *** [/usr/src/linux-headers-6.12.117+deb12-common/scripts/Makefile.build:229: /src/probe/test.o] Error 1
make[2]: *** [/usr/src/linux-headers-6.12.117+deb12-common/Makefile:1972: /src/probe] Error 2
/src/real.c:71:9: error: implicit declaration of function 'gone'
/src/real.c:80:2: error: too few arguments
make[3]: *** [/usr/src/linux-headers-6.12.117+deb12-common/scripts/Makefile.build:229: /src/real.o] Error 1
make[2]: *** [/usr/src/linux-headers-6.12.117+deb12-common/Makefile:1972: /src] Error 2"""
NO_HEADER = "/src/x.c:2:10: fatal error: drm/drmP.h: No such file or directory"
MODPOST = """\
  MODPOST /src/Module.symvers
ERROR: modpost: "nobody_has_this" [/src/m.ko] undefined!
make[1]: *** [/usr/src/linux-headers-6.1.0-55-common/scripts/Makefile.modpost:127: /src/Module.symvers] Error 1"""
NO_OBJECT = """\
make[1]: *** No rule to make target '/src/gone.o', needed by '/src/'.  Stop.
make: *** [/usr/src/linux-headers-6.1.0-55-common/Makefile:2065: /src] Error 2"""
NO_MAKEFILE = """\
/usr/src/linux-headers-6.1.0-55-common/scripts/Makefile.build:44: /src/Makefile: No such file or directory
make[1]: *** No rule to make target '/src/Makefile'.  Stop."""
FETCH = """\
Err:1 http://nowhere.invalid/debian bookworm InRelease
  Could not resolve 'nowhere.invalid'
E: Failed to fetch http://nowhere.invalid/debian/dists/bookworm/InRelease  Could not resolve 'nowhere.invalid'
E: Some index files failed to download. They have been ignored, or old ones used instead."""
NO_HOST = """\
fatal: unable to access 'https://nowhere.invalid/edu.git/': Could not resolve host: nowhere.invalid
driverwright: https://nowhere.invalid/edu.git cannot be fetched"""
CHECKSUM = "driverwright: https://example.com/edu.tar.gz has sha256 00, not 11"
EXCLUDED = """\
Error! The /var/lib/dkms/evdi/1.12.0+dfsg/6.1.0-56-cloud-amd64/x86_64/dkms.conf for module evdi includes a \
BUILD_EXCLUSIVE directive which does not match this kernel/arch/config.
driverwright: team/evdi 1 is not for 6.1.0-56-cloud-amd64, says its dkms.conf: BUILD_EXCLUSIVE_CONFIG="CONFIG_DRM\""""
NO_SPACE = """\
/tmp/cc1.s: fatal error: error writing to /tmp/cc1.s: No space left on device
dd: writing to '/data': No space left on device"""
NEWER_OPTION = """\
gcc: error: unrecognized command-line option '-fmin-function-alignment=16'
make[2]: *** [/usr/src/linux-headers-6.12.107-common/scripts/Makefile.build:243: /source/a.o] Error 1"""
NO_COMPILER = """\
/bin/sh: 1: gcc-14: not found
make[2]: gcc-14: No such file or directory
make[2]: *** [/usr/src/linux-headers-6.1.0-55-common/scripts/Makefile.build:255: /source/a.o] Error 127"""
PLUGIN = "cc1: error: incompatible gcc/plugin versions"
NO_MEMORY = "gcc: fatal error: Killed signal terminated program cc1"
FROM = "Step 1/9 : FROM registry.example.com/base:1 AS build"
COPY_FROM = "Step 4/9 : COPY --from=registry.example.com/src@sha256:00 /src /src"
NO_MANIFEST = "manifest for registry.example.com/base:1 not found: manifest unknown: manifest unknown"
NO_CONNECTION = 'Get "http://127.0.0.1:5099/v2/": dial tcp 127.0.0.1:5099: connect: connection refused'
DENIED = "pull access denied for base, repository does not exist or may require 'docker login': denied"
_PULLING = "creating build container: unable to copy from source docker://r.example.com/base:1: initializing source"
REFUSED = f"{_PULLING}: reading manifest 1 in r.example.com/base: authentication required"
CLOSED = f"{_PULLING}: pinging container registry r.example.com: dial tcp 192.0.2.1:443: connect: connection refused"
INVALID_FROM = "invalid from flag value registry.example.com/src@sha256:00: manifest unknown: manifest unknown"
NO_FILE = "COPY failed: stat nosuch: file does not exist"
PARSE = "dockerfile parse error line 2: unknown instruction: FRIM"
NOWHERE = "p is in none of these places"
F = Reason


@pytest.mark.parametrize(
    ("exit_code", "error", "log", "reason", "words"),
    [
        pytest.param(64, "", HEADERS, F.HEADERS_MISSING, "linux-headers-9.9.9-cloud-amd64 is in no", id="headers"),
        pytest.param(64, "", NO_CANDIDATE, F.HEADERS_MISSING, "linux-headers-6.1.0-9-amd64", id="headers withdrawn"),
        pytest.param(64, "", "", F.HEADERS_MISSING, "with the kernel's headers", id="headers, nothing said"),
        pytest.param(
            64,
            "",
            "\n".join(f"driverwright: {words}" for words in ("looking for p in a", "looking for p in b", NOWHERE)),
            F.HEADERS_MISSING,
            "p is in none of these places (looked in: a, b)",
            id="headers looked for everywhere",
        ),
        pytest.param(
            64,
            "",
            "driverwright: looking for p in a\ndriverwright: the source has no kernel.config; add it",
            F.HEADERS_MISSING,
            "the source has no kernel.config; add it",
            id="what the template itself says of a kernel's own source",
        ),
        pytest.param(
            65,
            "",
            COMPILE,
            F.COMPILE_ERROR,
            "/src/bad.c:3: too few arguments to function 'pci_resize_resource'",
            id="the first of two compiler errors, not what the quoted source says",
        ),
        pytest.param(
            65, "", PROBES, F.COMPILE_ERROR, "compile: /src/real.c:71: implicit declaration", id="trials come first"
        ),
        pytest.param(65, "", NO_HEADER, F.COMPILE_ERROR, "/src/x.c:2: drm/drmP.h: No such file", id="header file gone"),
        pytest.param(65, "", MODPOST, F.COMPILE_ERROR, '"nobody_has_this" [/src/m.ko] undefined!', id="modpost"),
        pytest.param(
            65, "", NO_OBJECT, F.COMPILE_ERROR, "No rule to make target '/src/gone.o'", id="file of obj-m gone"
        ),
        pytest.param(65, "", "strange", F.COMPILE_ERROR, "strange", id="compile step, unknown words"),
        pytest.param(65, "", NEWER_OPTION, F.COMPILER_MISMATCH, "option '-fmin-function-alignment=16'", id="option"),
        pytest.param(65, "", NO_COMPILER, F.COMPILER_MISMATCH, "gcc-14: not found", id="no such gcc"),
        pytest.param(65, "", PLUGIN, F.COMPILER_MISMATCH, "incompatible gcc/plugin versions", id="plugin"),
        pytest.param(65, "", NO_MAKEFILE, F.SOURCE_MISSING, "no Makefile", id="no Makefile"),
        pytest.param(
            66, "", "no edudrv.ko", F.COMPILE_ERROR, "not built: no edudrv.ko; compare", id="module not built"
        ),
        pytest.param(67, "", FETCH, F.REPOSITORY_UNAVAILABLE, "Could not resolve 'nowhere.invalid'", id="no mirror"),
        pytest.param(67, "", "", F.REPOSITORY_UNAVAILABLE, "apt update failed", id="no mirror, nothing said"),
        pytest.param(
            68, "", NO_HOST, F.SOURCE_MISSING, "edu.git cannot be fetched (unable to access", id="git server away"
        ),
        pytest.param(68, "", CHECKSUM, F.SOURCE_MISSING, "has sha256 00, not 11", id="checksum"),
        pytest.param(68, "", "strange", F.SOURCE_MISSING, "cannot be used: strange", id="no source, unknown words"),
        pytest.param(
            69, "", EXCLUDED, F.NOT_APPLICABLE, 'its dkms.conf: BUILD_EXCLUSIVE_CONFIG="CONFIG_DRM"', id="excluded"
        ),
        pytest.param(
            69, "", "", F.NOT_APPLICABLE, "does not support this kernel", id="not for this kernel, nothing said"
        ),
        pytest.param(65, "", NO_SPACE, F.DISK_FULL, "disk of the build engine", id="disk full while compiling"),
        pytest.param(
            None, "write /var/lib/x: no space left on device", "", F.DISK_FULL, "disk", id="engine's disk full"
        ),
        pytest.param(65, "", NO_MEMORY, F.OUT_OF_MEMORY, "ran out of memory", id="compiler killed"),
        pytest.param(137, "", "Killed", F.OUT_OF_MEMORY, "ran out of memory", id="command killed"),
        pytest.param(None, NO_MANIFEST, FROM, F.BASE_IMAGE_MISSING, "base image cannot be pulled", id="no base image"),
        pytest.param(None, NO_CONNECTION, FROM, F.BASE_IMAGE_MISSING, "connection refused", id="base registry away"),
        pytest.param(None, DENIED, FROM, F.BASE_IMAGE_MISSING, "pull access denied", id="base image denied"),
        pytest.param(None, REFUSED, FROM, F.BASE_IMAGE_MISSING, "authentication required", id="buildah 1.43 refused"),
        pytest.param(None, CLOSED, FROM, F.BASE_IMAGE_MISSING, "connection refused", id="buildah, registry away"),
        pytest.param(
            None, INVALID_FROM, COPY_FROM, F.SOURCE_MISSING, "source image cannot be pulled", id="no source image"
        ),
        pytest.param(
            None, NO_FILE, COPY_FROM, F.SOURCE_MISSING, "check the path", id="no such path in the source image"
        ),
        pytest.param(None, PARSE, "", F.TEMPLATE_INVALID, "unknown instruction: FRIM", id="no Dockerfile"),
        pytest.param(
            2, "The command returned 2", "", F.BUILD_ERROR, "exit code 2: The command", id="another exit code"
        ),
        pytest.param(None, "", "last words", F.BUILD_ERROR, "last words", id="nothing known"),
    ],
)
def test_a_failure_has_a_class_and_a_helpful_message(
    exit_code: int | None, error: str, log: str, reason: Reason, words: str
) -> None:
    """The message names the culprit; every class is a word that status and metrics use."""
    found, message = classify(exit_code, error, log.splitlines())
    assert found is reason
    assert words in message


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(BuildFailed(F.HEADERS_MISSING, "x"), "HeadersMissing", id="build"),
        pytest.param(VerificationFailed(Reason.WRONG_SYMBOL_CRC, "x"), "WrongSymbolCRC", id="verify"),
        pytest.param(RegistryUnauthorized("x"), "RegistryUnauthorized", id="wrong password"),
        pytest.param(RegistryRejected("x"), "RegistryRejected", id="too large"),
        pytest.param(RegistryRefused("x"), "RegistryInvalid", id="no registry"),
        pytest.param(RegistryFull("x"), "RegistryFull", id="no room"),
        pytest.param(RegistryUnavailable("x"), "RegistryUnreachable", id="no answer"),
        pytest.param(RegistryBusy("x", retry_after=1), "RegistryUnreachable", id="rate limit"),
        pytest.param(ConfigurationError("x"), "InvalidConfiguration", id="no CA file"),
        pytest.param(TemporaryError("x"), "BuilderUnavailable", id="engine away"),
        pytest.param(PermanentError("x"), "BuilderUnavailable", id="any other"),
        pytest.param(Forbidden("x", status=403), "ActionRefused", id="Secret may not be read"),
        pytest.param(Unreachable("x"), "ApiServerUnavailable", id="API server away"),
    ],
)
def test_every_error_has_a_reason(error: DriverBuilderError | KubeApiError, reason: str) -> None:
    """Status, Events and metrics use the same reason for an error."""
    assert reason_of(error) == reason


def test_what_is_said_of_a_field_is_not_said_of_the_source() -> None:
    """The message begins with what has to be corrected."""
    log = ["driverwright: spec.build.packages: g is in no repository of the base image"]
    assert classify(68, "", log) == (F.SOURCE_MISSING, "spec.build.packages: g is in no repository of the base image")


@pytest.mark.parametrize(
    ("code", "said", "names_field"),
    [
        pytest.param(67, "Certificate verification failed: The certificate is NOT trusted.", True, id="apt"),
        pytest.param(
            68, "fatal: unable to access 'https://x/': server certificate verification failed.", True, id="git"
        ),
        pytest.param(64, "curl: (60) SSL certificate problem: self-signed certificate", True, id="curl"),
        pytest.param(65, "x.c:1:1: error: SSL certificate problem", False, id="the compiler"),
        pytest.param(67, "Could not connect to deb.debian.org:80", False, id="no answer"),
    ],
)
def test_a_certificate_that_is_not_trusted_names_the_field(code: int, said: str, names_field: bool) -> None:
    """Whatever was fetched; in what a compiler prints the words mean nothing."""
    _, message = classify(code, "", [said, "driverwright: x"])
    assert ("spec.build.caConfigMap" in message) is names_field
