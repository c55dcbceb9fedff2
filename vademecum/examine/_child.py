"""The process that examines: it runs the user's file, and tells what it finds line by line.

`python -m vademecum.examine._child` reads one JSON object from standard input and writes JSON lines
to standard output; whatever the user's code prints goes to standard error.

| line | when |
|---|---|
| `{"begun": environment, "sections": claims}` | the network and its data are there |
| `{"item": measurement, "section": name}` | a measurement; with `sentence` for `item`, words |
| `{"ended": section}` | a section has come to its end |
| `{"refused": words}` | something cannot be examined |
| `{"broken": traceback}` | the user's file raised an error |
"""

import json
import os
import sys
import time
import traceback
from typing import Any, TextIO

__all__ = ["main"]


def main() -> int:
    """Examine what standard input asks for."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed
    asked = json.load(sys.stdin)
    from vademecum.errors import UsageError

    try:
        _examine(asked, out)
    except (UsageError, ValueError) as error:
        if not isinstance(error, UsageError) and not _ours(error):
            _tell(out, {"broken": traceback.format_exc()})
        else:
            _tell(out, {"refused": str(error)})
        return 2
    except Exception:  # of the user's own code, while nothing is measured yet
        _tell(out, {"broken": traceback.format_exc()})
        return 2
    return 0


def _ours(error: BaseException) -> bool:
    """Whether an error comes from what we check, and not from the user's file."""
    trace = traceback.extract_tb(error.__traceback__)
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return bool(trace) and trace[-1].filename.startswith(here)


def _examine(asked: dict[str, Any], out: TextIO) -> None:
    import torch

    from vademecum.examine._clock import Clock
    from vademecum.examine._given import given_data, given_network
    from vademecum.examine._json import measurement_as_json, section_as_json
    from vademecum.examine._section import Item, Sentence
    from vademecum.examine._study import Study
    from vademecum.examine.examining import chosen, environment_of, run_sections, seed_from
    from vademecum.examine.sections import PLANS
    from vademecum.randomness import own_randomness

    names = chosen(asked["sections"])
    with own_randomness(asked["seed"]):
        model = given_network(asked["network"], asked["checkpoint"])
        x, y = given_data("--data", asked["data"], model, test=False)
        test = None
        if asked["test"] is not None:
            test = given_data("--test", asked["test"], model, test=True)
            test = test[0] if test[1] is None else test
        seed = seed_from(torch.Generator().manual_seed(asked["seed"]))
        study = Study(model, x, y, test=test, task=asked["task"], seed=seed)
        budget = {"budget": asked["budget"]}
        claims = {name: PLANS[name].claims for name in names}
        _tell(out, {"begun": {**environment_of(study), **budget}, "sections": claims})

        def note(name: str, item: Item) -> None:
            words = isinstance(item, Sentence)
            told = {"sentence": item.text} if words else {"item": measurement_as_json(item)}  # pyright: ignore
            _tell(out, {**told, "section": name})

        clock = Clock(max(asked["deadline"] - time.time(), 0.0))
        run_sections(
            study, names, clock, note=note,
            done=lambda section: _tell(out, {"ended": section_as_json(section)}),
        )  # fmt: skip


def _tell(out: TextIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line, ensure_ascii=False) + "\n")
    out.flush()


if __name__ == "__main__":
    raise SystemExit(main())
