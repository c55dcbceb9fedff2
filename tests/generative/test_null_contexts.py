"""Contexts that stand for none, and guidance of weight zero."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.generative import DDPM, ConditionalMLP, NoiseSchedule
from vademecum.generative.diffusion._predictors import Predictor, without_context


class Seen(TorchDispatchMode):
    """The names of the operations that are done."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("null", [3, 2.0, True])
def test_a_number_is_written_and_not_copied(null):
    context = torch.arange(4.0)
    with Seen() as seen:
        found = without_context(null, context)
    assert seen.names == ["full_like"]  # a copy could not be captured as a CUDA graph
    assert found.tolist() == [float(null)] * 4


def test_a_tensor_stands_for_each():
    context = torch.zeros(3, 2, dtype=torch.float64)
    found = without_context(torch.tensor([1.0, 2.0]), context)
    torch.testing.assert_close(found, torch.tensor([[1.0, 2.0]] * 3, dtype=torch.float64))


@pytest.mark.parametrize(
    ("null", "context"),
    [
        (2, torch.tensor([True, False])),
        (256, torch.tensor([7, 9], dtype=torch.uint8)),
        (-1, torch.tensor([7, 9], dtype=torch.uint8)),
        (0.5, torch.tensor([7, 9])),
    ],
)
def test_none_is_refused_where_it_would_be_another_label(null, context):
    message = f"context must be of a dtype that holds {null}, .*, got {context.dtype}"
    with pytest.raises(ValueError, match=message):
        without_context(null, context)
    net = ConditionalMLP(3, hidden=(4,), classes=2)
    model = DDPM(net, (3,), schedule=NoiseSchedule([0.5] * 3), drop=0.5, null=null)
    with pytest.raises(ValueError, match=message):
        model.loss(torch.ones(2, 3), context)


@pytest.mark.parametrize("null", [0, 1, 255])
def test_none_at_the_ends_of_a_dtype(null):
    found = without_context(null, torch.tensor([7, 9], dtype=torch.uint8))
    assert found.tolist() == [null, null]
    if null < 2:
        assert without_context(null, torch.tensor([True, False])).tolist() == [bool(null)] * 2


@pytest.mark.parametrize(("guidance", "rows"), [(None, 3), (0.0, 3), (0.5, 6)])
def test_guidance_of_weight_zero_is_the_plain_prediction(guidance, rows):
    class Model:
        null = 0
        seen: tuple[int, ...] = ()

        def __call__(self, x, t, context):
            self.seen += (len(x),)
            return x * context[:, None]

    model, x = Model(), torch.ones(3, 2)
    out = Predictor(model, 3, torch.tensor([1.0, 2.0, 3.0]), guidance)(x, torch.zeros(3))
    assert model.seen == (rows,)
    weight = 1 + (guidance or 0)  # without a context this model gives nothing
    torch.testing.assert_close(out, weight * torch.tensor([[1.0, 1], [2, 2], [3, 3]]))
