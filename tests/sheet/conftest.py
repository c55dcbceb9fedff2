import pytest

from vademecum.claims import Checked, Report, equals, select

VERSIONS = {"vademecum": "0.1.0", "torch": "2.13.0", "numpy": "2.4.1", "python": "3.11.2"}


def report(name: str, *, holds: bool = True) -> Report:
    return Report(name, 0, (equals("one", 1, 1 if holds else 2),))


@pytest.fixture(scope="session")
def claims():
    return select()


@pytest.fixture(scope="session")
def checked(claims):
    """A run in which everything held."""
    return Checked("2026-01-31T12:00:00Z", VERSIONS, tuple(report(claim.id) for claim in claims))
