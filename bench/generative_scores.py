"""Rows of the room `generative`: scores, the reverse diffusion, its flow, and score matching."""

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.generative import (
    VPSDE,
    MixtureScore,
    log_likelihood,
    probability_flow,
    reverse_sde_sample,
    score_matching_loss,
)
from vademecum.models import mlp

__all__ = ["rows"]

PROCESS = VPSDE()
# The peers keep the error in the mean over a batch, we that of its worst example: at a tenth of our
# tolerance theirs is still off by more (7e-4 against 1e-4 for the flow of a mixture).
OURS, THEIRS = 1e-5, 1e-6


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    torch.manual_seed(0)
    yield from in_turn(
        _mixtures(device), _reverse(device), _flows(device), _likelihoods(device), _losses(device)
    )


def _law(k: int, d: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    root = torch.randn(k, d, d, device=device) / math.sqrt(d)
    weights = torch.full((k,), 1 / k, device=device)
    spread = root @ root.mT + 0.1 * torch.eye(d, device=device)
    return weights, 2 * torch.randn(k, d, device=device), spread


def _by_torch(weights: Tensor, means: Tensor, spread: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The score as one writes it: autograd of torch's log-density of the noised mixture."""
    from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

    eye = torch.eye(means.shape[1], device=means.device)

    def score(x: Tensor, t: Tensor) -> Tensor:
        s, e = (v.to(x) for v in PROCESS.marginal(t[0]))
        law = MixtureSameFamily(
            Categorical(weights), MultivariateNormal(s * means, s * s * spread + e * e * eye)
        )
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(law.log_prob(at).sum(), at)
        return found

    return score


def _mixtures(device: torch.device) -> Iterator[Row]:
    n = 10_000 if device.type == "cpu" else 100_000
    for k, d in ((8, 2), (10, 64)):
        law = _law(k, d, device)
        exact = MixtureScore(*law, process=PROCESS, predicts="score")
        x, t = torch.randn(n, d, device=device), torch.tensor(0.3, device=device).expand(n)
        yield Row(
            f"score of a mixture, k = {k}, d = {d}, n = {n:,}", _quietly(exact, x, t),
            {"autograd of torch.distributions": _quietly(_by_torch(*law), x, t)}, _close(1e-3),
        )  # fmt: skip


def _quietly(model: Callable[..., Tensor], *given: Tensor) -> Callable[[], Tensor]:
    def call() -> Tensor:
        with torch.no_grad():
            return model(*given)

    return call


class Timed(nn.Module):
    """A network that is told the time."""

    def __init__(self, d: int, width: int):
        super().__init__()
        self.net = mlp([d + 1, width, width, d], nn.SiLU)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """A score."""
        return self.net(torch.cat([x, t[:, None]], 1)) - x


def _reverse(device: torch.device) -> Iterator[Row]:
    """Steps of Euler and Maruyama, as the papers' code writes them."""
    models: dict[str, tuple[Any, int]] = {
        "exact score, d = 2": (
            MixtureScore(*_law(8, 2, device), process=PROCESS, predicts="score"), 2,
        ),
        "network, d = 64": (Timed(64, 256).to(device), 64),
    }  # fmt: skip
    n, steps = 2_000, 200
    for name, (model, d) in models.items():

        def ours(model: Any = model, d: int = d) -> Tensor:
            dice = torch.Generator(device).manual_seed(1)
            return reverse_sde_sample(model, (n, d), process=PROCESS, steps=steps, generator=dice)

        @torch.no_grad()
        def by_hand(model: Any = model, d: int = d) -> Tensor:
            dice = torch.Generator(device).manual_seed(1)
            x = torch.randn(n, d, device=device, generator=dice)
            h = (1 - 1e-3) / steps
            for i in range(steps):
                t = torch.full((n,), 1 - i * h, device=device)
                beta = (0.1 + 19.9 * t)[:, None]
                noise = torch.randn(n, d, device=device, generator=dice)
                drift = -0.5 * beta * x - beta * model(x, t)
                x = x - drift * h + beta.sqrt() * math.sqrt(h) * noise
            t = torch.full((n,), 1e-3, device=device)
            s, e = (v.to(x)[:, None] for v in PROCESS.marginal(t))
            return (x + e * e * model(x, t)) / s

        yield Row(f"reverse SDE, {steps} steps, n = {n:,}, {name}", ours,
                  {"loop by hand": by_hand}, _close(2e-2))  # fmt: skip


def _flows(device: torch.device) -> Iterator[Row]:
    """The same flow by torchdiffeq where there is such, and by SciPy, as score_sde does it."""
    n, d = 2_000, 2
    exact = MixtureScore(*_law(8, d, device), process=PROCESS, predicts="score")
    x = PROCESS.sample_prior((n, d), device=device)

    def slope(t: float, y: Tensor) -> Tensor:
        beta = 0.1 + 19.9 * t
        time = torch.full((len(y),), t, device=device)
        return -0.5 * beta * (y + exact(y, time))

    def ours() -> Tensor:
        return probability_flow(exact, x, process=PROCESS, tol=OURS).x

    peers: dict[str, Callable[[], Any]] = {"SciPy RK45": lambda: _scipy(slope, x)}
    if importlib.util.find_spec("torchdiffeq"):
        peers["torchdiffeq dopri5"] = lambda: _torchdiffeq(slope, x)
    yield Row(f"probability flow, n = {n:,}, d = {d}", ours, peers, _close(5e-3))


@torch.no_grad()
def _torchdiffeq(slope: Callable[[float, Tensor], Tensor], x: Tensor) -> Tensor:
    theirs: Any = importlib.import_module("torchdiffeq")
    times = torch.tensor([1.0, 1e-3], device=x.device)
    options = {"rtol": THEIRS, "atol": THEIRS, "method": "dopri5"}
    return theirs.odeint(lambda t, y: slope(float(t), y), x, times, **options)[-1]


@torch.no_grad()
def _scipy(slope: Callable[[float, Tensor], Tensor], x: Tensor) -> Tensor:
    """A batch as one long vector."""
    from scipy.integrate import solve_ivp

    def flat(t: float, y: Any) -> Any:
        at = torch.tensor(y, dtype=x.dtype, device=x.device).view_as(x)
        return slope(t, at).flatten().cpu().numpy()

    found = solve_ivp(flat, (1.0, 1e-3), x.flatten().cpu().numpy(), rtol=THEIRS, atol=THEIRS)
    return torch.tensor(found.y[:, -1], dtype=x.dtype, device=x.device).view_as(x)


def _likelihoods(device: torch.device) -> Iterator[Row]:
    """Exact divergence: all rows of the Jacobian in one pass, or one after the other."""
    n, d = 500, 8
    model = Timed(d, 64).to(device)
    x = torch.randn(n, d, device=device)

    def ours() -> Tensor:
        return log_likelihood(model, x, process=PROCESS, start=1e-3).log_prob

    def by_hand() -> Tensor:
        from scipy.integrate import solve_ivp

        def flat(t: float, y: Any) -> Any:
            state = torch.tensor(y, dtype=x.dtype, device=device).view(n, d + 1)
            at = state[:, :d].clone().requires_grad_()
            beta = 0.1 + 19.9 * t
            v = -0.5 * beta * (at + model(at, torch.full((n,), t, device=device)))
            rows = (torch.autograd.grad(v[:, i].sum(), at, retain_graph=True)[0] for i in range(d))
            trace = torch.stack([row[:, i] for i, row in enumerate(rows)]).sum(0)
            out = torch.cat([v.detach(), trace[:, None]], 1)
            return out.flatten().cpu().numpy()

        begin = torch.cat([x, x.new_zeros(n, 1)], 1).flatten().cpu().numpy()
        found = solve_ivp(flat, (1e-3, 1.0), begin, rtol=THEIRS, atol=THEIRS).y[:, -1]
        end = torch.tensor(found, dtype=x.dtype, device=device).view(n, d + 1)
        return PROCESS.prior_log_prob(end[:, :d]) + end[:, d]

    yield Row(f"log-likelihood, exact divergence, n = {n}, d = {d}", ours,
              {"SciPy RK45 and d backward passes": by_hand}, _close(2e-2))  # fmt: skip


def _losses(device: torch.device) -> Iterator[Row]:
    n, d = 512, 16
    net = mlp([d, 128, 128, d], nn.SiLU).to(device)
    x = torch.randn(n, d, device=device)
    weights = list(net.parameters())

    def implicit() -> Tensor:
        loss = score_matching_loss(net, x, method="implicit")
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])

    def by_hand() -> Tensor:
        at = x.clone().requires_grad_()
        s = net(at)
        rows = (torch.autograd.grad(s[:, i].sum(), at, create_graph=True)[0] for i in range(d))
        trace = torch.stack([row[:, i] for i, row in enumerate(rows)]).sum(0)
        loss = (s.square().sum(1) + 2 * trace).mean()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])

    yield Row(f"implicit score matching with gradient, n = {n}, d = {d}", implicit,
              {"autograd by hand": by_hand}, _close(1e-4))  # fmt: skip

    def sliced() -> Tensor:
        dice = torch.Generator(device).manual_seed(3)
        loss = score_matching_loss(net, x, method="sliced", law="gaussian", generator=dice)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])

    def sliced_by_hand() -> Tensor:
        dice = torch.Generator(device).manual_seed(3)
        v = torch.randn(1, n, d, device=device, generator=dice)[0]
        at = x.clone().requires_grad_()
        s = net(at)
        (jv,) = torch.autograd.grad((s * v).sum(), at, create_graph=True)
        loss = ((s * v).sum(1) ** 2 + 2 * (jv * v).sum(1)).mean()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)])

    yield Row(f"sliced score matching with gradient, n = {n}, d = {d}", sliced,
              {"autograd by hand": sliced_by_hand}, _close(1e-4))  # fmt: skip


def _close(tol: float) -> Callable[[Tensor, Tensor], None]:
    def agree(ours: Tensor, theirs: Tensor) -> None:
        off = float((ours - theirs).abs().max() / (1 + theirs.abs().max()))
        assert off < tol, off

    return agree
