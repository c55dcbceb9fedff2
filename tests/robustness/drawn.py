"""Calls of everything in this room that takes a generator."""

from tests.robustness import drawn_attacks, drawn_bounds, drawn_defences, drawn_measures

CALLS = {
    **drawn_attacks.CALLS,
    **drawn_bounds.CALLS,
    **drawn_measures.CALLS,
    **drawn_defences.CALLS,
}
