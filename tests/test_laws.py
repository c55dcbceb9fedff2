"""Each law of parts passes good modules, and fails on one that breaks just that law."""

import random
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.testing import (
    PART_LAWS,
    BrokenLaw,
    check_part,
)
from vademecum.testing.laws import changes, named_tensors, snapshot

X = torch.linspace(-1, 1, 12).reshape(4, 3)


class Part(nn.Linear):
    """A good module of 3 inputs and 2 outputs, for others to spoil."""

    shift: torch.Tensor

    def __init__(self):
        super().__init__(3, 2)
        self.register_buffer("shift", torch.zeros(2))

    def forward(self, input) -> Any:
        return super().forward(input)


class NotFinite(Part):
    def forward(self, input):
        y = super().forward(input)
        return y, torch.full_like(y, torch.inf if self.training else 0.0)


class LosesBatch(Part):
    def forward(self, input):
        return super().forward(input), input[0]


class CutsGradient(Part):
    def forward(self, input):
        return input @ self.weight.T + self.bias.detach()


class ZeroGradient(Part):
    def forward(self, input):
        return input @ self.weight.T + 0 * self.bias


class NoGradient(Part):
    def forward(self, input):
        return super().forward(input).detach()


class ForcesFloat32(Part):
    def forward(self, input):
        return super().forward(input).float()


class RefusesFloat64(Part):
    def forward(self, input):
        if input.dtype == torch.float64:
            raise TypeError("single precision only")
        return super().forward(input)


class ForgetsBuffer(Part):
    def __init__(self):
        super().__init__()
        self.forgotten = torch.ones(2, dtype=torch.float64)

    def forward(self, input):
        return super().forward(input) + self.forgotten.to(input.dtype)


class CountsInEval(Part):
    """Each copy starts at the same count, so that only a second call tells."""

    calls = 0

    def forward(self, input):
        self.calls += not self.training
        return super().forward(input) + self.calls


class DrawsInTraining(Part):
    def forward(self, input):
        return super().forward(input) + (random.SystemRandom().random() if self.training else 0)


