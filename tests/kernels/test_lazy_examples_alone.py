"""Models that `lazy_ratio` cannot ask for one example alone."""

import pytest
import torch
from torch import Tensor, nn

from tests.kernels.test_laziness import X
from vademecum.kernels import lazy_ratio


class OnEdges(nn.Linear):
    """Nodes of one graph, which are no examples, since each hears of others."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input[torch.tensor([1, 2, 3, 4, 0])])


class InPairs(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if len(input) < 2:
            raise AssertionError
        return super().forward(input)


@pytest.mark.parametrize(
    ("layer", "reason"), [(OnEdges, "index 1 is out of bounds"), (InPairs, "AssertionError")]
)
def test_a_model_that_takes_all_examples_alone(layer, reason):
    with pytest.raises(ValueError, match=f"must take one example at a time: {reason}"):
        lazy_ratio(layer(4, 3).double(), X)


class ByNumPy(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return torch.as_tensor(super().forward(input).numpy())


def test_a_model_without_derivatives_says_so():
    with pytest.raises(RuntimeError, match=r"^Can't call numpy\(\) on Tensor that requires grad"):
        lazy_ratio(ByNumPy(4, 3).double(), X)


class TooLarge(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("no derivatives")
        if len(input) < 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().forward(input)


def test_memory_that_ran_out_says_nothing_of_the_model():
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        lazy_ratio(TooLarge(4, 3).double(), X)


def test_a_model_that_takes_none_says_why():
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        lazy_ratio(InPairs(5, 3).double(), X)
