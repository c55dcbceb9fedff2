"""The command line: `vade COMMAND ...`, which is also `python -m vademecum COMMAND ...`.

A command is a function. Its signature gives the arguments (keyword-only parameters become flags,
others positionals, and jsonargparse checks the types), its docstring gives the help, and what it
returns is the exit code: 0 if all is well, 1 if something does not hold, 2 for wrong usage, 128
plus the signal's number after an interrupt. torch is imported inside the commands that need it, so
that `--help` answers at once.
"""

import inspect
import os
import re
import sys
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from jsonargparse import ArgumentParser

from vademecum import __version__
from vademecum.cli.atlas import atlas
from vademecum.cli.check import check
from vademecum.cli.draw import draw, knobs_as_flags
from vademecum.cli.examine import examine
from vademecum.cli.ledger import claims, errata, show
from vademecum.cli.machine import data, doctor
from vademecum.cli.screen import plain_warnings
from vademecum.cli.sheet import sheet
from vademecum.cli.train import add_recipe_flags, train, training_words
from vademecum.errors import UsageError

__all__ = ["main"]

COMMANDS: dict[str, Callable[..., int]] = {
    command.__name__: command
    for command in (atlas, check, claims, show, errata, draw, sheet, train, examine, data, doctor)
}

_METAVARS = {int: "N", float: "SECONDS", Path: "FILE"}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: The arguments after the program's name; those of the process by default.
    """
    argv = sys.argv[1:] if argv is None else argv
    try:
        words = _knobs_as_flags(argv)
        chosen = _parser(words).parse_args(words or ["--help"])
        with plain_warnings():
            code = COMMANDS[chosen.command](**chosen[chosen.command].as_dict())
        sys.stdout.flush()  # here, where a broken pipe is still ours to handle
        return code
    except SystemExit as ending:  # how argparse ends after --help and --version
        return int(ending.code or 0) if argv else 2
    except ArgumentError as error:
        name = argv[0] if argv[0] in COMMANDS else ""
        hint = " ".join(filter(None, ("vade", name, "--help")))
        return _complain(f"{' '.join(str(error).split())} ({hint} tells more)", code=2)
    except KeyboardInterrupt:
        return _complain("interrupted", code=130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (UsageError, OSError) as error:
        return _complain(str(error), code=2)


def _complain(message: str, *, code: int) -> int:
    print(f"vade: {message}", file=sys.stderr)
    return code


def _parser(words: list[str]) -> ArgumentParser:
    about = "The deep-learning course as one library that checks itself."
    parser = ArgumentParser(
        prog="vade", description=about, version=__version__, allow_abbrev=False, exit_on_error=False
    )
    commands = parser.add_subcommands(
        dest="command", required=True, title="commands", metavar="COMMAND"
    )
    for name, command in COMMANDS.items():
        text = inspect.getdoc(command) or ""
        about = text.partition("\nArgs:")[0]
        child = ArgumentParser(description=about, allow_abbrev=False, exit_on_error=False)
        for parameter in inspect.signature(command).parameters.values():
            _add(child, parameter, _help_of(parameter.name, text))
        if words[:1] == [name] == ["train"]:
            add_recipe_flags(child, words[1:])
        commands.add_subcommand(name, child, help=about.partition("\n")[0])
    return parser


def _add(parser: ArgumentParser, parameter: inspect.Parameter, text: str) -> None:
    name, default, kind = parameter.name, parameter.default, parameter.annotation
    if parameter.kind is parameter.VAR_KEYWORD:  # whose flags are not known yet
        return
    if get_origin(kind) in (Union, UnionType):  # X | None: None is the default, not to be typed
        kind = get_args(kind)[0]
    options: dict[str, Any] = {"help": text}
    if kind is bool:
        options |= {"action": "store_true"}
    elif kind == list[str]:
        options |= {"action": "append", "type": str, "default": [], "metavar": "NAME=VALUE"}
    elif kind == Sequence[str]:
        options |= {"nargs": "+", "type": str, "default": (), "metavar": "NAME"}
    elif get_origin(kind) is Literal:
        options |= {"choices": get_args(kind), "default": default}
    else:
        options |= {"type": kind, "default": default, "metavar": _METAVARS.get(kind)}
    if parameter.kind is parameter.KEYWORD_ONLY:
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    elif default is parameter.empty:
        del options["default"]
        parser.add_argument(name, **options)
    else:
        parser.add_argument(name, nargs="?", **options)


def _help_of(name: str, text: str) -> str:
    """The lines on one argument in a Google-style docstring."""
    found = re.search(rf"^    \**{name}: (.*(?:\n {{8}}.*)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]) if found else ""


def _knobs_as_flags(argv: list[str]) -> list[str]:
    # argparse takes optional positionals only next to the first one; flags go anywhere.
    if argv[:1] == ["draw"]:
        return ["draw", *knobs_as_flags(argv[1:])]
    if argv[:1] == ["train"]:
        return ["train", *training_words(argv[1:])]
    if argv[:1] != ["show"]:
        return argv
    return [f"--set={word}" if re.match(r"[A-Za-z_]\w*=", word) else word for word in argv]
