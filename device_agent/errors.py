"""The exceptions of device_agent.

::

    AgentError
    ├── ConfigurationError   a flag, an environment variable or the configuration file: an admin must correct it
    ├── AllocationRefused    the kubelet asked for devices that cannot be given; it gets the message
    ├── FileInvalid          a file of the agent's own is not one; it is set aside
    ├── MalformedMessage     bytes from the kubelet are not a message of its API
    ├── MigRefused           a MIG layout does not fit a card, or no card can have it; nothing is changed
    ├── ProfileRefused       a profile is not valid, or does not fit the node's cards; what was applied before stays
    ├── RegistrationFailed   the kubelet is not there, or refused a resource; it is tried again
    ├── SocketUnusable       the container nvml cannot listen on its socket
    ├── StartRefused         a container has devices that are no longer what it was given; the kubelet gets the message
    ├── StateInvalid         a line of the container nvml, or of its child or client, is not what its protocol has
    └── UsersUnknown         it cannot be read which containers have devices; changes wait
"""


class AgentError(Exception):
    """Root of everything device_agent raises on purpose."""


class ConfigurationError(AgentError):
    """A setting is wrong; the message names where it stands, the setting and what would be right."""


class AllocationRefused(AgentError):
    """Devices that were asked for cannot be given; the message says which and why."""


class FileInvalid(AgentError):
    """A file of the agent's own has something else in it; the message says what is wrong."""


class MalformedMessage(AgentError):
    """Bytes that should be a message of the kubelet's API are none."""


class MigRefused(AgentError):
    """A MIG layout does not fit a card; the message names the profile, and why."""


class ProfileRefused(AgentError):
    """A profile is not valid or cannot be applied; the message names each wrong field and the remedy."""


class RegistrationFailed(AgentError):
    """A resource could not be registered; the message says why."""


class StateInvalid(AgentError):
    """A line about the GPUs' state is none of this version's; the message says where and what is wrong."""


class SocketUnusable(AgentError):
    """The container ``nvml`` cannot have its socket; the message says why, and what to do."""


class StartRefused(AgentError):
    """A container may not start with its devices; the message says which, what it was given, and what to do."""


class UsersUnknown(AgentError):
    """It cannot be read which containers have devices; the message says where and why."""
