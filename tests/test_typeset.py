"""Formulas: every one that the course states, and one test for each kind of defect seen once."""

import ast
from pathlib import Path
from xml.etree import ElementTree

import pytest

import vademecum
from vademecum.claims import select
from vademecum.pictures import pictures
from vademecum.typeset import in_words, mathml, typeset


def tree(tex: str, *, block: bool = False) -> ElementTree.Element:
    return ElementTree.fromstring(mathml(tex, block=block))


def sign(tex: str, text: str, *, block: bool = False) -> dict[str, str]:
    """The attributes of the first sign with this text."""
    found = [mo for mo in tree(tex, block=block).iter("mo") if mo.text == text]
    return found[0].attrib


# What the course states


def claims_texts():
    for claim in select():
        yield from (claim.statement, *claim.explained.values())
        yield f"${claim.short}$" if claim.short else ""
        yield from (text for f in claim.foils for text in (f.why, f.printed, f.right))


def modules_texts():
    for room in vademecum.ROOMS:
        for path in (Path(vademecum.__file__).parent / room).rglob("*.py"):
            yield ast.get_docstring(ast.parse(path.read_text())) or ""


def pictures_texts():
    for picture in pictures():
        yield picture.function.__doc__ or ""
        yield from (knob.about for knob in picture.knobs.values())


@pytest.mark.parametrize("texts", [claims_texts, modules_texts, pictures_texts])
def test_every_formula_of_the_course_can_be_read(texts):
    for text in texts():
        made = typeset(text)
        assert 'class="formula"' not in made, text
        assert "\ue000" not in made


def test_titles_and_short_statements_in_words():
    for claim in select():
        for text in (claim.title, f"${claim.short}$" if claim.short else ""):
            assert not set(in_words(text)) & set("$\\"), text


# Reading


@pytest.mark.parametrize(
    ("tex", "same"),
    [
        (r"\tfrac12 x", r"\tfrac{1}{2} x"),
        (r"\binom52", r"\binom{5}{2}"),
        (r"x^23", r"x^{2}3"),
        (r"\sqrt12", r"\sqrt{1} 2"),
        (r"a, \dots, b", r"a, \ldots, b"),
        (r"\big( x \big)", r"\bigl( x \bigr)"),
        (r"a \mathrel{\sim} b", r"a \sim b"),
        (r"\frac\alpha\beta", r"\frac{\alpha}{\beta}"),
        ("x\\\ny", r"x\ y"),
        (r"x'_i", r"x_i'"),
        (r"\sum\limits_i", r"\mathop{\sum}\limits_i"),
        (r"\mathbb R^n", r"\mathbb{R}^{n}"),
    ],
)
def test_ways_to_write_the_same(tex, same):
    assert mathml(tex) == mathml(same)


@pytest.mark.parametrize(
    ("tex", "complaint"),
    [
        (r"\nonsense", r"unknown command \\nonsense in"),
        (r"a }", "unknown command }"),
        (r"\frac{a}", "an argument is missing"),
        (r"\frac{a}{b", "} is missing"),
        (r"\left( a", r"\\right is missing"),
        (r"\left a \right)", "'a' is no fence"),
        (r"\begin{pmatrix} a", r"\\end is missing"),
        (r"\begin{poem} a \end{poem}", "unknown environment poem"),
        (r"x^a^b", r"a second \^ on one base"),
        (r"x^", "an argument is missing"),
        ("x \\", r"unknown command \\"),
        (r"\not\frac ab", r"\\not stands before what is no sign"),
    ],
)
def test_what_cannot_be_read(tex, complaint):
    with pytest.raises(ValueError, match=complaint.replace("}", r"\}")):
        mathml(tex)


def test_what_cannot_be_typeset_is_shown_as_written():
    assert r'<code class="formula">\nonsense{&lt;</code>' in typeset(r"$\nonsense{<$")
    assert in_words(r"$\nonsense{<$") == r"\nonsense{<"


# Fences and scripts


@pytest.mark.parametrize("tex", [r"\|w\|^2", r"\{0,1\}^n", "(a + b)_i^2", "|z|^p", r"[0, 1)^n"])
def test_fences_that_carry_scripts_do_not_stretch(tex):
    script = tree(tex)[0]
    assert script.tag in ("msup", "msubsup")
    fences = [script[0][0], script[0][-1]]  # both within what is raised
    assert [mo.tag for mo in fences] == ["mo", "mo"]
    assert [mo.get("stretchy") for mo in fences] == ["false", "false"]
    assert script[0].get("height")  # does not lift the script


@pytest.mark.parametrize("tex", [r"\left(\frac ab\right)^2", r"\begin{vmatrix} a \end{vmatrix}^2"])
def test_fences_that_shall_stretch_do(tex):
    base = tree(tex)[0][0]
    assert base.tag == "mrow"
    assert [mo.attrib for mo in (base[0], base[-1])] == [{}, {}]


def test_big_fences_have_a_size_and_enclose_what_is_raised():
    script = tree(r"\big(\frac{a}{b}\big)^2 := c")[0]
    fences = (script[0][0], script[0][-1])
    assert script.tag == "msup"
    assert all(mo.get("minsize") == mo.get("maxsize") == "1.2em" for mo in fences)
    assert all(mo.get("stretchy") is None for mo in fences)