class LosesState(Part):
    """A running mean that is used in eval mode and not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3), persistent=False)

    def forward(self, input):
        if self.training:
            self.mean = self.mean + input.detach().mean(0) + 1
        return super().forward(input - self.mean)


class ForgetsOnSaving(Part):
    def forward(self, input):
        return super().forward(input) + self.shift

    def state_dict(self, *args, **kwargs):
        return {k: v + 1 for k, v in super().state_dict(*args, **kwargs).items()}


class Anonymous(Part):
    def __repr__(self):
        return "a module"


class ShowsAddress(Part):
    def extra_repr(self):
        return object.__repr__(self)


class Couples(Part):
    def forward(self, input):
        return super().forward(input - input.mean(0))


class ChangesBuffer(Part):
    def forward(self, input):
        self.shift += 1
        return super().forward(input)


class ChangesMode(Part):
    def forward(self, input):
        self.train()
        return super().forward(input)


class ChangesInput(Part):
    def forward(self, input):
        y = super().forward(input)
        if not self.training:  # where it would spoil the gradient too
            input.add_(1)
        return y


class SpendsRandomness(Part):
    def forward(self, input):
        torch.rand(1)
        return super().forward(input)


BAD_PARTS = [
    ("finite", NotFinite, r"8 of 8 entries of output\[1\] are not finite in train mode"),
    ("batch", LosesBatch, r"output\[1\] has shape \(3,\) for a batch of 4 on axis 0"),
    ("gradient", CutsGradient, "no gradient reaches bias"),
    ("gradient", ZeroGradient, "the gradient of bias is zero in all 2 entries"),
    ("gradient", NoGradient, "depends on none of its 2 parameters"),
    ("dtype", ForcesFloat32, "output is torch.float32 for inputs and parameters of torch.float64"),
    ("dtype", RefusesFloat64, "it raised TypeError: single precision only"),
    ("device", ForgetsBuffer, "it raised RuntimeError: .*not on the expected device"),
    ("determinism", CountsInEval, "output differs by 1, 0 is allowed, between two calls in eval"),
    ("determinism", DrawsInTraining, "output differs by .*, in train mode after reseeding"),
    ("save_load", LosesState, "output differs by .* after saving and loading"),
    ("save_load", ForgetsOnSaving, "output differs by .* after saving and loading"),
    ("repr", Anonymous, "'a module' does not name the class Anonymous"),
    ("repr", ShowsAddress, "holds the memory address 0x"),
    ("independence", Couples, r"output differs by .*, .*e-0[5-7] is allowed between 1 of 4"),
    ("untouched", ChangesBuffer, "buffer shift changed by 1"),
    ("untouched", ChangesMode, "training flag of the module itself changed from False to True"),
    ("untouched", ChangesInput, "the input.* was changed in place"),
    ("untouched", SpendsRandomness, "torch's random state changed"),
]


@pytest.mark.parametrize(("law", "kind", "finding"), BAD_PARTS)
def test_a_part_that_breaks_a_law_breaks_just_that_one(law, kind, finding):
    devices = ("cpu", "meta")
    with pytest.raises(BrokenLaw, match=f"^{kind.__name__} breaks the law '{law}': ") as broken:
        check_part(kind(), X, devices=devices)
    assert broken.match(finding)
    assert (broken.value.law, broken.value.subject) == (law, kind.__name__)
    skip = {law: "it is broken on purpose"}
    if law == "batch":
        skip["independence"] = "without a batch there are no rows to compare"
    assert set(check_part(kind(), X, skip=skip, devices=devices)) == set(PART_LAWS) - set(skip)


def test_every_law_of_parts_has_a_module_that_breaks_it():
    assert {law for law, *_ in BAD_PARTS} == set(PART_LAWS)


TIMES = (torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(0)),)
GOOD_PARTS = {
    "linear": (nn.Linear(3, 2), X, {}),
    "convolution": (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0)),
        {},
    ),
    "gru": (nn.GRU(3, 4, batch_first=True), TIMES, {"out_dims": (0, 1)}),
    "gru, time first": (nn.GRU(3, 4), TIMES, {"in_dims": 1, "out_dims": (1, 1)}),
    "embedding": (nn.Embedding(9, 4), torch.arange(8).reshape(4, 2), {}),
    "bilinear": (nn.Bilinear(3, 3, 2), (X, X.flip(0)), {}),
    "frozen": (nn.Linear(3, 2).requires_grad_(False), X, {}),
    "dropout": (nn.Sequential(nn.Linear(3, 8), nn.Dropout()), X, {}),
}


@pytest.mark.parametrize("name", GOOD_PARTS)
@pytest.mark.parametrize("training", [True, False])
def test_good_parts_keep_all_laws(name, training):
    module, inputs, options = GOOD_PARTS[name]
    module.train(training)
    before = snapshot(module)
    assert check_part(module, inputs, **options) == tuple(PART_LAWS)
    assert not list(changes(before, snapshot(module)))


def test_a_transformer_layer_in_eval_mode_keeps_all_laws():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    assert check_part(layer, torch.randn(4, 5, 8)) == tuple(PART_LAWS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", GOOD_PARTS)
def test_good_parts_keep_the_laws_on_cuda(name):
    module, inputs, options = GOOD_PARTS[name]
    assert "device" in check_part(module, inputs, devices=("cuda", "cpu"), **options)
    with pytest.raises(BrokenLaw, match="'device'"):
        check_part(ForgetsBuffer(), X)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X,), {"skip": {"speed": "too slow"}}, "skip must hold names of laws .*got 'speed'"),
        ((X,), {"skip": {"repr": " "}}, "skip must give a reason for each law, got ' ' for 'repr'"),
        ((X[:1],), {}, "inputs must hold at least 2 examples, got 1"),
        (((X, X[:2]),), {}, r"inputs must agree in the size of the batch, got \[2, 4\]"),
        (((X, X),), {"in_dims": (0,)}, "in_dims must have one axis for each of 2 inputs"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        check_part(nn.Linear(3, 2), *arguments, **options)


def test_tolerance_can_be_given():
    check_part(Couples(), X, tol=10.0)


def test_nested_results_are_seen():
    pair = namedtuple("pair", "a b")
    found = dict(named_tensors({"p": pair(1, [2.0]), "n": np.ones(2), "s": "text"}))
    assert list(found) == ["output['p'].a", "output['p'].b[0]", "output['n']"]
    assert found["output['n']"].tolist() == [1.0, 1.0]
