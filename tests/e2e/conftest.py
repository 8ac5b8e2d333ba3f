"""One cluster for all end-to-end tests: two guests on different kernels, our programs deployed as pods."""

import pytest

from tests.proving_ground import PlainLines, ProvingGround
from tests.story.story import Story


@pytest.fixture(scope="session")
def story(ground: ProvingGround, request: pytest.FixtureRequest) -> Story:
    """The story up to two labelled nodes; what comes after is the tests'."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        told = Story(ground, PlainLines())
        told.build_product()
        told.boot_nodes()
        told.deploy_programs()
        told.wait_for_labels()
    return told
