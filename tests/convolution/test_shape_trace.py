"""`shape_trace` against counts by hand, formulas for each layer, and models nobody here wrote."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vademecum.convolution import shape_trace
from vademecum.models import SlowPathWarning
from vademecum.testing import check_instrument


class Calls(nn.Module):
    """A function as a module, with parts that it may call."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args):
        return self.function(self, *args)


EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention  # what GPUs run
SHARED = nn.Linear(10, 10)
COUNTS = {  # module, shape, multiply-adds, by hand
    "linear": (nn.Linear(3, 2), (7, 3), 7 * 3 * 2),
    "shared": (nn.Sequential(SHARED, SHARED), (10,), 200),
    "convolution": (nn.Conv2d(3, 8, (3, 5), stride=2), (3, 11, 13), 8 * 5 * 5 * 3 * 15),
    "groups": (nn.Conv1d(6, 4, 3, groups=2, padding=1), (6, 9), 4 * 9 * 3 * 3),
    "three axes": (nn.Conv3d(2, 3, 2), (2, 3, 4, 5), 3 * 2 * 3 * 4 * 2 * 8),
    "circular": (nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), (2, 6), 4 * 6 * 2 * 3),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (4, 5, 7), 4 * 35 * 6 * 9),
    "transposed groups": (nn.ConvTranspose1d(4, 6, 3, groups=2), (4, 5), 4 * 5 * 3 * 3),
    "attention": (Calls(lambda _, q: F.scaled_dot_product_attention(q, q, q)), (2, 5, 8), 800),
    "fewer queries": (
        Calls(lambda _, x: F.scaled_dot_product_attention(x[:, :, :5], x, x)),
        *((2, 7, 8), 2 * 5 * 7 * (8 + 8)),
    ),
    "narrow values": (
        Calls(lambda _, x: EFFICIENT(x[:, :, :5], x, x[..., :3], None, False)[0]),
        *((2, 7, 8), 2 * 5 * 7 * (8 + 3)),
    ),
    "einsum": (Calls(lambda _, a: torch.einsum("bij,bkj->bik", a, a)), (3, 4), 3 * 3 * 4),
    "matmul": (Calls(lambda _, a: a @ a.mT), (2, 3, 4), 2 * 3 * 3 * 4),
    "vectors": (Calls(lambda _, a: torch.dot(a[0], a[0])), (6,), 6),
    "sum of products": (
        Calls(lambda _, a: torch.addbmm(a.new_zeros(3, 5), a[0], a.new_zeros(2, 4, 5))),
        *((2, 3, 4), 2 * 3 * 4 * 5),
    ),
    "bilinear": (Calls(lambda s, a: s.f(a, a), f=nn.Bilinear(3, 3, 2)), (3,), 2 * (9 + 3)),
    "bilinear, uneven": (
        Calls(lambda s, a: s.f(a[:, :3], a), f=nn.Bilinear(3, 5, 2)),
        *((5,), 2 * (3 * 5 + 5)),
    ),
    "heads": (nn.TransformerEncoderLayer(8, 2, 16), (5, 8), 5 * 8 * 8 * 4 + 5 * 8 * 16 * 2 + 80),
    "lstm": (nn.LSTM(3, 5, batch_first=True), (7, 3), 7 * 4 * 5 * (3 + 5)),
    "gru": (nn.GRU(3, 5, batch_first=True, bidirectional=True), (7, 3), 2 * 7 * 3 * 5 * 8),
    "nothing": (nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)), (3, 4, 4), 0),
}


@pytest.mark.parametrize("case", COUNTS)
def test_multiply_adds(case):
    model, shape, wanted = COUNTS[case]
    found = shape_trace(model, shape)
    assert found.multiply_adds == wanted, found.table()
    assert found.without_rule == {}
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert sum(call.parameters for call in found.calls) == found.parameters


def test_heads_of_an_encoder_are_its_own():
    model, shape, _ = COUNTS["heads"]
    rows = {call.name: call for call in shape_trace(model, shape).calls}
    # the batch is the second axis: one example of five tokens is five examples of one token
    assert rows["self_attn"].multiply_adds == 5 * 8 * 8 * 4 + 5 * 2 * 8
    assert rows["self_attn"].parameters == 4 * (8 * 8 + 8)


def test_a_shared_module_has_two_rows_and_one_count():
    found = shape_trace(nn.Sequential(SHARED, SHARED), (10,))
    assert [call.multiply_adds for call in found.calls] == [0, 100, 100]
    assert [call.parameters for call in found.calls] == [0, 110, 0]


def test_a_shared_tensor_counts_once():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert [c.parameters for c in shape_trace(model, (4,)).calls] == [0, 16, 4]


def test_products_belong_to_the_module_that_ran_them():
    inner = Calls(lambda s, x: s.f(x) @ x.mT, f=nn.Linear(4, 4))
    model = Calls(
        lambda s, x: s.inner(x).sum(-1) + torch.einsum("btc,c->bt", x, x[0, 0]), inner=inner
    )
    rows = {call.name: call.multiply_adds for call in shape_trace(model, (3, 4)).calls}
    assert rows == {"": 12, "inner": 36, "inner.f": 48}


