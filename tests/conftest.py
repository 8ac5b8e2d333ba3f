"""What all tests share: the proving grounds, one of each kind per session, and how thoroughly Hypothesis looks.

``HYPOTHESIS_PROFILE=thorough pytest`` looks harder, ``fuzz`` (``make fuzz``) hardest; the default keeps the unit tests
within seconds.
"""

import os

from hypothesis import HealthCheck, settings

from tests.proving_ground.fixtures import control_plane_ground, engine_ground, ground

__all__ = ["control_plane_ground", "engine_ground", "ground"]

# Derandomized: what a change did not touch does not fail it.
settings.register_profile(
    "ci", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
