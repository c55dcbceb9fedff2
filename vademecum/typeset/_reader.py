r"""TeX's mathematics, as far as a course needs it, as MathML.

A row of TeX is a list of atoms. Arguments, and what stands between `\left` and `\right` or `\begin`
and `\end`, are rows of their own. The style of a row (display, text or script) says whether limits
stand below and above, and whether there are spaces in it.
"""

import re
import unicodedata
from collections.abc import Callable
from xml.etree.ElementTree import Element

from vademecum.typeset import _symbols as symbols
from vademecum.typeset._scanner import Scanner
from vademecum.typeset._spacing import Atom, Row, element, enclosed, lay_out

__all__ = ["read"]

_SMALLER = {"display": "text", "text": "script", "script": "script"}
_BIG = {"big": "1.2em", "Big": "1.8em", "bigg": "2.4em", "Bigg": "3em"}
_AROUND = {
    "matrix": ("", ""), "smallmatrix": ("", ""), "aligned": ("", ""), "cases": ("{", ""),
    "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "Bmatrix": ("{", "}"), "vmatrix": ("|", "|"),
    "Vmatrix": ("‖", "‖"),
}  # fmt: skip


def read(tex: str, *, block: bool = False) -> Row:
    """The elements of a formula.

    Raises:
        ValueError: If a command is unknown or braces do not match.
    """
    try:
        return _Reader(tex, "display" if block else "text").row()
    except ValueError as error:
        raise ValueError(f"{error} in {tex!r}") from None


