"""Forward passes over portions of the examples, compared with passes of few.

Some code depends on the batch only if it is large, or has a certain example in it. So in every
portion of the examples, rows of the full pass are compared with those of passes of few examples:
outputs, and inputs of the layers. Whichever example it is that others depend on, it is missing in
one of these. Not seen is a single example that depends on others by its values, unless it is among
those few.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from vademecum.gradients._footprints import Footprint, dtypes_of, footprint, moves
from vademecum.gradients._independent_rows import Plan, copies_fail, doubted, is_apart
from vademecum.gradients._recorded_pass import Pass, covered, run
from vademecum.gradients.network_function import Functional
from vademecum.models import FAILURES, Moves, differentiable_output, map_tensors, out_of_memory

__all__ = ["others", "record"]

Comparison = Callable[[list[int], Footprint], tuple[Moves, Moves | None]]
"""How much outputs, and inputs of layers, differ from those of few; None if others are called."""


def record(
    f: Functional, plan: Plan, x: Any, here: slice
) -> tuple[Pass, Callable[[], bool]] | None:
    """A forward pass with all that the layers' rules need, or None if they do not cover it.

    With it comes a question to ask when all that a GPU has to do is under way: whether the layers
    have the inputs that they have in a pass of few, or else each example must go by itself. It
    raises an error if an example has another output there.
    """
    n = here.stop - here.start
    if not plan.covered or n <= plan.shared:
        return None
    rows, few = plan.rows, plan.few
    if not any(here.start <= row < here.stop for row in rows):
        rows = [here.start, here.stop - 1][1 - plan.shared :]
        few = _few(f, plan, x, rows, graph=plan.graph)
    found = _compared_with_copies(f, plan, x, here, rows, few) if plan.copies else None
    if found is None:
        plan = copies_fail(f, plan) if plan.copies else plan
        found = _compared(f, plan, x, here, rows, few)
    if found is None:
        return doubted(f, plan, x)
    done, compare = found
    return done, partial(_same, f, plan, x, here, rows, compare, few)


def _same(
    f: Functional,
    plan: Plan,
    x: Any,
    here: slice,
    rows: list[int],
    compare: Comparison,
    few: Footprint,
) -> bool:
    """Whether the layers have the inputs that they have in passes of few, in any company."""
    more = [(other, _few(f, plan, x, other, graph=plan.graph)) for other in others(rows, here)]
    passes = [(rows, few), *more]
    found = list(chain.from_iterable(compare(*each) for each in passes))
    if None not in found and Moves.none(*filter(None, found)):
        return True
    return all(_alike(f, plan, x, here, compare, *each) for each in passes)


def others(rows: list[int], here: slice) -> list[list[int]]:
    """Examples of a portion for passes beside one of `rows`, so that none is in all of them."""
    inside = range(here.start, here.stop)
    first, last = (next((i for i in each if i not in rows), -1) for each in (inside, inside[::-1]))
    if first < 0:
        return [[inside[0]] * 2, [inside[-1]] * 2] if len(inside) > 1 else []
    return [[first, last]]


def _alike(
    f: Functional,
    plan: Plan,
    x: Any,
    here: slice,
    compare: Comparison,
    rows: list[int],
    few: Footprint,
) -> bool:
    """Whether the layers have the inputs that they have in one pass of few."""
    outputs, inputs = compare(rows, few)
    if inputs is not None and Moves.none(outputs, inputs):
        return True
    if not plan.graph:  # a model may compute in another way where there is none
        few = _few(f, plan, x, rows, graph=True)
        outputs, inputs = compare(rows, few)
    if plan.copies and (inputs is None or outputs.largest or inputs.largest):  # may be to blame
        again = _compared(f, copies_fail(f, plan), x, here, rows, few)
        if again is None:
            doubted(f, plan, x)
        else:
            again[1](rows, few)[0].insist_on_none()
        return False
    if inputs is None:
        doubted(f, plan, x)
    outputs.insist_on_none()
    return inputs is not None and not inputs.largest


def _compared_with_copies(
    f: Functional, plan: Plan, x: Any, here: slice, rows: list[int], few: Footprint
) -> tuple[Pass, Comparison] | None:
    """Likewise, or None where a model takes no copies, which have an axis more."""
    try:
        return _compared(f, plan, x, here, rows, few)
    except FAILURES as error:  # without copies it will tell what else is wrong
        if out_of_memory(error):
            raise
        return None


def _compared(
    f: Functional, plan: Plan, x: Any, here: slice, rows: list[int], few: Footprint
) -> tuple[Pass, Comparison] | None:
    """A forward pass, and how its outputs and layers' inputs differ from those of few."""
    n, shared = here.stop - here.start, plan.shared and not plan.copies
    all_ = run(f, plan.layers, map_tensors(x, itemgetter(here)), shared=shared, copies=plan.copies)
    output = differentiable_output(all_.output, n)
    last = max(row for row in rows if here.start <= row < here.stop)
    done = covered(all_)
    if done is None or not is_apart(f, done, last - here.start):
        return None
    mark = footprint(all_, {z.node for z in done.edges})
    # A model may go another way, and some length may by chance be that of n.
    if mark.uses != (plan.uses if shared else []) or not _same_way(plan, mark, few):
        return None

    def compare(rows: list[int], few: Footprint) -> tuple[Moves, Moves | None]:
        known = {row: i for i, row in enumerate(rows) if here.start <= row < here.stop}
        first, last = min(known), max(known)
        these = _ends(first - here.start, last - here.start)
        there = _ends(known[first], known[last])
        outputs = Moves([(output[these], few.output[there])], dtypes_of(f))
        same = _same_way(plan, mark, few)
        return outputs, moves(f, mark, these, few, there) if same else None

    return done, compare


def _same_way(plan: Plan, mark: Footprint, few: Footprint) -> bool:
    """Whether a pass of few has the same calls, and uses of shared tensors."""
    return mark.calls == few.calls and not (plan.by_hand and few.uses != plan.uses)


def _few(f: Functional, plan: Plan, x: Any, rows: list[int], *, graph: bool) -> Footprint:
    """What a pass of few examples leaves."""
    few = map_tensors(x, itemgetter(rows))
    return footprint(run(f, plan.layers, few, shared=plan.by_hand, graph=graph))


def _ends(first: int, last: int) -> slice:
    """Two rows, or one, as a view."""
    return slice(first, last + 1, max(last - first, 1))
