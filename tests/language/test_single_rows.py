"""A single row times a large matrix, on several cores."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.language import GPT
from vademecum.language.networks import _single_rows
from vademecum.language.networks._single_rows import mapped, scores


@pytest.fixture(params=[1, 2, 3])
def threads(request, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)
    monkeypatch.setattr(_single_rows, "_LARGE", 1)
    return request.param


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 1), (1, 3)])
def test_products_are_those_of_linear(threads, shape):
    x, W, b = torch.randn(*shape, 12), torch.randn(12, 7), torch.randn(7)
    x, W, b = x.double(), W.double(), b.double()
    torch.testing.assert_close(mapped(x, W, b), x @ W + b)
    torch.testing.assert_close(scores(x, W.T.contiguous()), F.linear(x, W.T))
    torch.testing.assert_close(mapped(x, W.T.contiguous().T, b), x @ W + b)


def test_a_step_of_a_model_is_the_same_on_any_number_of_cores(threads):
    net = GPT(V=11, d=12, layers=2, heads=3, context=9).double()
    for p in net.parameters():
        nn.init.normal_(p, 0, 0.5)
    tokens = torch.randint(11, (1, 6))
    cache = net.make_cache(1, 9)
    with torch.no_grad():
        steps = [net(tokens[:, t : t + 1], cache=cache) for t in range(6)]
        torch.testing.assert_close(torch.cat(steps, 1), net(tokens))