def test_operations_without_a_rule_are_listed():
    model = Calls(lambda _, x: torch.cdist(x, x) + torch.fft.fft(x, 2).abs() + torch.cdist(x, x))
    found = shape_trace(model, (2, 2))
    assert found.multiply_adds == 0
    assert found.without_rule == {"_cdist_forward": 2, "_fft_r2c": 1}
    assert "not counted, as there is no rule: _cdist_forward, 2 times" in found.table()


def test_parameters_without_effect_are_listed():
    model = Calls(
        lambda s, x: s.f(x) if not s.training else s.g(x), f=nn.Linear(2, 3), g=nn.Linear(2, 5)
    )
    found = shape_trace(model, (2,))
    assert found.parameters == 9 + 15
    assert found.unused == ("g.weight", "g.bias")
    assert model.training


def test_activations_count_memory_once():
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Identity())
    found = shape_trace(model.double(), torch.zeros(5, 2, 6).double())
    assert [call.activation_bytes for call in found.calls] == [0, 5 * 3 * 4 * 8, 0, 0, 0]
    functional = Calls(lambda s, x: s.g(F.relu(s.f(x))), f=nn.Linear(2, 3), g=nn.Linear(3, 4))
    found = shape_trace(functional, (2,))
    assert [call.activation_bytes for call in found.calls] == [12, 12, 16]


def test_buffers_are_no_activations():
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(3, 4))

        def forward(self, x):
            return x + 1, self.table

    assert shape_trace(Table(), torch.zeros(1, 2)).activation_bytes == 8


def test_tables_fold_at_a_depth():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), nn.Linear(4, 1))
    found = shape_trace(model, (2,))
    lines = found.table(1).splitlines()
    assert [line.split()[:2] for line in lines[1:-1]] == [
        ["Sequential", "(1,"], ["0", "Sequential"], ["1", "Linear"],
    ]  # fmt: skip
    assert lines[2].split()[-3:] == ["25", "18", "28"]
    assert lines[-1].split() == ["total", "30", "22", "32"]
    assert found.table(0).splitlines()[1].split()[-3:] == ["30", "22", "32"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_input_and_its_shape_say_the_same(dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(dtype)
    assert shape_trace(model, (3, 8, 8)) == shape_trace(model, torch.zeros(1, 3, 8, 8, dtype=dtype))


def test_a_model_without_values():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 2**12, 3), nn.Conv2d(2**12, 2**12, 3))
    found = shape_trace(model, (3, 1000, 1000))
    assert found.calls[-1].outputs == ((1, 2**12, 996, 996),)
    assert found.multiply_adds == 2**12 * 9 * (3 * 998**2 + 2**12 * 996**2)


def test_inputs_of_any_structure():
    model = Calls(lambda s, x, scale: {"y": s.f(x["a"]) * scale}, f=nn.Linear(2, 3))
    found = shape_trace(model, ({"a": torch.zeros(4, 2)}, 2.0))
    assert found.multiply_adds == 24
    assert found.calls[0].inputs == ((4, 2),)


def test_code_that_needs_values_runs_on_real_tensors():
    model = Calls(lambda s, x: s.f(x) if float(x.sum()) >= 0 else x, f=nn.Linear(2, 3))
    with pytest.warns(SlowPathWarning, match="ran on real tensors"):
        assert shape_trace(model, torch.ones(4, 2)).multiply_adds == 24


def test_embeddings_and_bags():
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 2))
    found = shape_trace(model, torch.zeros(1, 3, dtype=torch.long))
    assert (found.multiply_adds, found.parameters) == (24, 40 + 26)


BAD = {
    "an empty shape": ((), "x must be an input, or the shape of one example"),
    "a size below one": ((3, 0), "each size in x must be >= 1, got 0"),
    "a shape that does not fit": ((5,), r"model does not take inputs of shape \(1, 5\)"),
    "a tensor that does not fit": (torch.zeros(2, 5), r"does not take inputs of shape \(2, 5\)"),
    "a word": ("shape", "model does not take inputs of shape str"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_inputs(case):
    x, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        shape_trace(nn.Linear(3, 2), x)


@pytest.mark.usefixtures("unchecked")
def test_a_model_must_be_a_module():
    with pytest.raises(ValueError, match=r"model must be an nn.Module, got function"):
        shape_trace(lambda x: x, (3,))  # pyright: ignore


def test_laws():
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Dropout()).double()
    held = check_instrument(shape_trace, model, torch.randn(4, 2, 5).double())
    assert held == ("finite", "untouched", "repeatable")


def test_untouched_where_values_are_needed():
    model = Calls(lambda s, x: s.f(x).sum() if bool(x.mean() < 9) else x, f=nn.BatchNorm1d(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPathWarning)
        check_instrument(shape_trace, model, torch.randn(4, 3), outputs=None)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_the_gpu():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).cuda()
    assert shape_trace(model, (3, 8, 8)).multiply_adds == 4 * 36 * 27
    assert shape_trace(model, torch.zeros(2, 3, 8, 8, device="cuda")).multiply_adds == 8 * 36 * 27
