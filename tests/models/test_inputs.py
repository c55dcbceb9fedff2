"""Inputs of any structure: found, counted, rebuilt as they were; and what of outputs counts."""

import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from vademecum.models import (
    Entangled,
    call_arguments,
    count_examples,
    map_tensors,
    named_tensors,
    refuse_nan,
    replaced,
    variable,
)

Pair = namedtuple("Pair", "one two")
A, B = torch.arange(6.0).view(3, 2), torch.arange(3)


@dataclass(frozen=True)
class Batch:
    a: Tensor
    n: int = 3


class Graph:
    """An object of a class that nobody knows."""

    def __init__(self, x):
        self.x = x


STRUCTURES = {
    "tensor": (A, ["x"]),
    "tuple": ((A, 1.0, B), ["x[0]", "x[2]"]),
    "dict": ({"a": A, "b": {"c": B}}, ["x['a']", "x['b']['c']"]),
    "mapping like a batch of tokens": (UserDict(a=A, b=B), ["x['a']", "x['b']"]),
    "ordered": (OrderedDict(a=A), ["x['a']"]),
    "with a default": (defaultdict(list, a=A), ["x['a']"]),
    "read only": (MappingProxyType({"a": A}), ["x['a']"]),
    "list": ([A, "word", [B]], ["x[0]", "x[2][0]"]),
    "named tuple": (Pair(A, {"b": B}), ["x.one", "x.two['b']"]),
    "of a sort": (A.sort(), ["x[0]", "x[1]"]),
    "dataclass": (Batch(A), ["x.a"]),
    "in a tuple": ((Batch(A), Pair(B, None)), ["x[0].a", "x[1].one"]),
    "object": (Graph(A), []),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_tensors_are_found_and_replaced(name):
    x, places = STRUCTURES[name]
    assert [place for place, _ in named_tensors(x)] == places
    twice = map_tensors(x, lambda t: 2 * t)
    if name != "read only":
        assert type(twice) is type(x)
    for (place, new), (again, old) in zip(named_tensors(twice), named_tensors(x), strict=True):
        assert place == again
        assert torch.equal(new, 2 * old)
    if name == "object":
        assert twice is x
        with pytest.raises(Entangled, match=r"that can be told apart, got a Graph for x$"):
            count_examples(x)
    else:
        assert count_examples(x) == 3


def test_structures_keep_what_is_no_tensor():
    made = map_tensors(defaultdict(list, a=A, k=7), lambda t: t + 1)
    assert made["new"] == []
    assert made["k"] == 7
    assert map_tensors(Batch(A, 5), torch.neg).n == 5
    packed = pack_sequence([A, A[:1]])
    again = map_tensors(packed, torch.clone)
    assert isinstance(again, PackedSequence)
    assert torch.equal(again.data, packed.data)
    assert again.sorted_indices is None


ARGUMENTS = [
    (A, (A,), {}),
    ((A, 1), (A, 1), {}),
    ({"a": A}, (), {"a": A}),
    (UserDict(a=A), (), {"a": A}),
    (Pair(A, B), (Pair(A, B),), {}),
    ([A], ([A],), {}),
    (Batch(A), (Batch(A),), {}),
]


@pytest.mark.parametrize(("x", "args", "kwargs"), ARGUMENTS)
def test_arguments_of_a_call(x, args, kwargs):
    found, named = call_arguments(x)
    assert [type(a) for a in found] == [type(a) for a in args]
    assert named.keys() == kwargs.keys()
    assert type(named) is dict


class Fixed(OrderedDict):
    """A mapping that takes items and forbids `update`, as outputs of transformers do."""

    def update(self, *args, **kwargs):
        raise TypeError("no update")


def test_mappings_are_rebuilt_item_by_item():
    x = Fixed()
    x["a"], x["b"] = A, "word"
    found = map_tensors(x, lambda t: t[:1])
    assert type(found) is Fixed
    assert found["b"] == "word"
    assert torch.equal(found["a"], A[:1])
    assert x["a"] is A


def test_one_input_by_its_name():
    x: Any = UserDict(a=A, b=B)
    assert variable(x, "a") is A
    assert variable(A, "x") is A
    other = replaced(x, "a", 2 * A)
    assert torch.equal(other["a"], 2 * A)
    assert other["b"] is B
    assert x["a"] is A
    assert replaced(A, "x", B) is B
    with pytest.raises(ValueError, match="wrt must be one of 'theta', 'a', 'b', got 'x'"):
        variable(x, "x")
    with pytest.raises(ValueError, match="wrt must be one of 'theta', 'x', got 'a'"):
        variable(A, "a")


SPARSE, NAN = torch.eye(3).to_sparse(), torch.tensor([[torch.nan]])
with warnings.catch_warnings(action="ignore"):  # that they are in beta
    ROWS, NAN_ROWS = SPARSE.to_sparse_csr(), NAN.to_sparse_csr()
COUNTS = [
    ((A, SPARSE), r"told apart, got a torch.sparse_coo tensor for x\[1\]"),
    ((A, ROWS), r"told apart, got a torch.sparse_csr tensor for x\[1\]"),
    ({"a": A, "graph": Graph(B)}, r"told apart, got a Graph for x\['graph'\]"),
    (pack_sequence([A, A[:1]]), r"equally many examples, got the shapes \{'x.data': \(4, 2\)"),
    ((A, B[:2]), "equally many examples"),
    ([1.0, 2.0], r"examples along the first axis of its tensors, got \{\}"),
]


@pytest.mark.parametrize(("x", "message"), COUNTS)
def test_examples_that_cannot_be_told_apart(x, message):
    with pytest.raises(Entangled, match=message):
        count_examples(x)
    refuse_nan(x)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (NAN, "x must be finite, got nan"),
        ((A, [NAN]), r"x\[1\]\[0\] must not hold NaN"),
        ((A, NAN.to_sparse()), r"x\[1\] must not hold NaN"),
        ((A, NAN_ROWS), r"x\[1\] must not hold NaN"),
        (Batch(NAN), r"x.a must not hold NaN"),
        (B[:0], r"x must not be empty, got shape \(0,\)"),
    ],
)
def test_nan_is_refused_wherever_it_is(x, message):
    with pytest.raises(ValueError, match=message):
        refuse_nan(x)
