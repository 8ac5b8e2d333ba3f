"""The proving grounds for all integration tests: one of each kind per session, started by the first test that asks."""

from tests.proving_ground.fixtures import control_plane_ground, engine_ground, ground

__all__ = ["control_plane_ground", "engine_ground", "ground"]