class _Reader:
    """Reads one row."""

    def __init__(self, tex: str, style: str, alphabet: str | None = None):
        self.source = Scanner(tex)
        self.style = self.outer = style
        self.alphabet = alphabet

    def row(self) -> Row:
        return lay_out(self.atoms(), tight=self.style == "script")

    def atoms(self) -> list[Atom]:
        found: list[Atom] = []
        while token := self.source.token():
            if token in ("^", "_", "'"):
                if not found or found[-1].kind == "space":
                    found.append(Atom("ord", element("mrow")))
                self.script(found[-1], token)
            elif token in (r"\limits", r"\nolimits") and found:
                found[-1].limits = token == r"\limits"
            elif token in (r"\displaystyle", r"\textstyle"):
                self.style = token[1:].removesuffix("style")
            else:
                found.append(self.atom(token))
        return found

    def inner(self, tex: str, style: str | None = None) -> Element:
        return enclosed(_Reader(tex, style or self.style, self.alphabet).row().elements)

    def argument(self, style: str | None = None) -> Element:
        return self.inner(self.source.argument(), style)

    def script(self, atom: Atom, token: str) -> None:
        place = "sub" if token == "_" else "sup"
        if getattr(atom, place) is not None:
            raise ValueError(f"a second {token} on one base")
        if token == "'":
            primes = 1
            while self.source.take("'"):
                primes += 1
            made = element("mo", "′″‴⁗"[min(primes, 4) - 1], lspace="0", rspace="0")
            if self.source.take("^"):
                made = element("mrow", made, self.argument("script"))
        else:
            made = self.argument("script")
        setattr(atom, place, made)

    def atom(self, token: str) -> Atom:
        name = token[1:]
        sign = symbols.CHARACTERS.get(token) or symbols.COMMANDS.get(token)
        if sign:
            return self.sign(*sign)
        if token.isdigit():
            digits = token + self.source.digits()
            return Atom("ord", element("mn", _letters(digits, self.alphabet)))
        if token.isalpha():
            return self.letter(token)
        if token == "{":
            return Atom("ord", self.inner(self.source.until("{", "}")))
        if token == "~" or name in symbols.SPACES or name.isspace():
            width = symbols.SPACES.get(name, 5) / 18
            return Atom("space", element("mspace", width=f"{width:.4g}em"))
        if name in symbols.FUNCTIONS:
            return self.function(name)
        for pattern, read in _COMMANDS:
            if match := re.fullmatch(pattern, name):
                return read(self, match)
        raise ValueError(f"unknown command {token}")

    def letter(self, token: str) -> Atom:
        if self.alphabet is None:
            return Atom("ord", element("mi", token))
        word = token + self.source.letters()
        made = element("mi", _letters(word, self.alphabet))
        if len(word) == 1 and made.text == word:
            made.set("mathvariant", "normal")
        return Atom("word" if len(word) > 1 else "ord", made)

    def sign(self, sign: str, kind: str) -> Atom:
        if kind == "ord" and sign not in "/.@":
            sign = _letters(sign, self.alphabet)
            made = element("mi", sign)
            if sign in "∂∇" or "Α" <= sign <= "Ω":
                made.set("mathvariant", "normal")
            return Atom(kind, made)
        made = element("mo", sign)
        if kind == "op" and self.style != self.outer:
            made.set("displaystyle", str(self.style == "display").lower())
        limits = kind == "op" and self.style == "display" and sign not in "∫∬∮"
        return Atom(kind, made, limits=limits)

    def function(self, name: str, *, limits: bool = False) -> Atom:
        limits = (limits or name in symbols.LIMITS) and self.style == "display"
        return Atom("op", element("mi", name), limits=limits)

    def operator(self, match: re.Match[str]) -> Atom:
        name = self.source.argument().replace(r"\,", "\u2009")
        return self.function(name, limits=match[0].endswith("*"))

    def fraction(self, match: re.Match[str]) -> Atom:
        style = {"t": "text", "d": "display"}.get(match[1], self.style)
        made = element("mfrac", *(self.argument(_SMALLER[style]) for _ in range(2)))
        if style != self.outer and "script" not in (style, self.outer):
            made.set("displaystyle", str(style == "display").lower())
        if match[2] == "frac":
            return Atom("inner", made)
        made.set("linethickness", "0")
        return _fenced("(", [made], ")")

    def root(self, _: re.Match[str]) -> Atom:
        degree = self.source.until("[", "]") if self.source.take("[") else ""
        inside = self.argument()
        if not degree:
            return Atom("ord", element("msqrt", inside))
        return Atom("ord", element("mroot", inside, self.inner(degree, "script")))

    def accent(self, match: re.Match[str]) -> Atom:
        sign = element("mo", symbols.ACCENTS[match[0]])
        if not match[0].startswith(("wide", "over", "under")):
            sign.set("stretchy", "false")
        tag = "munder" if match[0] == "underline" else "mover"
        return Atom("ord", element(tag, self.argument(), sign, accent="true"))

    def stacked(self, match: re.Match[str]) -> Atom:
        """A relation with something above or below it."""
        script = self.argument("script")
        if match[0].startswith("x"):  # browsers set it too high above an arrow
            base = element("mo", "⟶" if "right" in match[0] else "⟵", lspace="0", rspace="0")
            script = element("mpadded", script, voffset="-0.3em", height="0.2em")
        else:
            base = self.argument()
        if match[0] == "underset":
            return Atom("op", element("munder", base, script))
        return Atom("rel", element("mover", base, script))

    def in_alphabet(self, match: re.Match[str]) -> Atom:
        return self.single(symbols.ALPHABETS[match[0]])

    def of_kind(self, match: re.Match[str]) -> Atom:
        made = self.single(self.alphabet)
        made.kind, made.limits = match[1], match[1] == "op" and self.style == "display"
        return made

    def single(self, alphabet: str | None) -> Atom:
        """The argument as one atom."""
        atoms = _Reader(self.source.argument(), self.style, alphabet).atoms()
        if len(atoms) == 1:
            return atoms[0]
        return Atom("ord", enclosed(lay_out(atoms, tight=self.style == "script").elements))

    def text(self, _: re.Match[str]) -> Atom:
        words = re.sub(r"\\([_%&#])", r"\1", self.source.argument())
        pieces = enumerate(words.split("$"))
        made = [
            self.inner(piece) if i % 2 else element("mtext", re.sub(r"\s+", "\u00a0", piece))
            for i, piece in pieces
            if piece
        ]
        return Atom("ord", enclosed(made))

    def fence(self) -> tuple[str, str]:
        token = self.source.token()
        sign = symbols.CHARACTERS.get(token) or symbols.COMMANDS.get(token)
        if token == ".":
            return "", ""
        if sign is None or sign[0] not in symbols.FENCES | set("/↑↓"):
            raise ValueError(f"{token!r} is no fence")
        return sign

    def big(self, match: re.Match[str]) -> Atom:
        text, kind = self.fence()
        kind = {"l": "open", "r": "close", "m": "rel"}.get(match[2], kind)
        size = _BIG[match[1]]
        return Atom(kind, element("mo", text, minsize=size, maxsize=size))

    def between(self, _: re.Match[str]) -> Atom:
        before, _kind = self.fence()
        inside = self.source.until(r"\left", r"\right")
        elements = _Reader(inside, self.style, self.alphabet).row().elements
        return _fenced(before, elements, self.fence()[0])

    def negated(self, _: re.Match[str]) -> Atom:
        made = self.atom(self.source.token())
        if not made.element.text:
            raise ValueError(r"\not stands before what is no sign")
        made.element.text = unicodedata.normalize("NFC", f"{made.element.text}\u0338")
        return made

    def environment(self, _: re.Match[str]) -> Atom:
        name = self.source.argument()
        if name not in _AROUND:
            raise ValueError(f"unknown environment {name}")
        small = name == "smallmatrix"
        table = element("mtable", **{"class": name, **({"scriptlevel": "1"} if small else {})})
        style = {"smallmatrix": "script", "aligned": self.style}.get(name, "text")
        if style == "display":
            table.set("displaystyle", "true")
        for row in Scanner(self.source.body()).cells():
            cells = [element("mtd", *_Reader(cell, style).row().elements) for cell in row]
            table.append(element("mtr", *cells))
        before, after = _AROUND[name]
        return _fenced(before, [table], after)


