"""The documentation's own tools: generated tables, maths, docstrings."""

import doctest
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sklearn.base import BaseEstimator
from torch import nn

import vademecum
import vademecum.testing
from vademecum.claims import Evidence, Report, select, write_reports

DOCS = Path(__file__).parent.parent / "docs"
pytest.importorskip("sphinx")


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return _module("tables")


@pytest.fixture
def results(tables, toy_claims) -> dict[str, list]:
    return {"toyroom": [tables.Result(c, c.run()) for c in toy_claims]}


@pytest.fixture
def toy_claims() -> list:
    from vademecum.claims import Claim, equals

    def sums(total: float = 4.0, word: str = "plus"):
        r"""Two and two is four.

        $2 + 2 = 4$.
        """
        yield equals("two and two", 2 + 2.0, total, n=3, word=word)

    claim = Claim("toyroom.sums", sums, "identity", ("B-001",), ("toyroom.sum",))
    claim.foil("five is\n    too many", total=5.0)
    claim.erratum("B-001", printed="$2 + 2 = \\pi$", right="4", why="a slip", total=3.14159265)
    claim.erratum("B-002", printed="it", right="4", why="a typo", weight="soft", total=4.00001)
    return [claim]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345678, "12345678"),
        (2**70, "1.181e+21"),
        (0.137905, "0.1379"),
        (3e-17, "0"),
        (-0.0, "0"),
        (float("inf"), "a huge number"),
        (10**400, "a huge number"),
        (True, "True"),
        ("word", "word"),
    ],
)
def test_numbers_are_the_same_on_every_machine(tables, value: object, text: str) -> None:
    assert tables.number(value) == text


def test_a_difference_too_small_to_be_seen_is_named(tables) -> None:
    text = Evidence("sums", "==", 1.00004, 1.0, at={"n": 2}).in_words(tables.number)
    assert text == "sums at n = 2: 1, where the formula demands 1 (they differ by 4e-05)"


def test_the_page_of_claims(tables, results) -> None:
    page = tables.claims_page(results)
    assert "1 of 1 hold" in page
    assert "### Two and two is four\n\n`toyroom.sums` · **holds** · by identity · " in page
    assert " · sources B-001 · covers `toyroom.sum`\n\n$2 + 2 = 4$.\n\nFoils:\n\n" in page
    assert "- five is too many\n" in page
    assert "[Errata](errata.md): B-001 (hard), B-002 (soft)\n" in page


def test_the_page_of_errata(tables, results) -> None:
    page = tables.errata_page(results)
    assert "### B-001 (hard): Two and two is four\n\n- **claim**: `toyroom.sums`\n" in page
    assert "- **printed**: $2 + 2 = \\pi$\n- **right**: 4\n- **why**: a slip\n" in page
    found = "- **counterexample**: two and two at n = 3, word = plus: 4, where the formula demands "
    assert f"{found}3.142\n" in page
    assert f"{found}4 (they differ by -1e-05)" in page


def test_the_table_of_rooms(tables, results, monkeypatch, tmp_path: Path) -> None:
    room = ModuleType("vademecum.toyroom")
    room.__dict__.update(dict.fromkeys("abcdefghijkl", len), k=int, Result=tuple)
    room.__dict__["__all__"] = ["Result", *"abcdefghijkl"]
    monkeypatch.setitem(sys.modules, "vademecum.toyroom", room)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    row = "| toyroom | 13: `k`, `a`, `b`, `c`, `d`, `e`, `f`, `g`, … | 1 of 1 | 1 + 0 + 1 | {} |"
    assert tables.rooms_table(results).splitlines()[2] == row.format("–")
    (tmp_path / "bench" / "results").mkdir(parents=True)
    bench = '{"rows": [{"row": "add", "ratio": 12.345}, {"row": "sub", "ratio": 0.5}]}'
    (tmp_path / "bench" / "results" / "toyroom.json").write_text(bench)
    assert tables.rooms_table(results).splitlines()[2] == row.format("0.5 to 12.3 (add)")
    failed = '{"rows": [{"row": "mul", "failed": "AssertionError: 6 | 7"}]}'
    (tmp_path / "bench" / "results" / "toyroom.json").write_text(failed)
    assert tables.rooms_table(results).splitlines()[2] == row.format("–")


