"""Linearised networks with embeddings, whose rows for padding do not move."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.kernels.tangent_model_oracles import dense, displaced
from vademecum.kernels import LinearizedNetwork


class Words(nn.Module):
    """Padding, which embeddings hold fast, in rows of a table that the head shares and moves."""

    def __init__(self, padding: int):
        super().__init__()
        self.words, self.head = nn.Embedding(5, 3, padding_idx=padding), nn.Linear(3, 5, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).tanh().mean(1))


@pytest.mark.parametrize("padding", [0, -1])
def test_padding_is_held_fast(padding):
    torch.manual_seed(1)
    model, ids = Words(padding).double(), torch.tensor([[0, 1, 4], [3, 0, 0], [2, 4, 4]])
    nn.init.normal_(model.words.weight)  # else padding is zero
    model.words.padding_idx = padding  # which the layer has counted from the start
    h = LinearizedNetwork(model)
    beta = displaced(h)
    torch.testing.assert_close(h(ids).detach(), dense(model, beta, ids))
    found, plain = h(ids), copy.deepcopy(model)
    (g,) = torch.autograd.grad(found.sum(), list(h.parameters()))
    torch.testing.assert_close(g, torch.autograd.grad(plain(ids).sum(), plain.words.weight)[0])


class LooksUp(nn.Module):
    """Rows by torch's own function, which takes any index below 0 for no padding."""

    def __init__(self, padding: int, *, named: bool, look: Callable[..., Tensor]):
        super().__init__()
        self.table, self.padding, self.named = nn.Parameter(torch.randn(5, 3)), padding, named
        self.look = look

    def forward(self, ids: Tensor) -> Tensor:
        if self.named:
            return self.look(weight=self.table, indices=ids, padding_idx=self.padding).sin()
        return self.look(self.table, ids, self.padding).sin()


@pytest.mark.parametrize("padding", [0, 4, -1])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "look", [torch.embedding, torch.ops.aten.embedding, torch.ops.aten.embedding.default]
)
def test_padding_of_rows_that_no_layer_holds(look, padding, named):
    torch.manual_seed(1)
    model, ids = (
        LooksUp(padding, named=named, look=look).double(),
        torch.tensor([[0, 1, 4], [3, 0, 0]]),
    )
    h = LinearizedNetwork(model)
    beta = displaced(h)
    torch.testing.assert_close(h(ids).detach(), dense(model, beta, ids))


def test_padding_in_an_exported_program():
    torch.manual_seed(1)
    ids = torch.tensor([[0, 1, 4], [3, 0, 0], [2, 4, 4]])
    model = Words(0).double()
    nn.init.normal_(model.words.weight)
    h = LinearizedNetwork(torch.export.export(model, (ids,)).module())
    beta = displaced(h)
    torch.testing.assert_close(h(ids).detach(), dense(model, beta, ids))