_COMMANDS: tuple[tuple[str, Callable[[_Reader, re.Match[str]], Atom]], ...] = (
    (r"([td]?)(frac|binom)", _Reader.fraction),
    (r"sqrt", _Reader.root),
    (r"|".join(symbols.ACCENTS), _Reader.accent),
    (r"xrightarrow|xleftarrow|overset|underset|stackrel", _Reader.stacked),
    (r"|".join(symbols.ALPHABETS), _Reader.in_alphabet),
    (r"operatorname\*?", _Reader.operator),
    (r"math(op|rel|bin|ord)", _Reader.of_kind),
    (r"text|textrm|mbox", _Reader.text),
    (r"(big|Big|bigg|Bigg)([lrm]?)", _Reader.big),
    (r"left", _Reader.between),
    (r"not", _Reader.negated),
    (r"begin", _Reader.environment),
)


def _fenced(before: str, inside: list[Element], after: str) -> Atom:
    """Fences that grow with what they enclose."""
    fences = [[element("mo", sign)] if sign else [] for sign in (before, after)]
    return Atom("open", element("mrow", *fences[0], *inside, *fences[1]), "close")


def _letters(word: str, alphabet: str | None) -> str:
    """A word in one of Unicode's alphabets of mathematics."""
    return "".join(_letter(letter, alphabet) for letter in word) if alphabet else word


def _letter(letter: str, alphabet: str) -> str:
    name = re.sub("LATIN |GREEK |LETTER ", "", unicodedata.name(letter))
    other = alphabet.replace("FRAKTUR", "BLACK-LETTER")  # of the letters that Unicode had before
    for whole in (f"MATHEMATICAL {alphabet} {name}", f"{other} {name}"):
        try:
            return unicodedata.lookup(whole)
        except KeyError:
            continue
    return letter
