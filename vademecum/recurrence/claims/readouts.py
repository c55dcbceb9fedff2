"""Readouts of linear states: what is linear stays so until the output map."""

from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from vademecum.claims import Evidence, claim, equals
from vademecum.recurrence import LRU, LinearRecurrence

LENGTH = 8


def delays(count: int) -> LinearRecurrence:
    """A state that holds the last inputs: one enters, the others move on by one place."""
    shift = torch.eye(count).roll(1, 0).tril()
    return LinearRecurrence(shift, torch.eye(count)[:, :1], torch.eye(count)).requires_grad_(False)


def explained(states: np.ndarray, target: np.ndarray) -> float:
    """The share of a target's variance that a linear function of states and a constant explains."""
    features = np.concatenate((states, np.ones((len(states), 1))), 1)
    fitted = features @ np.linalg.lstsq(features, target, rcond=None)[0]
    return 1 - float(((target - fitted) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def two_delays(activation: type[nn.Module]) -> LRU:
    r"""A unit whose perceptron reads $u = x^{t-1} + x^{t-2}$ and gives $|u| - 1$, with ReLU.

    Eigenvalues at the corners of an octagon have powers $\lambda_j^k$ that form a Fourier matrix,
    so a linear readout of the states picks any of the last eight inputs. The perceptron has the
    units $u$, $-u$ and $x + 1$; the last one takes the residual away. Its inputs are three copies.
    """
    net = LRU(3, LENGTH, activation=activation).requires_grad_(False)
    layer: Any = net.layers[0]
    values = torch.polar(torch.full((LENGTH,), 0.9), 2 * torch.pi * torch.arange(LENGTH) / LENGTH)
    powers = values ** torch.arange(LENGTH)[:, None]
    wanted = torch.zeros(LENGTH, dtype=powers.dtype)
    wanted[1] = wanted[2] = 1
    picks = torch.linalg.solve(powers, wanted)
    pairs = torch.stack((picks.real, -picks.imag), 1).flatten()
    layer.nu.copy_((-values.abs().log()).log())
    layer.theta.copy_(values.angle())
    layer.log_gamma.zero_()
    layer.B.zero_()[0::2, 0] = 1
    layer.C.copy_(torch.stack((pairs, -pairs, 0 * pairs)))
    layer.D.copy_(torch.tensor([0.0, 0.0, 1.0]))
    layer.bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    layer.W.zero_()[0] = torch.tensor([1.0, 1.0, -1.0])
    return net


@claim(
    by="identity", sources=("A-243",), budget=0.5,
    short=r"y^t = \mathrm{MLP}(\mathrm{Re}(G \xi^t));\ x^s = \pm 1: x^{t-1}"
    r" x^{t-2} = u_+ + (-u)_+ - 1,\ u = x^{t-1} + x^{t-2}",
)  # fmt: skip
def nonlinear_readout(
    activation: Literal["relu", "none"] = "relu", constant: int = -1, repaired: float = 0.0
) -> Iterator[Evidence]:
    r"""A linear recurrence needs a nonlinear readout.

    With a linear state the expressive power sits in the output map
    $y^t = \mathrm{MLP}(\operatorname{Re}(G \xi^t))$: a linear readout computes linear functions of
    the inputs so far, and no others. For independent $\pm 1$ inputs the product $x^{t-1} x^{t-2}$
    is uncorrelated with every linear function of the past, but equals
    $\mathrm{relu}(u) + \mathrm{relu}(-u) - 1$ with $u = x^{t-1} + x^{t-2}$.

    *Proof.* $|u|$ is 2 where the signs agree, else 0; and the mean of $x^{t-1} x^{t-2} x^s$ is 0
    for every $s$. Checked for all $2^8$ sequences of eight signs: least squares on a state of two,
    and of all eight delays; and a linear recurrent unit with two ReLUs.

    Knobs:
        activation: What the perceptron of the unit applies.
        constant: What is added to the two ReLUs.
        repaired: The share of the product's variance that a linear readout of all eight delays is
            said to explain.
    """
    x = torch.tensor(list(product((-1.0, 1.0), repeat=LENGTH)))[:, :, None]
    target = x[:, 1:-1] * x[:, :-2]  # at the steps 3 to 8
    u = x[:, 1:-1] + x[:, :-2]
    yield equals("two ReLUs and a constant", u.relu() + (-u).relu() + constant, target, tol=0.0)
    shares = {count: explained(delays(count)(x).state.numpy(), target[:, -1, 0].numpy())
              for count in (3, LENGTH)}  # fmt: skip
    yield equals("share explained from two delays", shares[3], 0.0, tol=1e-12)
    yield equals("share explained from all delays", shares[LENGTH], repaired, tol=1e-12)
    net = two_delays(nn.ReLU if activation == "relu" else nn.Identity)
    found = net(x.expand(-1, -1, 3)).output[:, 2:, :1]
    yield equals("product, by a unit with ReLUs", found, target, tol=1e-11)
    plain = LRU(3, 5, layers=2, activation=nn.Identity).requires_grad_(False)
    one, other, zero = torch.randn(2, 7, 3), torch.randn(2, 7, 3), torch.zeros(2, 7, 3)
    sums = plain(2 * one - 3 * other).output - plain(zero).output
    parts = [plain(z).output - plain(zero).output for z in (one, other)]
    yield equals("superposition without nonlinearity", sums, 2 * parts[0] - 3 * parts[1], tol=1e-11)


nonlinear_readout.foil("the perceptron without its ReLUs", activation="none")
nonlinear_readout.foil("without the constant", constant=0)
nonlinear_readout.foil("a larger linear state repairs the linear readout", repaired=1.0)
