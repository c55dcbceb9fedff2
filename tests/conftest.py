"""A browser for all tests that look at pages, one after the other; GPUs, or tests that skip."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
BROWSER = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
    pytest.mark.xdist_group("browser"),
    pytest.mark.slow,
]
"""The marks of such tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests for GPUs are skipped where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
