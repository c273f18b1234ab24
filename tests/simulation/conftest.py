"""Scenes of a test are closed after it."""

from tests.simulation.scene import close_worlds

__all__ = ["close_worlds"]
