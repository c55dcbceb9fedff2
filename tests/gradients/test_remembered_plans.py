"""What is remembered of a network changes no number: other outputs, weights and company."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.gradients import gradient_norms, jacobian, per_example_gradients

TURNS = range(3)  # the first of which is of a network that is not known


def rows_of(model, loss_of_one, n):
    """A row for each example, from a backward pass of its own."""
    found = []
    for i in range(n):
        g = torch.autograd.grad(loss_of_one(i), list(model.parameters()), materialize_grads=True)
        found.append(torch.cat([t.flatten() for t in g]))
    return torch.stack(found)


def jacobian_of(model, output):
    """A row for each entry of the output, from a backward pass of its own."""
    leaves, rows = list(model.parameters()), []
    for entry in output.flatten():
        g = torch.autograd.grad(entry, leaves, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([t.flatten() for t in g]))
    return torch.stack(rows)


class Positions(nn.Module):
    """Tokens and positions, which the model's own code brings together."""

    def __init__(self, meet):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(7, 3), nn.Embedding(9, 3)
        self.meet, self.last = meet, nn.Linear(3, 2)

    def forward(self, ids):
        h, p = self.tokens(ids), self.positions(torch.arange(ids.shape[1]))
        return self.last(self.meet(h, p).mean(1))


def unpacked(h, p):
    length, width = p.shape
    return h + p / (length * width)


def unseen(change):
    """Added after a change in place that autograd does not see."""

    def meet(h, p):
        change(p.detach())
        return h + p

    return meet


MEETINGS = {
    "scaled unseen": unseen(lambda p: p.mul_(2)),
    "without the first, unseen": unseen(lambda p: p[0].zero_()),
    "repeated": lambda h, p: h + p.repeat(len(h), 1, 1),
    "tiled": lambda h, p: h * p.tile(len(h), 1, 1),
    "contracted": lambda h, p: h * torch.einsum("ntd,td->nt", h, p)[..., None],
    "unpacked": unpacked,
    "expanded": lambda h, p: h + p.expand_as(h),
    "of other axes": lambda h, p: (h[:, None] + p[None, None])[:, 0] * p.sum(),
}


@pytest.mark.parametrize("n", [2, 4, 6])  # of four positions
@pytest.mark.parametrize("meeting", MEETINGS)
def test_positions_that_take_no_copies(meeting, n):
    model = Positions(MEETINGS[meeting]).double()
    ids, y = torch.randint(7, (n, 4)), torch.randn(n, 2).double()
    wanted = rows_of(model, lambda i: F.mse_loss(model(ids[i, None]), y[i, None]), n)
    whole = jacobian_of(model, model(ids))
    for _ in TURNS:
        found = per_example_gradients(model, ids, y, loss=F.mse_loss)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(
            gradient_norms(model, ids, y, loss=F.mse_loss), wanted.norm(dim=1)
        )
        torch.testing.assert_close(jacobian(model, ids).dense(), whole)


class Trimmed(nn.Module):
    """Leaves out what is padding in all examples, as its outputs show."""

    def __init__(self):
        super().__init__()
        self.tokens, self.last = nn.Embedding(9, 3, padding_idx=0), nn.Linear(3, 2)

    def forward(self, ids):
        length = int((ids != 0).sum(1).max())
        return self.last(self.tokens(ids[:, :length]))


@pytest.mark.parametrize("memory", [None, 2**14])
def test_outputs_that_are_longer_in_other_company(memory):
    model, full = Trimmed().double(), torch.randint(1, 9, (7, 5))
    short = full.where(torch.arange(5) < 3, 0)
    mixed = short.clone()
    mixed[1] = full[1]  # which is not among the three that a network is known by
    for _ in TURNS:
        for ids in (full, short):
            J = jacobian(model, ids, memory=memory)
            torch.testing.assert_close(J.dense(), jacobian_of(model, model(ids)))
        wanted = jacobian_of(model, model(mixed))
        assert jacobian(model, mixed).shape == wanted.shape
        with pytest.raises(ValueError, match="independently"):
            jacobian(model, mixed, memory=memory).blocks()
        if memory is None:
            torch.testing.assert_close(jacobian(model, mixed).dense(), wanted)
        u = torch.randn(len(wanted)).double()
        torch.testing.assert_close(jacobian(model, mixed).T @ u, wanted.T @ u)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("layer", [nn.Tanh, nn.PReLU])  # by rules, and by torch.func
def test_a_jacobian_is_that_of_the_weights_it_was_made_of(layer, known):
    model, x = nn.Sequential(nn.Linear(4, 5), layer(), nn.Linear(5, 2)).double(), torch.randn(6, 4)
    x = x.double()
    if known:
        jacobian(model, x).dense()
    J, before = jacobian(model, x), jacobian_of(model, model(x))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    torch.testing.assert_close(J.blocks().flatten(0, 1), before)
    torch.testing.assert_close(J.dense(), before)
    torch.testing.assert_close(J @ torch.eye(J.shape[1]).double(), before)


class Several(nn.Module):
    """Gives several tensors by name."""

    def __init__(self):
        super().__init__()
        self.first, self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(3, 3)

    def forward(self, x):
        h = self.first(x).tanh()
        return {"one": self.one(h), "two": self.two(h)}


@pytest.mark.parametrize("n", [3, 6])
def test_other_outputs_of_one_network(n):
    model, x, y = Several().double(), torch.randn(n, 4).double(), torch.randn(n, 2).double()

    def loss(z, y):
        return F.mse_loss(z["one"], y) + z["two"].square().mean()

    def everything(z):
        return z

    wanted = rows_of(model, lambda i: loss(model(x[i, None]), y[i, None]), n)
    for _ in TURNS:
        found = per_example_gradients(model, x, y, loss=loss, output=everything)
        torch.testing.assert_close(found, wanted)
        found = gradient_norms(model, x, y, loss=loss, output=everything)
        torch.testing.assert_close(found, wanted.norm(dim=1))
        for name in ("one", "two"):
            found = jacobian(model, x, output=name).dense()
            torch.testing.assert_close(found, jacobian_of(model, model(x)[name]))


class Shifted(nn.Module):
    """Moves its outputs, behind all layers, where there are many examples."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(x) + 0.1 * (len(x) > 3)


@pytest.mark.parametrize("known", [False, True])
def test_outputs_that_move_in_large_company_are_refused(known):
    model, x, y = Shifted().double(), torch.randn(6, 4).double(), torch.randn(6, 2).double()
    if known:
        found = per_example_gradients(model, x[:3], y[:3], loss=F.mse_loss)
        one = rows_of(model, lambda i: F.mse_loss(model(x[i, None]), y[i, None]), 3)
        torch.testing.assert_close(found, one)
    for instrument in (per_example_gradients, gradient_norms):
        with pytest.raises(ValueError, match="independently"):
            instrument(model, x, y, loss=F.mse_loss)
    with pytest.raises(ValueError, match="independently"):
        jacobian(model, x).blocks()
    torch.testing.assert_close(jacobian(model, x).dense(), jacobian_of(model, model(x)))


@pytest.mark.parametrize("instrument", [per_example_gradients, gradient_norms])
def test_positions_that_move_in_large_company_are_refused(instrument):
    model = Positions(lambda h, p: h + p + 0.1 * (len(h) > 3)).double()
    ids, y = torch.randint(7, (6, 4)), torch.randn(6, 2).double()
    for _ in TURNS:
        with pytest.raises(ValueError, match="independently"):
            instrument(model, ids, y, loss=F.mse_loss)
        instrument(model, ids[:3], y[:3], loss=F.mse_loss)  # of which nothing is wrong
