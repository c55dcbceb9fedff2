"""Machines of NAND units against the definition, their cycles and their education."""

from itertools import pairwise, product
from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism.turing import TuringMachine


def bits(*rows):
    return torch.tensor(rows).bool()


def tick(sources, switches, state):
    """The equation of the module, unit by unit on Python's integers."""
    return [
        1 - min((state[s] if c else 1) for s, c in zip(row, on, strict=True))
        for row, on in zip(sources, switches, strict=True)
    ]


def machine(n, kind, seed, inputs=2):
    return TuringMachine.random(
        n, kind=kind, inputs=inputs, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("kind", ["A", "B"])
@pytest.mark.parametrize("inputs", [1, 2, 4])
def test_a_step_is_a_nand_of_the_switched_sources(kind, inputs):
    m = machine(7, kind, 0, inputs)
    assert m.kind == kind
    states = torch.randint(2, (5, 9, 7)).bool()
    on = [[1] * inputs] * 7 if m.switches is None else m.switches.int().tolist()
    found = m.step(states).flatten(0, 1).int().tolist()
    for state, after in zip(states.flatten(0, 1).int().tolist(), found, strict=True):
        assert after == tick(m.sources.tolist(), on, state)
    assert torch.equal(m(states), m.step(states))


def test_type_b_with_all_switches_on_is_type_a():
    a = machine(9, "A", 1)
    b = TuringMachine(a.sources, torch.ones(9, 2).bool())
    states = torch.randint(2, (20, 9)).bool()
    assert torch.equal(a.step(states), b.step(states))
    off = TuringMachine(a.sources, torch.zeros(9, 2).bool())
    assert not off.step(states).any()  # the NAND of nothing


def test_random_machines_are_reproducible_and_differ():
    one, two, three = machine(50, "B", 3), machine(50, "B", 3), machine(50, "B", 4)
    assert one.switches is not None
    assert two.switches is not None
    assert torch.equal(one.sources, two.sources)
    assert torch.equal(one.switches, two.switches)
    assert not torch.equal(one.sources, three.sources)
    assert set(one.sources.flatten().tolist()) <= set(range(50))
    assert 0.3 < float(one.switches.double().mean()) < 0.7


def test_a_run_repeats_steps():
    m = machine(6, "B", 5)
    path = m.run(bits([0] * 6, [1] * 6), 4)
    assert path.shape == (5, 2, 6)
    for now, then in pairwise(path):
        assert torch.equal(m.step(now), then)
    assert torch.equal(m.run(path[0], 0), path[:1])


@pytest.mark.parametrize("trial", range(5))
def test_cycles_are_those_of_a_table_of_visits(trial):
    m = machine(12, "AB"[trial % 2], trial)
    starts = torch.randint(2, (4, 5, 12), generator=torch.Generator().manual_seed(trial)).bool()
    found = m.cycle(starts)
    for place in product(range(4), range(5)):
        visited, state = {}, starts[place]
        while (key := tuple(state.tolist())) not in visited:
            visited[key] = len(visited)
            state = m.step(state)
        assert int(found.preperiod[place]) == visited[key]
        assert int(found.period[place]) == len(visited) - visited[key]


def test_a_long_cycle_is_found_and_a_limit_kept():
    n = 11  # an odd ring of inverters: its period is twice its length
    ring = TuringMachine(torch.tensor([[(i - 1) % n] * 2 for i in range(n)]))
    start = torch.zeros(n).bool()
    start[0] = True
    assert int(ring.cycle(start).period) == 2 * n
    starts = torch.stack([start, torch.arange(n) % 2 == 0])
    with pytest.warns(ConvergenceWarning, match="max_iter=9 reached: 2 runs have closed no cycle"):
        cut = ring.cycle(starts, max_iter=9)
    assert cut.period.tolist() == [0, 0]
    assert cut.preperiod.tolist() == [-1, -1]
    assert not cut.converged.any()
    pair = TuringMachine(torch.tensor([[1, 1], [0, 0], [4, 4], [2, 2], [3, 3]]))  # and a ring of 3
    both = torch.tensor([[False, True, True, True, True], [False, True, True, False, False]])
    with pytest.warns(ConvergenceWarning, match="1 runs have closed no cycle"):
        cut = pair.cycle(both, max_iter=6)
    assert (cut.period.tolist(), cut.preperiod.tolist()) == ([2, 0], [0, -1])
    assert cut.converged.tolist() == [True, False]
    assert pair.cycle(both).period.tolist() == [2, 6]


XOR = [[0, 0], [1, 1], [0, 1], [0, 2], [1, 2], [3, 4]]  # units 2 to 5 are the four NANDs of XOR


def answers(m, switches, examples, inputs, outputs, steps):
    """The output bits after some steps with the inputs held, on Python's integers."""
    result = []
    for example in examples:
        held = dict(zip(inputs, example, strict=True))
        state = [held.get(unit, 0) for unit in range(len(m.sources))]
        for _ in range(steps):
            state = tick(m.sources.tolist(), switches, state)
            state = [held.get(unit, bit) for unit, bit in enumerate(state)]
        result.append([state[unit] for unit in outputs])
    return result


def count_wrong(found, wanted):
    return int((torch.tensor(found) != torch.tensor(wanted)).sum())


def test_education_finds_xor_and_counts_honestly():
    m = TuringMachine(torch.tensor(XOR), torch.zeros(6, 2).bool())
    examples = list(product((0, 1), repeat=2))
    wanted = [[a ^ b] for a, b in examples]
    lesson: dict[str, Any] = {"inputs": [0, 1], "outputs": [5], "steps": 3}
    found = m.educate(bits(*examples), bits(*wanted), **lesson)
    assert (found.mismatches, found.n_iter, found.exhaustive) == (0, 2**12, True)
    assert answers(m, found.switches.int().tolist(), examples, [0, 1], [5], 3) == wanted
    assert m.switches is not None
    assert not m.switches.any()  # the machine was left alone


@pytest.mark.parametrize("trial", range(4))
def test_education_is_the_best_of_all_settings(trial):
    m = machine(4, "B", trial)
    examples = list(product((0, 1), repeat=2))
    wanted = torch.randint(2, (4, 2), generator=torch.Generator().manual_seed(trial)).tolist()
    lesson: dict[str, Any] = {"inputs": [0, 1], "outputs": [2, 3], "steps": 2}
    found = m.educate(bits(*examples), bits(*wanted), **lesson)
    least = 99
    for setting in product((0, 1), repeat=8):
        switches = torch.tensor(setting).view(4, 2).tolist()
        got = answers(m, switches, examples, *lesson.values())
        least = min(least, count_wrong(got, wanted))
    assert found.mismatches == least


@pytest.mark.parametrize("trial", range(3))
def test_annealing_solves_what_the_machine_can_do_and_reports_the_rest(trial):
    m = machine(24, "B", trial)
    examples = list(product((0, 1), repeat=3))
    lesson: dict[str, Any] = {"inputs": [0, 1, 2], "outputs": list(range(12, 24)), "steps": 4}
    assert m.switches is not None
    wanted = answers(m, m.switches.int().tolist(), examples, *lesson.values())
    draw: dict[str, Any] = {"generator": torch.Generator().manual_seed(99 + trial)}
    found = m.educate(bits(*examples), bits(*wanted), max_iter=64 * 1000, **lesson, **draw)
    got = answers(m, found.switches.int().tolist(), examples, *lesson.values())
    assert found.mismatches == count_wrong(got, wanted)
    assert found.mismatches == 0
    assert found.converged
    assert not found.exhaustive
    assert 64 < found.n_iter <= 64 * 1000  # the random settings alone would not do

    impossible = bits(*([1, 0] for _ in range(4)), *([0, 1] for _ in range(4)))
    same = bits(*([0, 0, 0] for _ in range(8)))  # the same example, told to differ: 8 are wrong
    lesson["outputs"] = lesson["outputs"][:2]
    with pytest.warns(ConvergenceWarning, match="max_iter=3200 reached with 8 mismatches left"):
        found = m.educate(same, impossible, max_iter=64 * 50, **lesson)
    assert found.mismatches == 8
    assert not found.converged


M = machine(3, "B", 0)
COLUMN = torch.zeros(2, 1).bool()


def teach(m=M, examples=COLUMN, wanted=COLUMN, **changed: Any):
    lesson: dict[str, Any] = {"inputs": [0], "outputs": [2], "steps": 1, **changed}
    return m.educate(examples, wanted, **lesson)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TuringMachine(torch.tensor([[0, 2], [1, 1]])), "sources must be units below 2"),
        (lambda: TuringMachine(torch.tensor([[0, -1]])), "sources must be units below 1"),
        (lambda: TuringMachine(torch.zeros(2, 2)), "sources must be units below 2"),
        (lambda: TuringMachine(torch.zeros(0, 2).long()), "sources must be units below 0"),
        (lambda: TuringMachine(M.sources, torch.zeros(3, 1).bool()), r"shape \(..., 3, 2\)"),
        (lambda: TuringMachine(M.sources, torch.zeros(3, 2)), "switches must be bool"),
        (lambda: TuringMachine.random(0), "n must be >= 1, got 0"),
        (lambda: TuringMachine.random(3, inputs=0), "inputs must be >= 1, got 0"),
        (lambda: M.step(torch.zeros(3)), "states must be bool of shape"),
        (lambda: M.step(torch.zeros(4).bool()), r"got torch.bool of shape \(4,\)"),
        (lambda: M.run(torch.zeros(3).bool(), -1), "steps must be >= 0, got -1"),
        (lambda: M.cycle(torch.zeros(3).long()), "states must be bool"),
        (lambda: M.cycle(torch.zeros(3).bool(), max_iter=0), "max_iter must be >= 1, got 0"),
        (lambda: teach(machine(3, "A", 0)), "of type A has no switches"),
        (lambda: teach(inputs=[3]), "inputs must be 1 units"),
        (lambda: teach(inputs=[0, 0]), "inputs must be 1 units"),
        (lambda: teach(outputs=[1, 2]), "outputs must be 1"),
        (lambda: teach(wanted=COLUMN[:1]), "wanted must have 2 rows, got 1"),
        (lambda: teach(examples=COLUMN[:0]), "examples must not be empty"),
        (lambda: teach(examples=COLUMN + 2), "entries of examples must be 0 or 1"),
        (lambda: teach(steps=0), "steps must be >= 1, got 0"),
        (lambda: teach(max_iter=8), "max_iter must be >= 64, got 8"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_machines_run_on_cuda():
    here = machine(10, "B", 0)
    there = TuringMachine(here.sources, here.switches).cuda()
    states = torch.randint(2, (30, 10)).bool()
    assert torch.equal(there.run(states.cuda(), 5).cpu(), here.run(states, 5))
    for one, two in zip(there.cycle(states.cuda()), here.cycle(states), strict=True):
        assert torch.equal(one.cpu(), two)
    xor = TuringMachine(torch.tensor(XOR), torch.zeros(6, 2).bool()).cuda()
    examples = bits(*product((0, 1), repeat=2)).cuda()
    wanted = (examples[:, :1] ^ examples[:, 1:]).cuda()
    lesson: dict[str, Any] = {"inputs": [0, 1], "outputs": [5], "steps": 3}
    assert xor.educate(examples, wanted, **lesson).mismatches == 0
    assert xor.educate(examples, wanted, **lesson, max_iter=2048).switches.is_cuda
