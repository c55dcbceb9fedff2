"""Texts with formulas: in HTML, in pieces that lines may part, and in plain words."""

import re

import pytest

from vademecum.typeset import in_words, typeset
from vademecum.typeset._formulas import pieces, words


def test_formulas_survive_markdown():
    made = typeset("with $a_1 * b_2 * c$, `x_*y*` and\n\n$$\\frac12$$\n\n- *one*")
    assert made.count("<math") == 2
    assert "<code>x_*y*</code>" in made
    assert made.count("<em>") == 1
    assert "<mn>1</mn>" in made
    assert "<li><em>one</em></li>" in made


def test_a_long_formula_may_be_parted_where_tex_would():
    tex = r"f(\alpha x + (1 - \alpha) y) = \alpha f(x) + (1 - \alpha) f(y), \quad x \le y"
    parts = pieces(tex)
    assert len(parts) == 3
    assert [re.sub("<.*?>", "", part)[-1] for part in parts] == ["=", ",", "y"]
    assert len(pieces(tex, block=True)) == len(pieces("a = b")) == 1
    assert len(pieces(r"\big(aaaaaaaaa = bbbbbbbbbbb = ccccccccccc\big)")) == 1


def test_punctuation_stays_with_its_formula():
    made = typeset("for all ($x$), and $y$ too")
    assert re.search(r'<span class="together">\(<math.*?</math>\),</span> and <math', made)
    made = typeset(r"so ($f(\alpha x + (1 - \alpha) y) = \alpha f(x) + (1 - \alpha) f(y)$).")
    assert re.search(r'so <span class="together">\(<math.{,900}</math></span><span', made)
    assert re.search(r'<span class="together"><math.{,900}</math>\)\.</span>', made)


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\|w\|^2 \le 1", "‖w‖² ≤ 1"),
        (r"\Theta", "Θ"),
        (r"\frac{1}{4 \pi} + \tfrac12", "1/(4π) + 1/2"),
        (r"\frac{a + b}{\|x\|}", "(a + b)/‖x‖"),
        (r"\mathbb R^{m \times n}", "ℝ^(m×n)"),
        (r"e^{-x^2}", "e^(−x²)"),
        (r"W^\top x_{i+1}", "Wᵀxᵢ₊₁"),
        (r"\operatorname{tr} \Theta", "tr Θ"),
        (r"\binom nk", "(n choose k)"),
        (r"\left|x\right| \big|y\big| P(A \bigm| B | C)", "|x||y|P(A | B | C)"),
        (r"\frac ab\Big|_{x=0}", "a/b |ₓ₌₀"),
        (r"\sqrt{x + 1} + \sqrt[3] x", "√(x + 1) + ³√x"),
        (r"\hat y = f'(x), \quad w^*", "ŷ = f′(x), w*"),
        (r"\sum_{i \ne j}^n a_{ij}", "∑_(i≠j)ⁿ aᵢⱼ"),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", "(a, b; c, d)"),
        (r"x \text{ for all } t", "x for all t"),
        (r"\text{filter\_width}", "filter_width"),
        (r"f'^2 \not\succ \mathcal N", "f′² ⊁ N"),
        (r"\begin{matrix} a \\ \begin{matrix} c & d \end{matrix} \end{matrix}", "a; c, d"),
    ],
)
def test_words(tex, text):
    assert words(tex) == text


def test_words_of_a_text():
    assert in_words("**Now**\n*all* of `a_*b*`, $a * b$ 2 * 3") == "Now all of a_*b*, a ∗ b 2 * 3"
