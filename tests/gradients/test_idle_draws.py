"""Models that draw random numbers in evaluation mode: right if these move nothing, or refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function_unary

from tests.gradients.test_jacobian import by_rows
from tests.gradients.test_per_example import loop
from tests.gradients.test_whole_batches import Batch, data
from vademecum.gradients import gradient_norms, jacobian, per_example_gradients


class SkipsLayers(nn.Module):
    """As speech models of transformers do: chance decides in training, and is drawn always."""

    def __init__(self, *, by_hand):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)])
        self.scale = nn.Parameter(torch.ones(3)) if by_hand else None

    def forward(self, x):
        for layer in self.layers:
            chance = torch.rand([])
            if not (self.training and chance < 0.5):
                x = layer(x).tanh()
        return x if self.scale is None else (self.scale[None].pow(2) * x.mT.mT).cumsum(1)


@pytest.mark.parametrize("by_hand", [False, True])
def test_draws_that_nothing_takes(by_hand):
    net, (x, y) = SkipsLayers(by_hand=by_hand).double(), data()
    wanted, J, state = loop(net, x, y), by_rows(net, x), torch.get_rng_state()
    found = per_example_gradients(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(found, wanted)
    norms = gradient_norms(net, x, y, loss=F.cross_entropy)
    torch.testing.assert_close(norms, wanted.norm(dim=1))
    torch.testing.assert_close(jacobian(net, x).dense(), J)
    blocks = jacobian(net, x, wrt="x").blocks()
    assert torch.equal(torch.get_rng_state(), state)
    each = [torch.as_tensor(torch.autograd.functional.jacobian(net, one[None])) for one in x]
    torch.testing.assert_close(blocks, torch.stack(each)[:, 0, :, 0])
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


class Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, mask):
        return h * mask

    @staticmethod
    def backward(ctx, *g):
        return g[0], None


class MaskOfGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        ctx.mask = torch.rand(h.shape[1])
        return h.clone()

    @staticmethod
    def backward(ctx, *g):
        return g[0] * ctx.mask.to(g[0])


def for_the_way_back(h, x):
    mask, h = torch.rand(h.shape[1]), h.clone()
    if h.requires_grad:
        h.register_hook(lambda g: g * mask.to(g))
    return h


def in_place(h, x):
    h = h.clone()
    h[0].uniform_()
    return h


def written_out(h, x):
    mask = torch.empty(h.shape[1], dtype=h.dtype)
    torch.rand(h.shape[1], out=mask, dtype=h.dtype)
    return h * mask


def written_under_a_view(h, x):
    mask = torch.empty(h.shape[1], dtype=h.dtype)
    view = mask.view(-1)
    torch.rand(h.shape[1], out=mask, dtype=h.dtype)
    return h * view


def kept(h, x, kept=[]):  # noqa: B006
    last = kept.pop() if kept else 1.0
    kept.append(torch.rand([]))
    return h * last


def seeded(h, x):
    torch.manual_seed(int(1000 * h.detach().abs().sum()))
    return h


def resampled(h, x):
    """Draws where no function of torch is called, but a method of a generator."""
    state = torch.random.default_generator.clone_state()
    torch.random.default_generator.manual_seed(state.initial_seed() + 1)
    return h


def unseen(h, x):
    resampled(h, x)
    h.sum()
    return h


@torch.jit.script
def scripted(h: torch.Tensor, mask: torch.Tensor):
    return h * mask.ge(0).to(h.dtype)


def into_slices(h, x):
    h = h.clone()
    h[:, torch.randint(1, []) : 1] = 1
    return h


def number(h):
    """As functions of torch that are written in Python look for subclasses and modes."""
    if has_torch_function_unary(h):
        return handle_torch_function(number, (h,), h)
    return int(torch.randint(1, 2, []))


USED = {
    "compared": lambda h, x: h if torch.rand([]) < 1e-9 else 2 * h,
    "as NumPy's": lambda h, x: h * float(torch.rand(1).numpy()[0] > 0),
    "in a list": lambda h, x: h + torch.stack([torch.rand(h.shape[1])]).to(h) * 1e-300,
    "in a function of one's own": lambda h, x: Mask.apply(h, torch.rand(h.shape[1]).sign()),
    "after an idle one": lambda h, x: (torch.rand([]), h * torch.randint(1, 2, h.shape[1:]))[1],
    "before an idle one": lambda h, x: (torch.randint(1, 2, h.shape[1:]), torch.rand([]))[0] * h,
    "by name": lambda h, x: torch.mul(h, other=torch.randint(1, 2, h.shape[1:])),
    "in scripted code": lambda h, x: scripted(h, torch.rand(h.shape[1])),
    "mapped": lambda h, x: torch.vmap(torch.mul, (1, 0), 1)(h, torch.randint(1, 2, h.shape[1:])),
    "in a slice": lambda h, x: h[..., : torch.randint(h.shape[1], h.shape[1] + 1, [])],
    "into slices": into_slices,
    "in place": in_place,
    "written out": written_out,
    "written under a view": written_under_a_view,
    "kept": kept,
    "kept by a function of one's own": lambda h, x: MaskOfGradients.apply(h),
    "kept for the way back": for_the_way_back,
    "its kind by name": lambda h, x: h * torch.is_floating_point(input=torch.randn(1)),
    "its shape": lambda h, x: h * torch.randn(2).shape[0],
    "seeded": seeded,
    "its generator": resampled,
    "unseen": unseen,
    "a number": lambda h, x: h * number(h),
    "dropped": lambda h, x: F.dropout(h, 1e-9),
}


@pytest.mark.parametrize("name", USED)
def test_draws_that_something_takes(name):
    net, (x, y) = Batch(USED[name]).double(), data()
    with pytest.raises(ValueError, match="it draws random numbers"):
        per_example_gradients(net, x, y, loss=F.cross_entropy)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


class MaskedBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h.clone()

    @staticmethod
    def backward(ctx, *g):
        return g[0] * torch.rand(g[0].shape[1]).to(g[0])


@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
def test_draws_on_the_way_back(instrument):
    net, (x, y) = Batch(lambda h, x: MaskedBack.apply(h)).double(), data()
    state = torch.get_rng_state()
    for _ in range(2):
        with pytest.raises(ValueError, match="its way back draws random numbers"):
            instrument(net, x, y, loss=F.cross_entropy)
    assert torch.equal(torch.get_rng_state(), state)


class Ends(Batch):
    def forward(self, x):
        return resampled(super().forward(x), x)


class CallsItself(Batch):
    def forward(self, x, again=True):
        if not again:
            return super().forward(x)
        return self(x, again=False) * torch.randint(1, 2, [3])


@pytest.mark.parametrize("net", [Ends(lambda h, x: h), CallsItself(lambda h, x: h)])
def test_draws_around_what_is_watched(net):
    x, y = data()
    with pytest.raises(ValueError, match="it draws random numbers"):
        per_example_gradients(net.double(), x, y, loss=F.cross_entropy)


def test_draws_of_hooks_that_were_there_before():
    net, (x, y) = Batch(lambda h, x: h).double(), data()
    net.register_forward_pre_hook(lambda model, args: (args[0] * torch.rand([]).ge(0),))
    with pytest.raises(ValueError, match="it draws random numbers"):
        per_example_gradients(net, x, y, loss=F.cross_entropy)


def test_a_result_that_is_drawn():
    class Chance(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return {"z": x * self.w, "chance": torch.rand(len(x))}

    with pytest.raises(ValueError, match="it draws random numbers"):
        jacobian(Chance(), torch.ones(4, 3), output=lambda z: z["z"]).blocks()
