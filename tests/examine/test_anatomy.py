"""Anatomy against counts by hand: ties, frozen and unused tensors, attention, GPT-2."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.convolution import shape_trace
from vademecum.convolution._multiply_adds import multiply_adds
from vademecum.examine import examine
from vademecum.examine.sections._layers import label
from vademecum.language import GPT


def anatomy(model, x, **options) -> Any:
    section = examine(model, x, sections=["anatomy"], **options)["anatomy"]
    assert section.status == "measured", section.reason + section.traceback
    return section


class Tied(nn.Module):
    """Tokens in and out by one table, a frozen layer, one that is never used, one used twice."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 4)
        self.inner = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.spare = nn.Linear(7, 7)
        self.out = nn.Linear(4, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(self.frozen(self.inner(self.inner(self.table(ids)))))


def test_parameters_by_identity():
    section = anatomy(Tied(), torch.randint(11, (6, 5)))
    assert section.parameters == 44 + 20 + 20 + 56
    assert section.frozen_parameters == 20
    assert section.tied_parameters == ("table.weight = out.weight",)
    assert section.unused_parameters == ("spare.weight", "spare.bias")
    assert section.multiply_adds == 5 * (3 * 16 + 44)  # for one sequence
    by_formula = section["multiply_adds_by_formula"]
    assert (by_formula.value, by_formula.error, by_formula.n) == (5 * (3 * 16 + 44), 0.0, 4)
    assert "never used, spare.weight first" in section.sentence
    assert section.figure.startswith("<?xml")


def test_convolutions_and_what_a_unit_sees():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, groups=2),
        nn.Flatten(), nn.Linear(4 * 14 * 14, 5),
    )  # fmt: skip
    section = anatomy(model, torch.rand(4, 3, 32, 32))
    hand = 8 * 32 * 32 * 27 + 4 * 14 * 14 * 36 + 784 * 5
    assert section.multiply_adds == section.multiply_adds_by_formula == hand
    assert section.receptive_field == (8, 8)
    assert section.receptive_stride == (2.0, 2.0)
    assert section.receptive_share == 64 / 1024
    assert section.input_shape == "(1, 3, 32, 32)"
    assert section.output_shape == "(1, 5)"
    assert section.activation_bytes == 4 * (
        8 * 1024 * 2 + 8 * 256 + 784 + 5
    )  # a view costs nothing
    assert section.peak_bytes >= 2 * 4 * 8 * 1024


def test_attention_is_counted():
    """Which thop leaves out, and torch's counter does not know in its fused forms."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    hand = 4 * 5 * 256 + 2 * 25 * 16 + 2 * 5 * 16 * 32
    section = anatomy(layer, torch.randn(3, 5, 16))
    assert section.multiply_adds == hand


class Counter(TorchDispatchMode):
    """Adds up what the dispatcher's operations take, as they are, fused."""

    def __init__(self):
        super().__init__()
        self.total, self.names = 0, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.total += multiply_adds(func, args, out) or 0
        self.names.append(str(func.overloadpacket).rpartition(".")[2])
        return out


@pytest.mark.parametrize(
    ("name", "call", "hand"),
    [
        ("_transformer_encoder_layer_fwd",
         lambda x: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()(x),
         2 * (4 * 5 * 256 + 2 * 25 * 16 + 2 * 5 * 16 * 32)),
        ("_native_multi_head_attention",
         lambda x: nn.MultiheadAttention(16, 4, batch_first=True).eval()(x, x, x),
         2 * (4 * 5 * 256 + 2 * 25 * 16)),
        ("_scaled_dot_product_flash_attention_for_cpu",
         lambda x: F.scaled_dot_product_attention(*[x.view(2, 5, 4, 4).transpose(1, 2)] * 3),
         2 * 4 * 2 * 25 * 4),
    ],
)  # fmt: skip
def test_fused_operations_have_closed_forms(name, call, hand):
    x = torch.randn(2, 5, 16)
    with torch.no_grad(), Counter() as counter:
        call(x)
    assert name in counter.names
    assert counter.total == hand


def test_gpt2_by_hand():
    with torch.device("meta"):
        model = GPT()
    V, d, L, T = 50257, 768, 12, 64
    ids = torch.zeros(1, T, dtype=torch.long, device="meta")
    trace = shape_trace(model, ids)
    assert trace.parameters == 124_439_808
    hand = L * (T * (3 * d * d + d * d + 2 * 4 * d * d) + 2 * T * T * d) + T * d * V
    assert trace.multiply_adds == hand
    assert not trace.without_rule


def test_graphs_are_one_whole():
    from vademecum.geometry import GCN

    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    section = anatomy(GCN(3, 8, 2, 4), (torch.randn(4, 3), edges))
    assert section["multiply_adds"].n is None
    assert section.multiply_adds > 0
    assert "hang together" in section["multiply_adds"].method


@pytest.mark.slow
def test_gpt2_is_examined_in_ten_seconds():
    import time

    model = GPT()
    start = time.perf_counter()
    section = anatomy(model, torch.randint(50257, (4, 16)))
    assert time.perf_counter() - start < 10
    assert section.parameters == 124_439_808


def test_long_names_keep_their_end():
    assert [label(name, 4) for name in ("abc", "abcd", "abcde")] == ["abc", "abcd", "…cde"]
