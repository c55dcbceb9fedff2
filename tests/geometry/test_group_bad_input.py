"""What groups refuse, and in which words."""

import re
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.geometry import (
    FeatureAction,
    GraphAction,
    Group,
    GroupConv2d,
    GroupPool,
    ImageAction,
    PointAction,
    Representation,
    equivariance_error,
    equivariant_basis,
    invariance_error,
    permutation_matrix,
    symmetrize,
)

S3, C4 = Group.symmetric(3), Group.cyclic(4)
X, IMAGES = torch.randn(2, 3), torch.randn(2, 1, 4, 4)


def odd(thing) -> Any:
    return thing


def ints(*rows) -> torch.Tensor:
    return torch.tensor(rows)


class NaNs(nn.Module):
    def forward(self, x):
        return x / 0 * 0


LINEAR = nn.Linear(3, 2)
TURNS = Group.from_matrices([torch.tensor([[0.0, -1.0], [1.0, 0.0]])])
TABLE = ints([0, 1], [1, 0])
MISTAKES = [
    (lambda: Group.cyclic(0), "n must be >= 1, got 0"),
    (lambda: Group.dihedral(odd(2.0)), "n must be an integer, got 2.0"),
    (lambda: Group.symmetric(-1), "n must be >= 1, got -1"),
    (lambda: Group.from_table(odd([[0]])), "table must be a square tensor of integers"),
    (lambda: Group.from_table(ints([0, 1])), "table must be square, got shape (1, 2)"),
    (lambda: Group.from_table(torch.zeros(0, 0).long()), "table must be square, got shape (0, 0)"),
    (lambda: Group.from_table(TABLE.float()), "table must hold integers, got torch.float32"),
    (lambda: Group.from_table(TABLE, names=["e"]), "names must be 2, one for each element, got 1"),
    (lambda: Group.from_table(TABLE + 1), "a group must have all axioms, and here 0 times 1 is no"),
    (lambda: Group.from_table(ints([0, 1], [1, 1])), "here 1 has no inverse"),
    (lambda: Group.from_table(ints([0, 0], [1, 1]), names="ab"),
     "no element leaves all others as they are"),
    (lambda: Group.from_table(ints([0, 1], [0, 1])), "here no element leaves all others as they"),
    (lambda: Group.from_table(ints([0, 1, 2, 3], [1, 1, 0, 1], [2, 2, 2, 0], [3, 0, 3, 3])),
     "; 1 has no inverse"),  # but from the right
    (lambda: Group.from_operation([1, 2, 3, 4, 5], lambda a, b: a * b % 6),
     "here 2 times 3 is no element"),
    (lambda: Group.from_operation(range(5), lambda a, b: (a - b) % 5),
     "here (0 0) 1 = 4 and 0 (0 1) = 1; no element leaves"),
    (lambda: Group.from_operation([1, 1], max), "elements must be different from each other"),
    (lambda: Group.from_operation([], max), "elements must be different from each other, and at"),
    (lambda: Group.from_permutations([]), "permutations of equally many points, got none"),
    (lambda: Group.from_permutations([ints(0, 1), ints(0)]), "equally many points, got [2, 1]"),
    (lambda: Group.from_permutations([ints(0, 2, 2)]),
     "generators[0] must be a permutation, got 2 again at 2"),
    (lambda: Group.from_permutations([ints(1, 2, 3)]), "got 3 outside 0 to 2 at 2"),
    (lambda: Group.from_permutations([torch.tensor([0.0])]),
     "generators[0] must hold integers, got torch.float32"),
    (lambda: Group.from_permutations([odd([0])]), "generators[0] must be a vector, got list"),
    (lambda: Group.from_permutations([ints(*range(1, 8), 0), ints(1, 0, *range(2, 8))]),
     "generators must generate at most 4096 elements, and there are more"),
    (lambda: Group.from_matrices([]), "generators must be square matrices of one size"),
    (lambda: Group.from_matrices([torch.eye(2)[:1]]), "square matrices of one size"),
    (lambda: Group.from_matrices([torch.eye(2), torch.eye(3)]), "square matrices of one size"),
    (lambda: Group.from_matrices([torch.full((1, 1), torch.nan)]), "generators must be finite"),
    (lambda: Group.from_matrices([ints([1, 1], [0, 1])]), "at most 4096 elements"),
    (lambda: Group.from_matrices([ints([1, 2**60], [0, 1])]), "must have products below 2^62"),
    (lambda: Group.from_matrices([torch.ones(1, 1) + 1j]), "generators must be real, got complex"),
    (lambda: Group.from_table(torch.zeros(4097, 1).long()), "table must have at most 4096 rows"),
    (lambda: Group.from_matrices([torch.eye(1), 2 * torch.eye(1)]),
     "determinants 1 or -1 in a finite group, got 2 for generators[1]"),
    (lambda: Group.from_matrices([ints([1, 0], [0, 0])]), "here g1 has no inverse"),
    (lambda: S3.multiply(6, 0), "g must be <= 5, got 6"),
    (lambda: S3.inverse(-1), "g must be >= 0, got -1"),
    (lambda: S3.permutation(odd("e")), "g must be an integer, got 'e'"),
    (lambda: S3.sample(-1), "n must be >= 0, got -1"),
    (lambda: S3.trivial(0), "d must be >= 1, got 0"),
    (lambda: Group.symmetric(9).natural().characters(), "at most 4096 elements to list characters"),
    (lambda: permutation_matrix(ints(1, 1)), "permutation must be a permutation, got 1 again at 1"),
    (lambda: permutation_matrix(ints(-1, 0)), "got -1 outside 0 to 1 at 0"),
    (lambda: permutation_matrix(TABLE), "permutation must be a vector, got (2, 2)"),
    (lambda: permutation_matrix(torch.ones(2)), "permutation must hold integers, got torch.float"),
    (lambda: Representation(C4, odd([0])), "images must be integers (order, d) or matrices"),
    (lambda: Representation(C4, ints([0, 1])), "images must be 4 permutations or square matrices"),
    (lambda: Representation(C4, torch.zeros(4, 2, 3)), "matrices, got shape (4, 2, 3)"),
    (lambda: Representation(C4, torch.zeros(4, 2).long()), "images[0] must be a permutation, got"),
    (lambda: Representation(C4, torch.eye(2).repeat(4, 1, 1) * torch.nan), "must be finite"),
    (lambda: Representation(S3, S3.natural().matrices().mT.double()),
     "images must be a homomorphism, and that of (1 2) times that of (0 1) is not that of (1 2)"),
    (lambda: Representation(C4, torch.zeros(4, 1, 1)), "the identity matrix for the identity"),
    (lambda: S3.natural()(0, torch.zeros(4)), "x must be 3 wide, got shape (4,)"),
    (lambda: S3.natural()(6, torch.zeros(3)), "g must be <= 5, got 6"),
    (lambda: TURNS.natural()(-1, torch.zeros(2)), "g must be >= 0, got -1"),
    (lambda: TURNS.natural()(1, ints(1, 2)), "x must be floating point to be moved by matrices"),
    (lambda: Representation(C4, torch.ones(4, 1, 1) * 1j), "images must be real, got torch.comp"),
    (lambda: S3.natural() + C4.natural(), "must be of one group, got Group.symmetric(3) and Group"),
    (lambda: equivariant_basis(C4, S3.natural(), C4.natural()),
     "rep_in must be a representation of Group.cyclic(4), got one of Group.symmetric(3)"),
    (lambda: PointAction(C4, axis=-1), "axis must be >= 0, got -1"),
    (lambda: PointAction(C4)(1, X), "the 4 points of Group.cyclic(4) along axis 1, got"),
    (lambda: ImageAction(S3), "group must be cyclic or dihedral to turn images, got Group.symm"),
    (lambda: ImageAction(Group.cyclic(3))(1, IMAGES.long()), "x must be floating point to be int"),
    (lambda: FeatureAction(S3), "group must be Group.cyclic(4) or Group.dihedral(4), got"),
    (lambda: FeatureAction(C4)(1, IMAGES), "x must have the shape (n, channels, 4, height, width)"),
    (lambda: GraphAction(S3)(1, (X.T, X)), "x must be a tuple of features and edges (2, E)"),
    (lambda: GraphAction(S3)(1, (X.T, ints([0], [3]))), "edge_index must be < num_nodes = 3, got"),
    (lambda: GraphAction(S3)(1, (X, ints([0], [1]))), "the 3 points of Group.symmetric(3) for"),
    (lambda: GraphAction(S3)(1, (X.T, ints([0, 1, 2], [1, 2, 0]), ints(0, 0, 1))),
     "x[2] must not be 3 integers where there are as many nodes as edges"),
    (lambda: GraphAction(S3)(1, (X.T, ints([0, 1], [1, 2]).bool())), "x must be a tuple of feat"),
    (lambda: invariance_error(odd("model"), X, group=S3), "model must be an nn.Module, got str"),
    (lambda: invariance_error(LINEAR, X, group=C4), "x must have the 4 points of Group.cyclic(4)"),
    (lambda: invariance_error(LINEAR, X * torch.nan, group=S3), "x must be finite, got nan"),
    (lambda: invariance_error(LINEAR, X, group=S3, samples=0), "samples must be >= 1, got 0"),
    (lambda: invariance_error(NaNs(), X, group=S3), "outputs of model must be finite"),
    (lambda: equivariance_error(LINEAR, X, group=S3),
     "out_action must move outputs of shape (2, 2), and: x must have the 3 points"),
    (lambda: equivariance_error(nn.Conv2d(1, 1, (3, 2)), IMAGES, group=C4),
     "outputs must have one shape, got (2, 1, 2, 3) for moved inputs and (2, 1, 3, 2) for moved"),
    (lambda: symmetrize(odd(3), S3), "model must be an nn.Module, got int"),
    (lambda: symmetrize(LINEAR, Group.symmetric(9)), "group must have at most 4096 elements to"),
    (lambda: symmetrize(LINEAR, S3, memory=0), "memory must be >= 1, got 0"),
    (lambda: symmetrize(LINEAR, S3)(X, input=X), "inputs must be all by place or all by name"),
    (lambda: symmetrize(nn.LSTM(3, 2), S3)(X), "model must give a tensor, got tuple"),
    (lambda: GroupConv2d(0, 1, 3), "in_channels must be >= 1, got 0"),
    (lambda: GroupConv2d(1, 1, 0), "kernel_size must be >= 1, got 0"),
    (lambda: GroupConv2d(1, 1, 3, group=odd("p6")), "group must be one of 'p4', 'p4m', got 'p6'"),
    (lambda: GroupConv2d(1, 1, 3, padding=-1), "padding must be >= 0, got -1"),
    (lambda: GroupConv2d(1, 1, 3, padding_mode=odd("reflect")), "padding_mode must be one of"),
    (lambda: GroupConv2d(1, 1, 3)(IMAGES), "x must have the shape (n, 1, 4, height, width), got"),
    (lambda: GroupConv2d(2, 1, 3, lifting=True)(IMAGES), "x must have the shape (n, 2, height"),
    (lambda: GroupConv2d(1, 1, 3, lifting=True, stride=2)(IMAGES),
     "height must be 3 or 5, or differ from that by multiples of the stride 2, for an exact"),
    (lambda: GroupConv2d(1, 1, 3, lifting=True, stride=3, padding=2)(IMAGES),
     "height must be 2 or 5, or differ from that by multiples of the stride 3, for an exact"),
    (lambda: GroupConv2d(1, 1, 5, lifting=True)(IMAGES), "height must be >= 5, got 4"),
    (lambda: GroupConv2d(1, 1, 3, lifting=True, padding=5, padding_mode="circular")(IMAGES),
     "height and width must be >= 5 to be continued around"),
    (lambda: GroupPool(odd("p1")), "group must be one of 'p4', 'p4m', got 'p1'"),
    (lambda: GroupPool("p4", reduce=odd("min")), "reduce must be one of 'max', 'mean', got 'min'"),
    (lambda: GroupPool("p4", stride=2), "kernel_size must be given with stride or padding"),
    (lambda: GroupPool("p4", kernel_size=2, padding=2), "padding must be <= 1, got 2"),
    (lambda: GroupPool("p4m")(torch.zeros(1, 1, 4, 2, 2)), "(n, channels, 8, height, width), got"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
