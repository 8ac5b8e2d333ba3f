"""The exceptions of nfd_worker.

::

    NfdWorkerError
    ├── ConfigurationError   a flag, an environment variable or the configuration file: an admin must correct it
    ├── HostReadError        a file of the node could not be read; its source keeps its last good features
    └── UnfitFileError       a file that is not read: it is not a regular file, or too long

What the API server answers never reaches the resident process as an exception: the publish child reports it as a line
of JSON (:mod:`nfd_worker.publish.publish_child`). Errors of rules are :mod:`feature_rules.errors`; they are a tree of
their own.
"""


class NfdWorkerError(Exception):
    """Root of everything nfd_worker raises on purpose."""


class ConfigurationError(NfdWorkerError):
    """A setting is wrong; the message names where it stands, the setting and what would be right."""


class HostReadError(NfdWorkerError):
    """A file of the node is there but could not be read, or is missing where every node has it."""


class UnfitFileError(NfdWorkerError):
    """A file is not a regular file, or is longer than its reader allows; the message says which, without the path."""
