"""Events that cannot be written."""

import asyncio
import logging

import pytest

from device_agent.event import Json
from device_agent.memory_limits.tell import Teller
from kube_api.errors import KubeApiError
from tests.unit.device_agent.memory_limits.test_report import ENDING


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KubeApiError("the API server is away"), id="the API server"),
        pytest.param(RuntimeError("can't start new thread"), id="no thread"),
        pytest.param(OSError(12, "Cannot allocate memory"), id="no memory"),
    ],
)
def test_an_event_that_cannot_be_written_ends_nothing_else(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, once for each reason."""

    def create(_path: str, _body: Json) -> None:
        raise error

    teller = Teller(create, "node-1")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            asyncio.run(teller(ENDING))
    assert caplog.text.count("an Event cannot be written") == 1
    assert str(error) in caplog.text or repr(error) in caplog.text
