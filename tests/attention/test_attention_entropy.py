"""Entropies and ranks of maps against whole ones, tokens that become alike, memory, and laws."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.attention.test_attention_maps import INSTRUMENTS, ByHand, D, Fused, H, N, T, close, x_of
from tests.gradients.test_jacobian import Peak
from vademecum.attention import (
    MultiHeadAttention,
    TransformerEncoder,
    attention_entropy,
    attention_maps,
    attention_rank,
    draw_attention,
)
from vademecum.testing import check_instrument


@pytest.mark.parametrize("memory", [None, 3000])
def test_attention_entropy_is_that_of_the_rows(memory):
    q, k = 3 * torch.randn(N, 4, T, 6), torch.randn(N, 2, 7, 6)
    mask = torch.rand(N, 4, T, 7) > 0.4
    mask[0, 1, 2], mask[1, 2] = False, False  # a query and a head that see nothing
    model = Fused(attn_mask=mask, enable_gqa=True)
    found = attention_entropy(model, (q, k), memory=memory)
    rows = attention_maps(model, (q, k)).weights[0].double()
    each = torch.where(rows > 0, -rows * rows.clamp(min=1e-300).log(), 0).sum(3)
    counted = (rows.sum(3) > 0).sum(2)
    close(found.entropy[0], (each.sum(2) / counted.clamp(min=1)).float())
    assert found.entropy[0][1, 2] == 0
    close(found.by_head, found.entropy[0].mean(0)[None])


def test_attention_entropy_of_known_maps():
    q = torch.zeros(1, 1, 4, 2)
    causal = attention_entropy(Fused(is_causal=True), (q, q)).by_head
    close(causal, torch.tensor([[math.log(24) / 4]]))  # log 1, log 2, log 3, log 4


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = MultiHeadAttention(D, 1), MultiHeadAttention(D, 4)

    def forward(self, x):
        return self.b(self.a(x))


def test_layers_may_have_different_heads():
    for result in (attention_entropy(Uneven(), x_of()), attention_rank(Uneven(), x_of())):
        assert result.by_head.isnan().tolist() == [[False, True, True, True], [False] * 4]
        assert "\n" not in repr(result)
    assert len(draw_attention(attention_maps(Uneven(), x_of())).axes[0].images) == 5


@pytest.mark.parametrize("memory", [None, 200_000])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (150, 140), (130, 200)])
def test_attention_rank_is_that_of_whole_maps(queries, keys, memory):
    q, k = 2 * torch.randn(2, 2, queries, 6), torch.randn(2, 2, keys, 6)
    mask = torch.ones(2, 2, queries, keys).bool()
    mask[1, 1] = False  # a map of zeros
    (found,) = attention_rank(Fused(attn_mask=mask), (q, k), memory=memory).stable_rank
    A = attention_maps(Fused(attn_mask=mask), (q, k)).weights[0].double()
    wanted = A.square().sum((2, 3)) / torch.linalg.matrix_norm(A, 2).square().clamp(min=1e-9)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-6)
    assert found[1, 1] == 0


def test_attention_rank_of_known_maps():
    eye = 100 * torch.eye(6)[None, None]
    assert attention_rank(Fused(scale=1.0), (eye, eye)).by_head.item() == pytest.approx(6)
    alike = torch.zeros(1, 1, 200, 4)
    assert attention_rank(Fused(), (alike, alike)).by_head.item() == pytest.approx(1)


def stack(*, residual: bool):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = MultiHeadAttention(D, H)

        def forward(self, x):
            return self.attend(x) + x * residual

    return nn.Sequential(*(Layer() for _ in range(6)))


def test_attention_rank_sees_tokens_become_alike():
    x = x_of(N, 20, D)
    found = attention_rank(stack(residual=False), x)
    apart = x - x.mean(1, keepdim=True)
    wanted = (apart.norm(dim=(1, 2)) / x.norm(dim=(1, 2))).mean()
    assert found.before[0].item() == pytest.approx(wanted.item(), rel=1e-5)
    close(found.before[1:], found.after[:-1])
    assert found.before[0] > found.after[0] > 10 * found.after[1]
    assert found.after[-1] < 1e-3
    kept = attention_rank(stack(residual=True), x)
    assert kept.before[-1] > 0.3


@pytest.mark.parametrize("n", [2, 5])
def test_tokens_may_lie_along_the_first_axis(n):
    layer, x = nn.MultiheadAttention(D, H), x_of(T, n, D)
    first = attention_rank(layer, (x, x, x))
    layer.batch_first = True
    close(attention_rank(layer, (x.transpose(0, 1),) * 3).before, first.before)


class Windows(nn.Module):
    """Attention within pairs of tokens: its rows are no tokens of the input's shape."""

    def forward(self, x):
        q = x.reshape(-1, 1, 2, x.shape[2])
        return F.scaled_dot_product_attention(q, q, q).view_as(x)


