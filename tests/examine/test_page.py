"""The page: nothing in it runs, everything in it is there, and it is not too large."""

import html.parser
import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import Dossier, Finding, Measurement, Section, examine
from vademecum.examine._page import page

NASTY = "<script>alert(1)</script>"


class Reader(html.parser.HTMLParser):
    """The tags, attributes and words of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture(scope="module")
def dossier() -> Dossier:
    kind = type(NASTY, (nn.ReLU,), {"__module__": NASTY})
    model = type(NASTY, (nn.Sequential,), {})(nn.Linear(4, 8), kind(), nn.Linear(8, 3))
    names = ["anatomy", "signal", "representations", "generalisation"]
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(40, 4, generator=draw), torch.arange(40) % 3
    return examine(model, x, y, sections=names, generator=draw)


def test_what_users_write_is_escaped(dossier):
    text = page(dossier)
    read = Reader(text)
    assert NASTY in read.words  # as words
    assert not [tag for tag, _ in read.tags if tag in ("script", "iframe", "object", "link")]
    assert not [key for _, attrs in read.tags for key in attrs if key.startswith("on")]
    assert "<script" not in text


def test_every_field_is_escaped():
    bad = Section(
        "signal", "failed", (Measurement("x", NASTY, None, NASTY, 1, NASTY),
                             Measurement("y", (NASTY,) * 9)),
        NASTY, (NASTY,), f"<svg>{NASTY}</svg>", 1.0, NASTY, NASTY, (NASTY,),
    )  # fmt: skip
    finding = Finding(NASTY, "signal", 1.0, 0.5, NASTY, 3.0)
    text = page(Dossier((bad,), (finding,), {"model": NASTY, NASTY: NASTY, "task": NASTY}))
    assert "<script" not in text
    assert Reader(text).words.count(NASTY) >= 10


def test_the_page_needs_nothing_else(dossier):
    read = Reader(page(dossier))
    sources = [attrs.get("src") or attrs.get("href") or "" for _, attrs in read.tags]
    assert all(each.startswith(("data:image/svg+xml;base64,", "#", "")) for each in sources)
    assert not re.search(r"https?://", re.sub(r"base64,[^\"]*", "", page(dossier)))
    images = [attrs for tag, attrs in read.tags if tag == "img"]
    assert len(images) == sum(section.figure is not None for section in dossier.sections) >= 3
    assert all(attrs["alt"] for attrs in images)
    for section in dossier.sections:
        assert section.sentence in read.words
        assert all(claim in read.words for claim in section.claims)


def test_large_pictures_are_left_to_their_files(tmp_path):
    sizes = {"anatomy": 3_000_000, "signal": 2_000_000, "kernel": 10_000}
    sections = tuple(
        Section(name, "measured", (), "", (), f"<svg>{'a' * size}</svg>")
        for name, size in sizes.items()
    )
    where = Dossier(sections).save(tmp_path)
    assert where.stat().st_size < 5_000_000
    assert 'href="figures/anatomy.svg"' in where.read_text()
    assert where.read_text().count("<img") == 2
    assert (tmp_path / "figures" / "anatomy.svg").is_file()


def test_what_is_missing_is_said():
    sections = (
        Section("kernel", "not applicable", reason="because there are no targets"),
        Section("curvature", "out of time", reason="the time was over"),
    )
    words = Reader(page(Dossier(sections))).words
    assert "not applicable: because there are no targets" in words
    assert "out of time: the time was over" in words
    assert "Nothing stands out in 0 sections" in words