def test_binomials_and_matrices():
    assert tree(r"\binom nk")[0][1].get("linethickness") == "0"
    matrix = tree(r"\begin{pmatrix} a & b \\ c & d \\ \end{pmatrix}")[0]
    assert [len(row) for row in matrix.iter("mtr")] == [2, 2]
    assert matrix[0].text == "("
    cases = tree(r"\begin{cases} 0 & x \le 0 \\ x & \text{else} \end{cases}")[0]
    assert len(cases) == 2
    assert cases[1].get("class") == "cases"


@pytest.mark.parametrize(
    ("tex", "forms"),
    [
        ("|x - y|", ["prefix", "postfix"]),
        ("|-z|", ["prefix", "postfix"]),
        (r"2 |x| |y|", ["prefix", "postfix"] * 2),
        ("||x| - |y||", ["prefix", "prefix", "postfix", "prefix", "postfix", "postfix"]),
        (r"\sup |f'|", ["prefix", "postfix"]),
        (r"|\cdot|", ["prefix", "postfix"]),
        (r"|a +|_2", ["prefix", "postfix"]),
        (r"P(A | B) P(C | D)", [None, None]),
        (r"f'|_{x=0} + g|_0", ["postfix", "postfix"]),
    ],
)
def test_which_bar_opens(tex, forms):
    assert [mo.get("form") for mo in tree(tex).iter("mo") if mo.text == "|"] == forms


def test_an_index_stands_beside_its_letter_under_an_accent():
    made = mathml(r"\hat x_i + \bar{v}_{jk} + \dot\theta_k^2")
    assert made.count("<mover") == 3
    assert "<munder" not in made


# Spaces


def test_a_name_is_parted_from_its_argument():
    for tex in (r"\mathrm{tr} \Theta", r"\operatorname{tr} \Theta", r"\log x", r"\max_i x"):
        assert tree(tex)[1].attrib == {"width": ".1667em"}
    for tex in (r"\mathrm{tr}(\Theta)", r"\log(x)"):
        assert tree(tex)[1].text == "("
    assert sign(r"\mathrm{tr} + 1", "+") == {}


def test_a_sign_is_close_to_its_term():
    near = {"lspace": "0", "rspace": "0"}
    for tex in ("-x", "a = -x", "(-x)", "f(a, -x)", "e^{-x}", r"2 \cdot -x", r"\log -x", "|-x|"):
        made = sign(tex, "−")
        assert made["rspace"] == "0", tex
    assert sign("a - x", "−") == {}
    assert sign("x_{i-1}", "−") == near  # no spaces in a script
    assert sign("a = b", "=") == {}
    assert sign("= b", "=") == {"lspace": "0", "rspace": ".2778em"}
    assert sign(r"n \times m", "×") == {"lspace": ".2222em", "rspace": ".2222em"}
    assert sign("1{,}5", ",") == near


@pytest.mark.parametrize(
    ("tex", "tags"),
    [
        (r"2 \log x", "mn mspace mi mspace mi"),
        (r"2 \frac ab c", "mn mspace mfrac mspace mi"),
        (r"2 \max_i |x|", "mn mspace msub mspace mo mi mo"),
        (r"\big(a\big) \left(a\right) b", "mo mi mo mrow mi"),
        (r"a \dots b", "mi mo mi"),
        (r"a \underset{i}{\max} b", "mi mspace munder mspace mi"),
        (r"\frac ab \Big|_0", "mfrac mspace msub"),
        (r"a \quad b\,c", "mi mspace mi mspace mi"),
    ],
)
def test_spaces_between_what_has_no_sign(tex, tags):
    assert [part.tag for part in tree(tex)] == tags.split()


def test_spaces_around_commas_dots_and_fences():
    assert sign("a, b", ",") == {}
    assert sign("x_{a, b}", ",") == {"lspace": "0", "rspace": "0"}
    assert sign("(a +)", "+") == {"lspace": "0", "rspace": "0"}
    assert sign(r"a \cdots b", "⋯") == {"lspace": ".1667em", "rspace": ".1667em"}
    assert tree(r"\big(a\big)^2")[0][0].tag == "mrow"  # which lifts the script
    assert sign(r"a \bigm| b", "|")["minsize"] == "1.2em"


# Styles


def test_limits_stand_below_in_a_display_only():
    for tex in (r"\sum_{i=1}^n x", r"\max_i x", r"\operatorname*{argmax}_i x"):
        assert "<munder" in mathml(tex, block=True)
        assert "<munder" not in mathml(tex)
        assert "<munder" not in mathml(r"\textstyle" + tex, block=True)
    assert sign(r"\textstyle\sum_i x", "∑", block=True)["displaystyle"] == "false"
    assert tree(r"\tfrac12", block=True)[0].get("displaystyle") == "false"
    assert "<munder" not in mathml(r"\int_0^1 f", block=True)
    assert "<munder" in mathml(r"\int\limits_0^1 f")
    assert tree(r"\dfrac12")[0].get("displaystyle") == "true"


@pytest.mark.parametrize(
    ("tex", "letters"),
    [
        (r"\mathbb R", "ℝ"), (r"\mathcal N", "𝒩"), (r"\mathcal L", "ℒ"), (r"\mathbf{W1}", "𝐖𝟏"),
        (r"\boldsymbol\theta", "𝜽"), (r"\phi\varphi\epsilon", "ϕφϵ"), (r"\mathrm{Lip}", "Lip"),
    ],
)  # fmt: skip
def test_alphabets(tex, letters):
    assert "".join(tree(tex).itertext()) == letters


def test_upright_letters():
    for tex in (r"\mathrm d", r"\Theta", r"\nabla", r"\partial"):
        assert tree(tex)[0].get("mathvariant") == "normal"
    assert tree("d")[0].attrib == {}
