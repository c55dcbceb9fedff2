"""`python -m bench.outside [--models PATTERN] [--instruments PATTERN]`: the matrix, printed.

One row a model, one column an instrument; then the examples of `docs/measure.md`. The exit code is
1 if anything is wrong, crashes, changes the model or is refused although nobody expected it.
"""

import argparse
import fnmatch
import importlib
import importlib.util
import time
from collections import Counter

import torch

from bench.outside.cases import Case
from bench.outside.matrix import AFTERWARDS, INSTRUMENTS, Cell, cells
from bench.outside.page import MEASURE, run_examples

LIBRARIES = ("torch", "odd", "transformers", "timm", "geometric")
SIGNS = {"right": "+", "refused": "r", "unexpected": "R", "wrong": "W", "crash": "C",
         "changed": "X", "oracle": "?"}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.outside", description=__doc__)
    parser.add_argument("--models", default="*", help="names of models, such as 'gpt2*'")
    parser.add_argument("--instruments", default="*", help="names of instruments")
    parser.add_argument("--seconds", action="store_true", help="what each model took")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = fnmatch.filter(INSTRUMENTS, arguments.instruments)
    _heading(names)
    found: list[Cell] = []
    for library in LIBRARIES:
        for case in _cases(library):
            if fnmatch.fnmatch(case.name, arguments.models):
                start = time.perf_counter()
                row = list(cells(case, names))
                took = f"  {time.perf_counter() - start:.1f} s" if arguments.seconds else ""
                print(_line(case.name, row, names) + took, flush=True)
                found += row
    _reasons(found)
    return int(any(cell.bad for cell in found) or _page_fails())


def _page_fails() -> bool:
    known = importlib.util.find_spec("transformers") is not None
    page = run_examples(MEASURE, without="" if known else "transformers")
    print(f"{MEASURE.name}: {page.failed} of {page.attempted} examples fail")
    return page.failed > 0


def _cases(library: str) -> list[Case]:
    module = importlib.import_module(f"bench.outside.{library}_cases")
    try:
        found = module.CASES if hasattr(module, "CASES") else module.cases()
    except ModuleNotFoundError as error:
        print(f"{library}: {error.name} is not installed; `make outside` installs it")
        return []
    return [Case(**{**vars(case), "name": f"{library}: {case.name}"}) for case in found]


def _heading(names: list[str]) -> None:
    print("+ right, ~ right by a slow path, . not asked, r refused as expected, R refused,")
    print("W wrong, C crash, X changed, ? no oracle\n")
    columns = [*names, AFTERWARDS]
    for i, name in enumerate(columns):
        print(f"{'':44}{' |' * i}  {name}")


def _line(model: str, row: list[Cell], names: list[str]) -> str:
    by_name = {cell.instrument: cell for cell in row}
    signs = []
    for name in [*names, AFTERWARDS]:
        cell = by_name.get(name)
        sign = SIGNS[cell.outcome] if cell else "."
        signs.append("~" if cell and cell.slow and sign == "+" else sign)
    return f"{model:44}  " + " ".join(signs)


def _reasons(found: list[Cell]) -> None:
    """Every refusal once, with how often it was met; everything bad by itself."""
    print()
    for why, count in Counter(c.why for c in found if c.outcome == "refused").most_common():
        print(f"refused {count:3} times: {why}")
    for cell in found:
        if cell.bad:
            print(f"{cell.outcome.upper()}: {cell.instrument} of {cell.model}: {cell.why}")
    counts = Counter(cell.outcome for cell in found)
    print("\n" + ", ".join(f"{counts[outcome]} {outcome}" for outcome in SIGNS))


if __name__ == "__main__":
    raise SystemExit(main())
