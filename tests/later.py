"""A plugin of pytest: Python's clock is so many days ahead of the machine's. ``-p tests.later --days-ahead=400``.

What another program or a library in C asks the kernel, and what runs in processes that tests start, is of today.
"""

import time

import pytest
import time_machine

OF_TODAY = (
    "tests/unit/bench/test_scale_parts.py::test_the_proxy_forgets_watches_once",
    "tests/unit/driver_builder/registry/test_registry_tls.py::test_nobody_is_sent_from_tls_to_plain_http",
    "tests/unit/driver_builder/registry/test_registry_tls.py::test_the_ca_that_is_given_is_believed",
    "tests/unit/kube_api/test_once.py::test_a_body_that_somebody_cut_off_is_not_its_end",
    "tests/unit/kube_api/test_once.py::test_a_pod_asks_with_the_token_of_this_moment",
    "tests/unit/kube_api/test_once.py::test_the_publish_child_imports_little",
)
"""Tests in which OpenSSL, by the machine's clock, checks a certificate that Python made by its own."""

_DAY = 86400


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the command line say how far."""
    parser.addoption("--days-ahead", type=int, required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Go there; the clock runs on."""
    travel = time_machine.travel(time.time() + config.option.days_ahead * _DAY, tick=True)
    travel.start()
    config.add_cleanup(travel.stop)
