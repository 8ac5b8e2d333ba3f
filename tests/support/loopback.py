"""The registries of tests are on this machine: a controller asks such a host only where a setting names it."""

from driver_builder.model.registry_reach import Reach

LOOPBACK = Reach(local=True)
"""For clients in a test: their registry may be here, and what it refers to may not."""
ALLOWED = "127.0.0.1"
"""The value of ``--registry-allowed-hosts`` for programs that a test runs."""
ALLOWING = Reach(allowed=frozenset({ALLOWED}))
"""The same, for the settings of Jobs."""
VARIABLE = "DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS"
