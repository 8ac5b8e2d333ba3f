"""What all tests share: how thoroughly Hypothesis looks.

``HYPOTHESIS_PROFILE=thorough pytest`` looks harder; the default keeps the unit tests within seconds.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
