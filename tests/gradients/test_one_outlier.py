"""Models in which all depends on one example, wherever that is: never another gradient."""

from contextlib import suppress

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_per_example import loop
from vademecum.gradients._independent_rows import Plan
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.per_example import per_example_gradients
from vademecum.models import Entangled

D, LARGE = 4, 8.0
INSTRUMENTS = {
    "gradients": lambda net, x, y: per_example_gradients(net, x, y, loss=F.cross_entropy),
    "norms": lambda net, x, y: gradient_norms(net, x, y, loss=F.cross_entropy),
    "blocks": lambda net, x, y: jacobian(net, x).blocks(),
}


class ByTheLargest(nn.Module):
    """Divides by the largest entry of the batch, through which no derivatives come back."""

    def __init__(self, way):
        super().__init__()
        self.way, self.first, self.second = way, nn.Linear(D, D), nn.Linear(D, 3)
        self.position = nn.Parameter(torch.ones(D))

    def forward(self, x):
        x = x / x.detach().abs().max().clamp(min=4)
        h = torch.tanh(self.first(x) + (self.position if self.way == "shared" else 0))
        if self.way == "by hand":
            h = (self.second.weight[:, :D].T @ (self.second.weight @ h.mT)).mT
        return self.second(h)


def data(n, place):
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n, D, generator=generator, dtype=torch.float64)
    x[place, 1] = LARGE
    return x, torch.arange(n) % 3


EACH_PLACE = [(n, place) for n in (2, 3, 4, 5, 9) for place in range(n)]


@pytest.mark.parametrize("way", ["rules", "shared"])
@pytest.mark.parametrize("instrument", INSTRUMENTS)
@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_refused_wherever_it_is(instrument, n, place, way):
    """All others have other gradients in its company than by themselves."""
    net, (x, y) = ByTheLargest(way).double(), data(n, place)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        INSTRUMENTS[instrument](net, x, y)
    x[place, 1] = 0.5  # now no example matters to others
    for _ in range(2):
        INSTRUMENTS[instrument](net, x, y)
    x[place, 1] = LARGE
    with pytest.raises(ValueError, match="model must treat examples independently"):
        INSTRUMENTS[instrument](net, x, y)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("way", ["rules", "shared"])
@pytest.mark.parametrize("place", range(11))
def test_refused_in_every_portion(size, place, way, monkeypatch):
    monkeypatch.setattr(Plan, "step", lambda *_: size)
    net, (x, y) = ByTheLargest(way).double(), data(11, place)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        gradient_norms(net, x, y, loss=F.cross_entropy)


@pytest.mark.parametrize("way", ["rules", "shared", "by hand"])
@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_dense_jacobians_are_those_of_the_batch(n, place, way):
    net, (x, _) = ByTheLargest(way).double(), data(n, place)
    torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x))


@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_blocks_in_inputs_are_refused_wherever_it_is(n, place):
    net, (x, _) = ByTheLargest("rules").double(), data(n, place)
    with pytest.raises(ValueError, match="model must treat examples independently"):
        jacobian(net, x, wrt="x").blocks()
    torch.testing.assert_close(
        jacobian(net, x, wrt="x").dense(),
        torch.autograd.functional.jacobian(net, x).view(n * 3, n * D),
    )


class InHiding(ByTheLargest):
    """A layer of zeros gives the same outputs in any company."""

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.second(h * (1 + x.abs().max()))


@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_each_goes_by_itself_where_outputs_do_not_tell(n, place):
    net, (x, y) = InHiding("rules").double(), data(n, place)
    nn.init.zeros_(net.second.weight)
    wanted = loop(net, x, y)
    found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted)
    norms = gradient_norms(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(norms, wanted.norm(dim=1))


@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_dense_jacobians_where_outputs_do_not_tell(n, place):
    net, (x, _) = InHiding("rules").double(), data(n, place)
    nn.init.zeros_(net.second.weight)
    for _ in range(2):
        torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x))


class AnotherWay(ByTheLargest):
    """All go through one more layer if there is a large entry in the batch."""

    def forward(self, x):
        h = torch.tanh(self.first(x) + (self.position if self.way == "copied" else 0))
        if self.way == "shared":
            h = h * self.position.exp()
        if x.abs().max() > 4:
            h = self.first(h)
        return self.second(h.tanh())


@pytest.mark.filterwarnings("ignore::vademecum.models.SlowPathWarning")  # tensors decide
@pytest.mark.parametrize("way", ["rules", "copied", "shared"])
@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_where_one_example_has_others_go_another_way(n, place, way):
    net, (x, y) = AnotherWay(way).double(), data(n, place)
    for _ in range(2):
        torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x))
        with pytest.raises(ValueError, match="model must treat examples independently"):
            jacobian(net, x).blocks()
    wanted = loop(net, x, y)
    with pytest.raises(Entangled) if refused(n, place, way) else suppress(Entangled):
        torch.testing.assert_close(per_example_gradients(net, x, y, loss=F.cross_entropy), wanted)


def refused(n, place, way):
    """Or each is right by itself."""
    return way != "shared" and n > 3 and place in (0, n // 2, n - 1)


@pytest.mark.filterwarnings("ignore::vademecum.models.SlowPathWarning")  # tensors decide
@pytest.mark.parametrize("way", ["rules", "copied", "shared"])
@pytest.mark.parametrize(("n", "place"), EACH_PLACE)
def test_dense_jacobians_where_they_go_it_without_another_output(n, place, way):
    net, (x, _) = AnotherWay(way).double(), data(n, place)
    nn.init.zeros_(net.second.weight)
    for _ in range(2):
        torch.testing.assert_close(jacobian(net, x).dense(), by_rows(net, x))


@pytest.mark.filterwarnings("ignore::vademecum.models.SlowPathWarning")  # tensors decide
def test_a_number_of_examples_that_is_a_length_does_not_make_them_dependent():
    """Rows by themselves are those of all, so that they need not be made one by one from all."""
    net, (x, _) = AnotherWay("shared").double(), data(D, 0)
    x[0, 1] = 0.5
    torch.testing.assert_close(jacobian(net, x, memory=10**6).dense(), by_rows(net, x))
