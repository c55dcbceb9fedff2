"""Each law of instruments passes a good one, and fails on one that breaks just that law."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import nn

from vademecum.testing import INSTRUMENT_LAWS, BrokenLaw, awkward_models, check_instrument
from vademecum.testing.laws import changes, snapshot


def good(model, data):
    """The norm of the output of each example in eval mode, and nothing left behind."""
    x = data[0] if isinstance(data, tuple) else data
    modes = {m: m.training for m in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            return SimpleResult(model(x).norm(dim=1))
    finally:
        for module, mode in modes.items():
            module.training = mode


SimpleResult = namedtuple("SimpleResult", "norms")
COUNTER = itertools.count()


def not_finite(model, data):
    return good(model, data).norms / 0


def leaves_eval(model, data):
    result = good(model, data)
    list(model.modules())[-1].training ^= True
    return result


def leaves_gradient(model, data):
    result = good(model, data)
    for p in model.parameters():
        p.grad = None
    return result


def leaves_hook(model, data):
    model.register_forward_hook(lambda *_: None)
    return good(model, data)


def freezes(model, data):
    for p in model.parameters():
        p.requires_grad_(False)
    return good(model, data)


def updates_buffers(model, data):
    for b in model.buffers():
        b += 1
    return good(model, data)._replace(norms=torch.zeros(len(data)))


def moves_parameters(model, data):
    for p in model.parameters():
        p.data.mul_(1 + 1e-6)
    return torch.zeros(len(data))


def replaces_parameters(model, data):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.bias = nn.Parameter(module.bias.detach().clone(), module.bias.requires_grad)
            module.bias.grad = torch.zeros_like(module.bias)
    return good(model, data)


def spends_numpy(model, data):
    np.random.rand()  # noqa: NPY002
    return good(model, data)


def changes_data(model, data):
    result = good(model, data)
    data += 1
    return result


def counts(model, data):
    return torch.full((len(data),), float(next(COUNTER)))


def centred(model, data):
    norms = good(model, data).norms
    return norms - norms.mean()


def scalar(model, data):
    return float(good(model, data).norms.mean())


def ordered(model, data):
    norms = good(model, data).norms
    return norms * (data[:, 0] >= data[0, 0])


def empty(model, data):
    return "nothing"


BAD_INSTRUMENTS = [
    ("finite", not_finite, "entries of result are not finite"),
    ("finite", empty, "its result holds no number"),
    ("untouched", leaves_eval, "training flag of .* changed from"),
    ("untouched", leaves_gradient, "gradient of 1.weight changed"),
    ("untouched", leaves_hook, "number of hooks of the module itself changed from 0 to 1"),
    ("untouched", freezes, "requires_grad of 1.weight changed from True to False"),
    ("untouched", updates_buffers, "buffer 3.running_mean changed by 1"),
    ("untouched", moves_parameters, "parameter 1.weight changed by"),
    ("untouched", replaces_parameters, "identity of parameter 1.bias changed"),
    ("untouched", spends_numpy, "NumPy's random state changed"),
    ("untouched", changes_data, "the data were changed in place"),
    ("repeatable", counts, "result differs by 1, 0 is allowed between two calls"),
    ("batch_split", centred, "result differs by .* between 3 examples and the same among 5"),
    ("batch_split", scalar, r"result has shape \(\) for 5 examples"),
]
ROWS = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("law", "instrument", "finding"), BAD_INSTRUMENTS)
def test_an_instrument_that_breaks_a_law_breaks_just_that_one(law, instrument, finding):
    def check(**options):
        return check_instrument(instrument, [], ROWS.clone(), **options)

    with pytest.raises(
        BrokenLaw, match=f"^{instrument.__name__} on .* breaks the law '{law}'"
    ) as b:
        check(per_example=law == "batch_split")
    assert b.match(finding)
    assert check(skip={law: "on purpose"}) == tuple(
        name for name in ("finite", "untouched", "repeatable") if name != law
    )


def test_an_instrument_that_minds_the_order_breaks_just_the_permutation():
    x = ROWS[:, 0].sort(dim=0).values

    def check(**options):
        return check_instrument(ordered, nn.Linear(3, 2), x, per_example=True, **options)

    with pytest.raises(BrokenLaw, match=r"'permutation': result differs by .* are permuted"):
        check()
    assert "batch_split" in check(skip={"permutation": "on purpose"})


def test_every_law_of_instruments_is_broken_by_something():
    assert {law for law, *_ in BAD_INSTRUMENTS} | {"permutation"} == set(INSTRUMENT_LAWS)


@pytest.mark.parametrize("data", [ROWS, ROWS.double(), (ROWS, torch.arange(5))])
def test_a_good_instrument_keeps_all_laws(data):
    models = {"mine": nn.Sequential(nn.Flatten(), nn.Linear(6, 2))}
    models["mine"].to((data[0] if isinstance(data, tuple) else data).dtype)
    before = snapshot(models["mine"])
    assert check_instrument(good, models, data, per_example=True) == tuple(INSTRUMENT_LAWS)
    assert not list(changes(before, snapshot(models["mine"])))


def test_awkward_models_are_awkward():
    zoo = awkward_models(ROWS, outputs=4)
    assert all(model(ROWS).shape == (5, 4) for model in zoo.values())
    assert len(list(zoo["tied"].parameters())) < len(
        list(zoo["tied"].named_parameters(remove_duplicate=False))
    )
    assert {p.requires_grad for p in zoo["frozen"].parameters()} == {True, False}
    assert not list(zoo["no_parameters"].parameters())
    assert {m.training for model in zoo.values() for m in model.modules()} == {True, False}
    assert all(p.grad is not None for model in zoo.values() for p in model.parameters())


def needs_parameters(model, data):
    if not list(model.parameters()):
        raise ValueError("model must have parameters")
    return good(model, data)


def test_an_awkward_model_can_be_left_out_with_a_reason():
    with pytest.raises(BrokenLaw, match=r"on no_parameters .*'finite': it raised ValueError"):
        check_instrument(needs_parameters, [], ROWS)
    check_instrument(needs_parameters, [], ROWS, skip={"no_parameters": "about parameters"})
    with pytest.raises(ValueError, match=r"skip must hold names of laws .*got 'zebra'"):
        check_instrument(good, [], ROWS, skip={"zebra": "why not"})
    with pytest.raises(ValueError, match=r"awkward models need rows of floats, got torch.int64"):
        check_instrument(good, [], torch.arange(6).reshape(2, 3))
    check_instrument(good, nn.Embedding(6, 2), torch.arange(6).reshape(6), outputs=None)
