r"""Atoms of a formula set in a row: TeX's spaces between them, and scripts on what they belong to.

An atom has a kind, and the kinds of two neighbours decide the space between them (Knuth, The
TeXbook, 1984, chapter 18). A minus that follows nothing it could subtract from is a sign. Bars are
the same sign on either side; which one opens is seen from what stands before. A script on a closing
fence belongs to all that the fences enclose.
"""

from dataclasses import dataclass
from typing import NamedTuple
from xml.etree.ElementTree import Element

from vademecum.typeset._symbols import FENCES

__all__ = ["Atom", "Row", "element", "enclosed", "lay_out"]

_KINDS = ("ord", "op", "bin", "rel", "open", "close", "punct", "inner")
_GAPS = {
    "ord": "01340002", "op": "11040002", "bin": "33003003", "rel": "44004004", "open": "00000000",
    "close": "01340002", "punct": "22022222", "inner": "21342022",
}  # fmt: skip
_WIDTHS = {"0": 0, "1": 3, "2": 3, "3": 4, "4": 5}  # eighteenths of an em; 2, 3, 4 not in scripts
_BEFORE_A_SIGN = ("", "bin", "op", "rel", "open", "punct")
_USUAL = {"rel": (5, 5), "bin": (4, 4), "punct": (0, 3), "open": (0, 0), "close": (0, 0)}
"""What a browser puts around such a sign of itself."""
_UNUSUAL = frozenset([*"×⋅∗∘∙⊗⊙:?‖", "mod"])

_LOW = frozenset("acegmnopqrsuvwxyzαγεηικμνπρστυχωϵ")
_DEEP = frozenset("fgjpqyQJβγζημξρφχψϕ")


@dataclass
class Atom:
    """A piece of a formula: its kind, its element, and the scripts it bears."""

    kind: str
    element: Element
    after: str = ""  # its kind for what follows, where it has two
    sub: Element | None = None
    sup: Element | None = None
    limits: bool = False  # scripts above and below
    left: int = 0
    right: int = 0

    @property
    def bare(self) -> bool:
        """Whether it is a sign without scripts, which can carry the spaces around it."""
        return self.element.tag == "mo" and self.sub is None and self.sup is None

    @property
    def blank(self) -> bool:
        """Whether a browser overlooks it when it asks which sign is the first."""
        return self.element.tag in ("mspace", "mtext")


class Row(NamedTuple):
    """Elements in their order, and before which of them a line may end, after which kind."""

    elements: list[Element]
    breaks: list[tuple[int, str]]
    inner: list[int]
    """Where else a line may end if it must: within fences."""


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """An element of MathML."""
    made = Element(tag, attributes)
    for child in children:
        if isinstance(child, str):
            made.text = child
        else:
            made.append(child)
    return made


def enclosed(elements: list[Element], tag: str = "mrow") -> Element:
    """One element for several."""
    return elements[0] if len(elements) == 1 and tag == "mrow" else element(tag, *elements)


def lay_out(atoms: list[Atom], *, tight: bool) -> Row:
    """The elements of a row with their spaces.

    Args:
        atoms: As read.
        tight: Whether this is a script, which has few spaces.
    """
    _pair_bars(atoms)
    _settle_signs(atoms)
    row, opened, last = Row([], [], []), [], None
    for atom in atoms:
        if atom.kind != "space":
            _part(row, last, atom, tight=tight)
            if last and last.kind in ("rel", "punct", "bin"):
                if opened:
                    row.inner.append(len(row.elements))
                else:
                    row.breaks.append((len(row.elements), last.kind))
            last = atom
        closes = atom.kind == "close" and atom.element.text in FENCES and opened
        start = opened.pop() if closes else len(row.elements)
        row.elements.append(atom.element)
        if atom.after == "open":
            opened.append(start)
        if atom.sub is not None or atom.sup is not None:
            row.elements[start:] = [_scripted(_nucleus(row.elements[start:], atom), atom)]
            row.inner[:] = [at for at in row.inner if at <= start]
    solid = [i for i, atom in enumerate(atoms) if not atom.blank]
    for i, atom in enumerate(atoms):
        if atom.element.tag == "mo":
            _dress(atom, between=solid[0] < i < solid[-1])
    return row


