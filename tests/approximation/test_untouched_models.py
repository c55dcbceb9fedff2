"""Instruments read a model in place: it is never copied, moved, cast or left in another mode."""

import threading

import pytest
import torch
from torch import nn

from vademecum.approximation.convex_split import dc_split
from vademecum.approximation.dying_units import dead_units
from vademecum.approximation.local_affine import local_affine_map
from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.random_features import fit_readout
from vademecum.approximation.regions import (
    certify_regions,
    count_regions,
    input_plane,
    linear_regions,
    regions_along,
)
from vademecum.foundations import Box
from vademecum.testing.laws import changes, snapshot

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
BOX = Box(-torch.ones(2), torch.ones(2))
INSTRUMENTS = {
    "linear_regions": lambda model: linear_regions(model, input_plane()),
    "certify_regions": lambda model: certify_regions(
        model, linear_regions(model, input_plane()), generator=torch.Generator()
    ),
    "regions_along": lambda model: regions_along(model, X[0], X[1]),
    "count_regions": count_regions,
    "activation_pattern": lambda model: activation_pattern(model, X),
    "local_affine_map": lambda model: local_affine_map(model, X),
    "dead_units": lambda model: dead_units(model, X, box=BOX),
    "dc_split": lambda model: dc_split(model, X),
    "fit_readout": lambda model: fit_readout(model, X, X[:, 0]),
}


class CannotBeCopied(nn.Sequential):
    """Holds a lock, as models with caches or loaders do."""

    def __init__(self):
        super().__init__(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5))
        self.lock = threading.Lock()


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_models_are_read_in_place(name):
    model = CannotBeCopied()
    before = snapshot(model)
    INSTRUMENTS[name](model)
    assert not list(changes(before, snapshot(model)))


def test_convex_parts_stay_as_the_model_was():
    model = CannotBeCopied()
    g, h, _ = dc_split(model, X)
    wanted = g(X) - h(X)
    torch.testing.assert_close(wanted, model.eval()(X).detach())
    with torch.no_grad():
        model.get_parameter("0.weight").add_(1)
    torch.testing.assert_close(g(X) - h(X), wanted)
    torch.testing.assert_close(g.train()(X) - h(X), wanted)


NARROW = [
    (lambda model: activation_pattern(model, X), "x must be torch.float64 as model is, or wider"),
    (lambda model: local_affine_map(model, X), "x must be torch.float64 as model is, or wider"),
    (lambda model: dead_units(model, X), "x must be torch.float64 as model is, or wider"),
    (lambda model: dc_split(model, X), "x must be torch.float64 as model is, or wider"),
]


@pytest.mark.parametrize(("instrument", "message"), NARROW)
def test_no_model_is_cast_to_fewer_digits(instrument, message):
    with pytest.raises(ValueError, match=message):
        instrument(CannotBeCopied().double())


ELSEWHERE = [
    (lambda model: linear_regions(model, input_plane()), "plane must be on meta as model is, got"),
    (lambda model: regions_along(model, X[0], X[1]), "a must be on meta as model is, got cpu"),
    (lambda model: activation_pattern(model, X), "x must be on meta as model is, got cpu"),
]


@pytest.mark.parametrize(("instrument", "message"), ELSEWHERE)
def test_no_model_is_moved(instrument, message):
    with pytest.raises(ValueError, match=message):
        instrument(nn.Linear(2, 3, device="meta"))


def test_progress_is_shown_on_request(capsys):
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    found = linear_regions(model, input_plane(), progress=False)
    assert capsys.readouterr().err == ""
    linear_regions(model, input_plane(), progress=True)
    assert f"{len(found.maps)}/? regions" in capsys.readouterr().err


def test_certificates_draw_from_the_generator_that_is_given():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    found = linear_regions(model, input_plane())
    state = torch.get_rng_state()
    certify_regions(model, found, generator=torch.Generator())
    assert torch.equal(torch.get_rng_state(), state)
    certify_regions(model, found)
    assert not torch.equal(torch.get_rng_state(), state)
