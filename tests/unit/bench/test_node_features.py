"""The benchmark of NodeFeature objects measures what it says: every object is applied once, and a change alone."""

from bench import node_features


def test_each_object_is_written_once_and_a_change_alone() -> None:
    """By the controller's own code; at rest nothing is written."""
    found = node_features.measure(30)
    assert found["applied"] == 30
    assert found["applied at rest"] == 0
    assert found["applied of a change"] == 1
    assert 30 * 100_000 < found["listed MiB"] * 2**20 < 30 * 150_000