def _part(row: Row, last: Atom | None, atom: Atom, *, tight: bool) -> None:
    """Put the space between two neighbours where it belongs: on a sign if there is one."""
    width = _gap(last.after or last.kind, atom.kind, tight=tight) if last else 0
    if not width or last is None:
        return
    if last.bare:
        last.right += width
    elif atom.bare and atom.after != "open":
        atom.left += width
    else:
        row.elements.append(element("mspace", width=_em(width)))


def _gap(left: str, right: str, *, tight: bool) -> int:
    if "bin" not in (left, right):  # a name is an operator but for the signs around it
        left, right = left.replace("word", "op"), right.replace("word", "op")
    left, right = left.replace("word", "ord"), right.replace("word", "ord")
    code = _GAPS[left][_KINDS.index(right)]
    return 0 if tight and code in "234" else _WIDTHS[code]


def _em(width: int) -> str:
    return f"{width / 18:.4f}".strip("0").rstrip(".") + "em" if width else "0"


def _dress(atom: Atom, *, between: bool) -> None:
    """Attributes for what differs from what browsers do of themselves."""
    sign, text = atom.element, atom.element.text or ""
    if (text in FENCES and "minsize" not in sign.attrib) or text in "↑↓∥":
        sign.set("stretchy", "false")
    usual = _USUAL.get(atom.kind) if text not in _UNUSUAL else None
    placed = between or atom.kind in ("open", "close")
    if text in "|‖" and atom.kind != "rel":
        sign.set("form", "prefix" if atom.after == "open" else "postfix")
        usual, placed = (0, 0), True
    if (atom.left, atom.right) != usual or not placed:
        sign.set("lspace", _em(atom.left))
        sign.set("rspace", _em(atom.right))


def _nucleus(elements: list[Element], atom: Atom) -> Element:
    """What bears the scripts; letters, accents and fences of usual size do not move them."""
    last = elements[-1]
    fence = last.tag == "mo" and last.text in FENCES and "minsize" not in last.attrib
    letter = last.tag == "mi" and len(last.text or "") == 1
    if atom.limits or not (fence or letter or "accent" in last.attrib):
        return enclosed(elements)
    kept = {}
    if atom.sup is not None and not (letter and last.text in _LOW):
        kept["height"] = ".55em"
    if atom.sub is not None and not (letter and last.text not in _DEEP):
        kept["depth"] = "0"
    return element("mpadded", *elements, **kept) if kept else enclosed(elements)


def _scripted(base: Element, atom: Atom) -> Element:
    names = ("munder", "mover", "munderover") if atom.limits else ("msub", "msup", "msubsup")
    scripts = [script for script in (atom.sub, atom.sup) if script is not None]
    name = names[2] if len(scripts) == 2 else names[0] if atom.sub is not None else names[1]
    return element(name, base, *scripts)


def _pair_bars(atoms: list[Atom]) -> None:
    """Which bars open and which close; one without a partner is a relation, as in P(A | B)."""
    opened: list[Atom] = []
    before = ""
    for i, atom in enumerate(atoms):
        if atom.kind == "bar":
            scripted = atom.sub is not None or atom.sup is not None
            partner = bool(opened) and opened[-1].element.text == atom.element.text
            around_one = partner and atoms[i - 2] is opened[-1]  # as in ‖·‖
            if partner and (scripted or around_one or before not in _BEFORE_A_SIGN):
                opened.pop()
                atom.kind = "close"
            elif scripted:  # as in f'|_0
                atom.kind = "ord"
            else:
                atom.kind, atom.after = "ord", "open"
                opened.append(atom)
        elif atom.kind == "open" and not atom.after:
            atom.after = "open"
            opened.append(atom)
        elif atom.kind == "close" and atom.element.text in FENCES:
            while opened and opened[-1].kind != "open":
                _relate(opened.pop())
            del opened[-1:]
        if atom.kind != "space":
            before = atom.after or atom.kind
    for atom in opened:
        if atom.kind == "ord":
            _relate(atom)


def _relate(bar: Atom) -> None:
    bar.kind, bar.after = "rel", ""


def _settle_signs(atoms: list[Atom]) -> None:
    """A sign between two terms that has none on one side belongs to the other."""
    last = None
    for atom in [*(a for a in atoms if a.kind != "space"), None]:
        before = (last.after or last.kind) if last else ""
        if last and last.kind == "bin" and (atom is None or atom.kind in ("rel", "close", "punct")):
            last.kind = "ord"
        if atom and atom.kind == "bin" and before in _BEFORE_A_SIGN:
            atom.kind = "ord"
        last = atom