def test_the_page_of_speed_tells_a_row_that_failed(tables, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    (tmp_path / "bench" / "results").mkdir(parents=True)
    about = '{"gpu": "G", "versions": {"torch": "2"}}'
    rows = '[{"row": "mul", "failed": "AssertionError: 6 | 7"}]'
    text = f'{{"environment": {about}, "rows": {rows}}}'
    (tmp_path / "bench" / "results" / "toyroom.json").write_text(text)
    assert tables.speed_page().splitlines()[-1] == "| mul | failed | AssertionError: 6 / 7 | | | |"


def test_a_claim_that_broke_counts_as_such(tables, toy_claims) -> None:
    (claim,) = toy_claims
    broken = {"toyroom": [tables.Result(claim, Report(claim.id, 0, error="Traceback"))]}
    assert "**broken**" in tables.claims_page(broken)
    assert "- **counterexample**: none found\n" in tables.errata_page(broken)


def test_stale_files_are_named_then_written_once(
    tables, results, monkeypatch, tmp_path: Path, capsys
) -> None:
    readme = "# R\n<!-- rooms:begin -->\nold\n<!-- rooms:end -->\nrest\n"
    (tmp_path / "README.md").write_text(readme)
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    texts = {
        "README.md": tables.insert(readme, "new\n"),
        "docs/claims.md": tables.claims_page(results),
    }
    monkeypatch.setattr(tables, "generate", lambda kept: texts)
    assert tables.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: README.md, docs/claims.md\n"
    assert (tmp_path / "README.md").read_text() == readme
    assert tables.main([]) == 0
    assert (tmp_path / "README.md").read_text() == readme.replace("old", "new")
    assert tables.insert(texts["README.md"], "new\n") == texts["README.md"]
    capsys.readouterr()
    assert tables.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_reports_of_an_earlier_run_serve(tables, monkeypatch, tmp_path: Path) -> None:
    def forbidden(*_: object, **__: object) -> None:
        pytest.fail("claims ran again")

    claims = select("tooling.*")[:3]
    reports = [claim.run(seed) for claim in claims for seed in (0, 1)]
    write_reports(tmp_path / "kept.json", reports, started=0.0)
    for name, value in (("run", forbidden), ("select", lambda: claims), ("ROOMS", ("tooling",))):
        monkeypatch.setattr(tables, name, value)
    page = tables.generate(str(tmp_path / "kept.json"))["docs/claims.md"]
    assert "3 of 3 hold" in page


def test_a_readme_without_marks_is_refused(tables) -> None:
    with pytest.raises(SystemExit, match="no <!-- rooms:begin -->"):
        tables.insert("# R\n", "new\n")


@pytest.mark.parametrize(
    ("markdown", "rst"),
    [
        ("the $n$th of `w`s", r"the :math:`n`\ th of ``w``\ s"),
        ("over $a\n    b$ lines", "over :math:`a b` lines"),
        ("    So\n    $$a = b.$$\n    End", "So\n    \n\n    .. math::\n\n        a = b."),
        ("Example:\n    >>> f(`$`)\n    $1", "Example:\n    >>> f(`$`)\n    $1"),
        ("Say:\n\n    `a` $b$\n\n    c\n\nand `d`", "Say::\n\n    `a` $b$\n\n    c\n\nand ``d``"),
        ("Args:\n    x: The `w`:\n        more", "Args:\n    x: The ``w``:\n        more"),
        (
            "| a | `b` |\n|---|---|\n| $c$ | d |",
            "    * - a\n      - ``b``\n    * - :math:`c`\n      - d",
        ),
        ("already ``literal`` and :role:`x`", "already ``literal`` and :role:`x`"),
    ],
)
def test_docstrings_become_rst(markdown: str, rst: str) -> None:
    assert rst in _module("docstrings").to_rst(markdown)


@pytest.fixture(scope="module")
def pages() -> Any:
    return _module("room_pages")


@pytest.mark.parametrize("room", vademecum.ROOMS)
def test_a_room_has_a_page_with_all_its_exports(pages, room: str) -> None:
    page = pages.room_page(room, (DOCS / "rooms" / f"{room}.md").read_text())
    entries = re.findall(rf"^\.\. auto(?:class|function):: vademecum\.{room}\.(\w+)$", page, re.M)
    exported = importlib.import_module(f"vademecum.{room}").__all__
    assert sorted(entries) == sorted(exported)
    assert f"(../claims.md#{room})" in page
    assert f"\nrooms/{room}\n" in (DOCS / "index.md").read_text()


def test_an_idea_has_a_heading_and_its_exports_below(pages) -> None:
    page = pages.room_page("linear", "# Linear\n\nSaid first.\n\n## Regression\n\nSaid here.\n")
    at = [page.index(text) for text in (
        "# Linear\n\n*Ridge* regression", "\n\nSaid first.\n\n<img ",
        "[Claims](../claims.md#linear)", "## Regression\n\nSaid here.\n",
        "### Widrow and Hoff's rule of least mean squares (LMS), learnt in blocks\n\n",
        "\n.. autoclass:: vademecum.linear.LMS\n   :members:\n",
        "\n.. autofunction:: vademecum.linear.lms_rate_bounds\n```",
        "## Classification\n\n### Logistic regression",
        "## More pictures\n\n<img src=\"../_static/pictures/linear.",
    )]  # fmt: skip
    assert at == sorted(at)


def test_a_chapter_that_the_room_lacks_is_refused(pages) -> None:
    with pytest.raises(ValueError, match=r"linear.md has \['Zebras'\], which are no chapters"):
        pages.room_page("linear", "# Linear\n\n## Zebras\n\nStripes.\n")


def test_an_entry_names_the_claims_that_check_it(pages) -> None:
    lines = ["The text."]
    pages._checks(None, "class", "vademecum.linear.PCA", None, None, lines)
    assert re.match(r":Checked by: .*``linear\.\w+``", lines[2])
    assert pages.checked_by()["vademecum.foundations.project"]  # the default of a knob
    known = {claim.id for claim in select()}
    assert {claim for claims in pages.checked_by().values() for claim in claims} <= known


def test_every_claim_has_an_anchor() -> None:
    page = _module("links").with_anchors((DOCS / "claims.md").read_text())
    assert re.findall(r"^\(([\w.]+)\)=\n### ", page, re.M) == [
        claim.id for room in vademecum.ROOMS for claim in sorted_by_id(select(f"{room}.*"))
    ]


def sorted_by_id(claims: list) -> list:
    return sorted(claims, key=lambda claim: claim.id)


@pytest.mark.parametrize("name", ["docstrings", "links", "room_pages", "source_pages"])
def test_the_examples_of_the_tools_work(name: str) -> None:
    failed, tried = doctest.testmod(_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried
    assert not failed


def test_the_page_of_laws_has_every_suite() -> None:
    page = (DOCS / "laws.md").read_text()
    for name in vademecum.testing.__all__:
        if name.startswith("check_"):
            assert name in page.partition(":members:")[2]


def _exports() -> dict[str, Any]:
    rooms = [importlib.import_module(f"vademecum.{room}") for room in vademecum.ROOMS]
    return {name: getattr(room, name) for room in rooms for name in room.__all__}


def _has_a_task(thing: Any) -> bool:
    """Whether it measures a model or an operator, or is an estimator or a drawing."""
    if inspect.isclass(thing):
        return issubclass(thing, BaseEstimator)
    first = next(iter(inspect.signature(thing).parameters.values()), None)
    return first is not None and (first.annotation is nn.Module or first.name == "op")


def test_the_index_of_tasks_names_what_there_is() -> None:
    page = (DOCS / "tasks.md").read_text()
    named = set(re.findall(r"`(\w+)`", page)) - {"DataLoader"}
    exports = _exports()
    assert named <= set(exports)
    assert {name for name, thing in exports.items() if _has_a_task(thing)} <= named
