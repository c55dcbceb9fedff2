"""What tests of examinations share."""

import pytest

from vademecum.examine import examining
from vademecum.examine._section import Plan


@pytest.fixture
def plans(monkeypatch):
    """A place for sections of a test's own, instead of all others."""
    own: dict[str, Plan] = {}
    monkeypatch.setattr(examining, "PLANS", own)

    def add(name, run, cost=1.0):
        own[name] = Plan(name, run, cost, ())

    return add
