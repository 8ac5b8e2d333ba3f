"""The exceptions of driver_builder.

::

    DriverBuilderError
    ├── InternalError           a bug of ours, or an unexpected value; made by :mod:`driver_builder.base.boundary` only
    ├── TemporaryError          worth trying again later
    │   └── RegistryUnavailable
    │       └── RegistryFull    no room left on its disk, or in the project's quota
    └── PermanentError          trying again changes nothing until the cause is fixed
        ├── ConfigurationError  a flag, an environment variable or a file
        ├── InvalidDriver       a DriverContainer whose spec cannot be acted on: names field, value and remedy
        ├── BuildFailed         a build ended without an image; ``reason`` says why
        ├── VerificationFailed  the built module does not fit its kernel
        ├── InvalidModule       a file that is not a kernel module, or a damaged one
        ├── InvalidSymvers      a text that is not a Module.symvers
        └── RegistryRefused     a refusal, or an answer that is not a registry's
            ├── RegistryUnauthorized  wrong credentials, or none
            └── RegistryRejected      a registry, which does not take what it is given

Errors of the API server are :mod:`kube_api.errors`; they are a tree of their own.
"""

from driver_builder.base.reasons import Reason


class DriverBuilderError(Exception):
    """Root of everything driver_builder raises on purpose."""


class InternalError(DriverBuilderError):
    """An unexpected error: a bug, or an unforeseen value."""

    is_temporary = False


class TemporaryError(DriverBuilderError):
    """Worth trying again, by the caller's own back-off."""


class PermanentError(DriverBuilderError):
    """Fails in the same way until its cause is fixed."""


class ConfigurationError(PermanentError):
    """A flag, an environment variable or a file of ours is wrong."""


class InvalidDriver(PermanentError):
    """A DriverContainer's spec is invalid; the message names the field, its value and the remedy."""


class BuildFailed(PermanentError):
    """A build ended without an image.

    ``reason`` is the kind of failure, ``log_tail`` the last lines of the build's own output.
    """

    def __init__(self, reason: Reason, message: str, *, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.log_tail = log_tail


class VerificationFailed(PermanentError):
    """The module inside a built image does not fit the kernel it was built for; nothing was pushed."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class InvalidModule(PermanentError):
    """The bytes are not a kernel module that can be read here; the message says why."""


class InvalidSymvers(PermanentError):
    """The text is not a Module.symvers; the message names the line."""


class RegistryUnavailable(TemporaryError):
    """The registry did not answer, or answered with a server error."""


class RegistryFull(RegistryUnavailable):
    """The registry has no room: its disk is full, or a quota is used up."""


class RegistryRefused(PermanentError):
    """The registry, or something in its place, refused the request."""


class RegistryUnauthorized(RegistryRefused):
    """The registry requires other credentials, or refuses this user."""


class RegistryRejected(RegistryRefused):
    """The registry refuses the content: too large, or against a rule of its own."""
