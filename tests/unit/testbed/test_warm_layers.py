"""Which layers of the product's images an engine of the tests begins with."""

from tools.warm_layers import first_layers

DOCKERFILE = """ARG BASE_IMAGE=debian
FROM ${BASE_IMAGE} AS install
RUN one
COPY wheels/ /wheels/
RUN two
FROM ${BASE_IMAGE}
RUN three
COPY --from=install /opt /opt
FROM scratch
COPY --from=install /opt /opt
"""


def test_each_stage_up_to_what_it_copies() -> None:
    """What comes after the first COPY depends on the source; a stage that runs nothing has nothing to keep."""
    head = "ARG BASE_IMAGE=debian\nFROM ${BASE_IMAGE}"
    assert list(first_layers(DOCKERFILE)) == [f"{head} AS install\nRUN one\n", f"{head}\nRUN three\n"]
