"""What every test and doctest shares: names, a seed of its own, costs, and the `--seeds` sweep."""

import gc
import hashlib

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import settings

import tests.type_checks  # noqa: F401  # before the package
from vademecum.randomness import own_randomness

pytest_plugins = ["tests.costs"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("repeatable")  # new examples: pytest --hypothesis-profile=explore


def pytest_addoption(parser):
    parser.addoption("--seeds", default="0", help="seeds for the claims, such as 3 or 0-19")


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("seeds").partition("-")
        metafunc.parametrize("seed", range(int(first), int(last or first) + 1))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What 23,000 tests are made of stays to the end: no search for garbage goes through it again.

    Such a search took half a second, and some tests ask for dozens.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _seeded(request):
    """Generators seeded by the test's name: no test moves another's random numbers."""
    digest = hashlib.sha256(request.node.nodeid.encode()).digest()
    with own_randomness(int.from_bytes(digest[:7])):
        yield


@pytest.fixture(autouse=True)
def _names(doctest_namespace):
    doctest_namespace |= {"torch": torch, "nn": torch.nn, "np": np}


@pytest.fixture
def unchecked():
    """Switch the run-time type checks off: what a user sees who hands in the wrong thing."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
