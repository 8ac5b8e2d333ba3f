"""Many histories of MIG changes."""

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.device_agent.mig.test_decide_histories import Histories

TestManyHistories = Histories.TestCase
TestManyHistories.settings = settings(
    max_examples=1000, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
pytestmark = pytest.mark.long