def test_tokens_that_are_not_found_are_nan():
    found = attention_rank(Windows(), x_of(N, 6, D))
    assert found.stable_rank[0].shape == (3 * N, 1)
    assert found.before.isnan().all()


@pytest.mark.parametrize("instrument", [attention_entropy, attention_rank])
def test_memory_suffices_for_long_sequences(instrument):
    x, memory = torch.randn(1, 1, 8192, 4), 2**30
    with Peak() as peak:
        found = instrument(Fused(), (x, x), memory=memory)
    assert peak.most <= memory
    assert 1 <= found.by_head.item() <= math.log(8192) + 1e-4
    x, memory = x[:, :, :1024], 2**20  # a map has 4 MiB
    whole = instrument(Fused(), (x, x))
    with Peak() as peak:
        found = instrument(Fused(), (x, x), memory=memory)
    assert peak.most - 5 * x.nbytes <= memory
    torch.testing.assert_close(found.by_head, whole.by_head, rtol=1e-4, atol=0)


@pytest.mark.parametrize(("queries", "keys"), [(1500, 6), (6, 1500)])
def test_attention_rank_takes_the_smaller_side_of_a_map(queries, keys):
    q, k, memory = torch.randn(1, 1, queries, 4), torch.randn(1, 1, keys, 4), 2**19
    with Peak() as peak:
        found = attention_rank(Fused(), (q, k), memory=memory)
    assert peak.most <= memory  # the larger side has 9 MB
    A = attention_maps(Fused(), (q, k)).weights[0].double()
    wanted = A.square().sum() / torch.linalg.matrix_norm(A, 2).square().item()
    assert found.by_head.item() == pytest.approx(wanted.item(), rel=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_maps_are_where_the_model_is():
    model, x = TransformerEncoder(D, H, depth=2).cuda(), x_of().cuda()
    found = attention_maps(model, x)
    assert found.weights[0].is_cuda
    close(
        torch.stack(found.weights).cpu(), torch.stack(attention_maps(model.cpu(), x.cpu()).weights)
    )
    for instrument in (attention_entropy, attention_rank):
        there = instrument(model.cuda(), x).by_head.cpu()
        close(there, instrument(model.cpu(), x.cpu()).by_head)


@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_models_are_left_as_they_were(instrument):
    layer = nn.TransformerEncoderLayer(D, H, 16, batch_first=True)
    models = {
        "ours": TransformerEncoder(D, H, depth=2),
        "torch's": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "by hand": ByHand("function"),
    }
    assert check_instrument(instrument, models, x_of(), outputs=None) == (
        *("finite", "untouched", "repeatable"),
    )
    assert check_instrument(
        lambda m, x: instrument(m, x)[1][0], models, x_of(), outputs=None, per_example=True
    )


def test_draw_attention_has_a_map_for_each_head_and_layer():
    found = attention_maps(TransformerEncoder(D, 4, depth=3), x_of())
    axes = draw_attention(found).axes[0]
    assert len(axes.images) == 12
    shown = axes.images[5].get_array()
    assert shown is not None
    close(torch.as_tensor(shown.data), found.weights[1][0, 1])
    left, right, low, top = axes.images[5].get_extent()
    assert 1 == left < right < 2 > low > top == 1
    assert axes.get_ylim()[0] > axes.get_ylim()[1] == 0  # queries and layers run downwards
    assert [t.get_text() for t in axes.get_yticklabels()] == list(found.names)
    same = draw_attention(found, axes)
    assert same.axes[0] is axes
    assert draw_attention(found).axes[0] is not axes
