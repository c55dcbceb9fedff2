"""A formula as MathML, in pieces between which a line may end; and as a line of plain text."""

import re
import unicodedata
from xml.etree.ElementTree import Element, tostring

from vademecum.typeset._reader import read
from vademecum.typeset._spacing import Row, element
from vademecum.typeset._symbols import FENCES

__all__ = ["mathml", "pieces", "starts", "words"]

_LONG = 24  # signs that fit beside some words on a phone
_BEFORE_A_BREAK = {"rel": 6, "punct": 3, "bin": 16}  # signs, lest a line end too early
_COMBINING = {
    "ˆ": "\u0302", "˜": "\u0303", "¯": "\u0304", "˙": "\u0307", "¨": "\u0308", "ˇ": "\u030c",
    "˘": "\u0306", "‾": "\u0305",
}  # fmt: skip
_RAISED = dict(
    zip(
        "0123456789+−=()abcdefghijklmnoprstuvwxyzT⊤∗′″‴βγδθ",
        "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᵀᵀ*′″‴ᵝᵞᵟᶿ",
        strict=True,
    )
)
_LOWERED = dict(
    zip("0123456789+−=()aehijklmnoprstuvxβγρχ", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓᵦᵧᵨᵪ", strict=True)
)
_FACTOR = re.compile(r"∂?(\d+|\w)[^\w\s+−/=,(]*|\(.*\)|‖[^‖]*‖|\|[^|]*\|")
_PRODUCT = re.compile(r"[^\s+−/=,]*")


def mathml(tex: str, *, block: bool = False) -> str:
    r"""The MathML of a formula.

    Args:
        tex: The formula, without dollars.
        block: Whether it stands on a line of its own. A long one within a line becomes several
            `<math>`, between which the line may end.

    Raises:
        ValueError: If a command is unknown or braces do not match.

    Example:
        >>> mathml(r"\tfrac12") == mathml(r"\tfrac{1}{2}") != mathml(r"\tfrac{12}{}")
        True
    """
    return "".join(pieces(tex, block=block))


def pieces(tex: str, *, block: bool = False) -> list[str]:
    """The MathML of a formula, where a line may end between one and the next."""
    row = read(tex, block=block)
    if block:
        return [_math(row.elements, display="block")]
    begun = starts(row)
    return [
        _math(row.elements[start:end])
        for start, end in zip(begun, [*begun[1:], len(row.elements)], strict=True)
    ]


def words(tex: str) -> str:
    """A formula as a line of plain text."""
    return _line(read(tex, block=True).elements)


def _math(elements: list[Element], **attributes: str) -> str:
    return tostring(element("math", *elements, **attributes), encoding="unicode")


def starts(row: Row) -> list[int]:
    """Where pieces of a long formula begin."""
    sizes = [len("".join(part.itertext())) for part in row.elements]
    begun = [0]
    if sum(sizes) > _LONG:
        for at, kind in row.breaks:
            if min(sum(sizes[begun[-1] : at]), sum(sizes[at:])) >= _BEFORE_A_BREAK[kind]:
                begun.append(at)
    return begun


def _line(elements: list[Element]) -> str:
    return re.sub(r" (?=[,;])", "", " ".join("".join(map(_words, elements)).split()))


def _words(part: Element) -> str:
    inner = [_line([child]) for child in part]
    match part.tag:
        case "mo":
            return _sign(part)
        case "mspace":
            return " "
        case "mfrac" if "linethickness" in part.attrib:
            return f"{inner[0]} choose {inner[1]}"
        case "mfrac":
            whole = _PRODUCT.fullmatch(inner[0])
            return f"{inner[0] if whole else _held(inner[0])}/{_held(inner[1])}"
        case "msqrt":
            return f"√{_held(inner[0])}"
        case "mroot":
            return f"{_script(inner[1], _RAISED, '')}√{_held(inner[0])}"
        case "mover" if "accent" in part.attrib and len(inner[0]) == 1:
            return unicodedata.normalize("NFC", inner[0] + _COMBINING.get(inner[1], inner[1]))
        case "mover" if "accent" in part.attrib:
            return inner[0]
        case "msup" | "mover":
            return inner[0] + _script(inner[1], _RAISED, "^")
        case "msub" | "munder":
            return inner[0] + _script(inner[1], _LOWERED, "_")
        case "msubsup" | "munderover":
            below = _script(inner[1], _LOWERED, "_")
            return inner[0] + below + _script(inner[2], _RAISED, "^")
        case "mtable":
            return "; ".join(inner)
        case "mtr":
            return ", ".join(inner)
        case "mi" | "mn" | "mtext":
            return "".join(map(_plain, part.text or ""))
    return _line(list(part))


def _sign(sign: Element) -> str:
    """A sign with the spaces that it has in the formula."""
    text = sign.text or ""
    usual = ("0", "1") if text in ",;" else ("1", "1")
    if text in FENCES and not (text in "|‖" and sign.attrib and "form" not in sign.attrib):
        usual = ("0", "0")  # a bar that is a relation has attributes, but no form
    left, right = sign.get("lspace", usual[0]), sign.get("rspace", usual[1])
    return " " * (left != "0") + text + " " * (right != "0")


def _script(text: str, places: dict[str, str], mark: str) -> str:
    if all(letter in places for letter in text):
        return "".join(places[letter] for letter in text)
    return f"{mark}{text}" if len(text) == 1 else f"{mark}({text})"


def _held(text: str) -> str:
    """In parentheses unless it is a letter, a number or in fences, with its scripts."""
    return text if _FACTOR.fullmatch(text) else f"({text})"


def _plain(letter: str) -> str:
    """Letters of rare alphabets as those that every font has."""
    return unicodedata.normalize("NFKC", letter) if letter > "\uffff" else letter
