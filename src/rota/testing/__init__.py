"""Tools for tests: a clock moved by hand, ``drain``, and in ``rota.testing.tck`` the conformance suite for engines."""

from rota.testing.clock import ManualClock
from rota.testing.draining import adrain, drain

__all__ = ["ManualClock", "adrain", "drain"]
