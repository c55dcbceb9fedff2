"""Chapters of a room: their titles, their sections, their order."""

import inspect

import vademecum
from vademecum.claims import select
from vademecum.claims.chapters import chapters


def test_chapters_have_titles_and_a_sentence():
    for room in vademecum.ROOMS:
        found = chapters(room, select())
        assert sum(len(chapter.claims) for chapter in found) == len(select(f"{room}.*"))
        for part in (*found, *(section for chapter in found for section in chapter.sections)):
            assert 2 < len(part.title) < 60, part
            assert part.about.endswith("."), part
            assert not part.title.startswith("What the course"), part
        for section in (section for chapter in found for section in chapter.sections):
            (_,) = {claim.check.__module__ for claim in section.claims}
            checks = [inspect.unwrap(claim.check) for claim in section.claims]
            lines = [check.__code__.co_firstlineno for check in checks]
            assert lines == sorted(lines)  # as written


def test_chapters_that_are_packages_have_sections():
    found = {c.name: c for c in chapters("generative", select("generative.*"))}
    assert [s.title for s in found["judged_samples"].sections] == [
        "Scores of samples that never look at data",
        "The Frechet distance",
    ]
    assert found["judged_samples"].title == "Measures of samples"
    assert len(found["one_after_another"].sections) == 1
    few = chapters("generative", select("generative.frechet_distance"))
    assert [(c.name, len(c.sections), len(c.claims)) for c in few] == [("judged_samples", 1, 1)]
