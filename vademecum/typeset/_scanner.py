"""A formula in TeX, taken apart into commands, signs and groups."""

import re

__all__ = ["Scanner"]

_TOKEN = re.compile(r"\s*(\\operatorname\*|\\[a-zA-Z]+|\\.|:=|.|$)", re.DOTALL)
_NUMBER = re.compile(r"\d*(?:\.\d+)?")
_ENDS = re.compile(r"\\(begin|end)\s*\{[a-zA-Z]+\}")


class Scanner:
    """Goes through a formula from left to right.

    Args:
        tex: The formula.
    """

    def __init__(self, tex: str):
        self.tex, self.at = tex, 0

    def peek(self) -> str:
        """The token that comes next, "" at the end."""
        match = _TOKEN.match(self.tex, self.at)
        return match[1] if match else ""

    def token(self) -> str:
        """Take the next token."""
        match = _TOKEN.match(self.tex, self.at)
        self.at = match.end() if match else len(self.tex)
        return match[1] if match else ""

    def take(self, token: str) -> bool:
        """Take the next token if it is this one."""
        return self.peek() == token and bool(self.token())

    def digits(self) -> str:
        """The rest of a number."""
        match = _NUMBER.match(self.tex, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""

    def letters(self) -> str:
        """The rest of a word."""
        start = self.at
        while self.tex[self.at : self.at + 1].isalpha():
            self.at += 1
        return self.tex[start : self.at]

    def argument(self) -> str:
        """The next group without its braces, or the next token."""
        token = self.token()
        if token in ("", "}"):
            raise ValueError("an argument is missing")
        return self.until("{", "}") if token == "{" else token

    def until(self, begin: str, end: str) -> str:
        """What stands before the `end` that belongs to a `begin` already taken."""
        start, depth = self.at, 1
        while token := self.token():
            depth += (token == begin) - (token == end)
            if not depth:
                return self.tex[start : self.at - len(end)]
        raise ValueError(f"{end} is missing")

    def body(self) -> str:
        r"""What stands before the `\end` of an environment."""
        start, depth = self.at, 1
        for match in _ENDS.finditer(self.tex, start):
            depth += 1 if match[1] == "begin" else -1
            if not depth:
                self.at = match.end()
                return self.tex[start : match.start()]
        raise ValueError(r"\end is missing")

    def cells(self) -> list[list[str]]:
        r"""The cells of a table, which `&` and `\\` part."""
        rows, start = [[]], self.at
        while token := self.token():
            if token == "{":
                self.until("{", "}")
            elif token == r"\begin":
                self.body()
            elif token in ("&", r"\\"):
                rows[-1].append(self.tex[start : self.at - len(token)])
                start = self.at
                if token == r"\\":
                    rows.append([])
        rows[-1].append(self.tex[start:])
        return [row for row in rows if any(cell.strip() for cell in row)]
