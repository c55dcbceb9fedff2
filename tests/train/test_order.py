"""The order of the data is a function of the seed, the epoch and the position alone."""

import pytest
import torch

from vademecum.train._order import Order, seed_for


def flat(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


def examples(order: Order, steps: range) -> list[list[int]]:
    return [[i for part in order.parts(s) for i in part.examples.tolist()] for s in steps]


def test_an_epoch_has_every_example_once_and_the_last_batch_is_what_is_left():
    order = Order(23, 5, seed=3)
    batches = examples(order, range(5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert sorted(flat(batches)) == list(range(23))
    assert sorted(flat(examples(order, range(5, 10)))) == list(range(23))
    assert examples(order, range(5, 10)) != batches
    assert examples(Order(23, 5, seed=4), range(5)) != batches


def test_the_order_is_the_permutation_of_a_generator_that_seed_and_epoch_decide():
    generator = torch.Generator().manual_seed(seed_for(3, "order", 1))
    expected = torch.randperm(23, generator=generator)
    found = torch.tensor(flat(examples(Order(23, 5, seed=3), range(5, 10))))
    assert found.equal(expected)


def test_neither_global_random_numbers_nor_looking_twice_change_it():
    order = Order(23, 5, seed=3)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = examples(order, range(12))
    assert torch.get_rng_state().equal(before)
    torch.rand(3)
    assert examples(order, range(12)) == first


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 4])
@pytest.mark.parametrize("n", [23, 24, 21])
def test_processes_and_micro_batches_split_a_batch_by_position(ranks, accumulate, n):
    whole = Order(n, 8, seed=0)
    orders = [Order(n, 8, 0, accumulate, rank, ranks) for rank in range(ranks)]
    for step in range(2 * whole.per_epoch):
        (batch,) = whole.parts(step)
        parts = [part for order in orders for part in order.parts(step)]
        counting = [part for part in parts if part.counts]
        assert torch.cat([part.examples for part in counting]).equal(batch.examples)
        assert {part.whole for part in parts} == {len(batch.examples)}
        assert [part.start for part in counting] == [
            batch.start + sum(len(p.examples) for p in counting[:i]) for i in range(len(counting))
        ]
        sizes = [len(part.examples) for part in counting]
        assert max(sizes) - min(sizes) <= 1


def test_a_process_without_examples_is_lent_one_that_does_not_count():
    parts = Order(9, 8, 0, rank=0, ranks=2).parts(1)  # one example for two processes
    other = Order(9, 8, 0, rank=1, ranks=2).parts(1)
    assert sorted([parts[0].counts, other[0].counts]) == [False, True]
    assert parts[0].examples.equal(other[0].examples)


def test_the_last_part_of_a_step_says_so():
    assert [part.last for part in Order(9, 8, 0, accumulate=3).parts(0)] == [False, False, True]
    assert [part.last for part in Order(9, 8, 0, accumulate=3).parts(1)] == [True]


def test_all_parts_begin_at_a_step_and_end_at_one():
    order = Order(23, 5, seed=3)
    expected = [part.start for step in (3, 4, 5) for part in order.parts(step)]
    assert [part.start for part in order.all_parts(3, 6)] == expected
    endless = order.all_parts(3, None)
    assert [next(endless).start for _ in range(3)] == expected
