"""Transfer: adversarial examples that other networks fall for."""

import math
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import multivariate_normal
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, claim, equals
from vademecum.robustness import transfer_matrix

REPEATS, TRAIN, TEST, D = 20, 400, 300, 50
LOUD = 1.5  # noise that can be told from none


def fitted(z: Tensor, steps: int = 60, eta: float = 0.5) -> Tensor:
    """Logistic regression on signed examples y x of many data sets, by gradient descent."""
    w = torch.zeros(len(z), z.shape[2])
    for _ in range(steps):
        push = torch.sigmoid(-(z @ w[..., None])[..., 0])
        w = w + eta * (push[:, None] @ z)[:, 0] / z.shape[1]
    return w


def as_model(w: Tensor) -> nn.Linear:
    """The linear classifier with two logits whose difference is w x."""
    model = nn.Linear(D, 2, bias=False)
    model.weight.data = torch.stack([-w, w]) / 2
    return model


def exact_error(a: Tensor, b: Tensor, mu: Tensor, epsilon: float) -> float:
    """How often b errs on new examples moved against a, where a had them right."""
    a, b = a / a.norm(), b / b.norm()
    rho = float(a @ b)
    at_a, at_b = float(a @ mu), float(b @ mu)
    shift = epsilon * float(b @ a.sign())
    if rho > 1 - 1e-9:  # one model
        return float(ndtr(shift - at_b))
    cov: Any = np.array([[1.0, rho], [rho, 1.0]])
    law = multivariate_normal(np.zeros(2), cov)
    both_wrong = law.cdf([-at_a, -at_b])
    moved_wrong = ndtr(shift - at_b) - law.cdf([-at_a, shift - at_b])
    return float(both_wrong + moved_wrong)


@claim(
    by="sampling",
    sources=("C-349",),
    budget=1.0,
    short=r"\text{logistic regression: } P(f_2(x + r_1) \ne y) > 3 P(f_2(x +"
    r" s) \ne y), r_1 \text{ made for } f_1, s \text{ random}",
)
def transfer_attack(
    source: Literal["trained", "random", "noise"] = "trained", epsilon: float = 0.3
):
    r"""Adversarial examples transfer: made for one model, they mislead another one.

    Perturbations made for one model often mislead another one that was trained for the same task,
    which makes attacks on black boxes possible; random perturbations of the same size do far less.

    *Checked* for pairs of logistic regressions trained on 400 examples each of the Gaussian classes
    $\pm \mu$, $\|\mu\| = 2$, in 50 dimensions: of examples that `fgsm` made for the first with
    $\epsilon = 0.3$ the second gets more than three times as many wrong as under random signs of
    the same size, in the mean over 20 pairs, and all errors, also under noise of 1.5, are what the
    normal law of the scores says. For deep networks it is quoted.

    Knobs:
        source: What the perturbations are made for: the first model, one with random weights, or
            none.
        epsilon: The size of the perturbations.
    """
    mu = torch.randn(REPEATS, D)
    mu = 2 * mu / mu.norm(dim=1, keepdim=True)
    w = fitted((mu[:, None, None] + torch.randn(REPEATS, 2, TRAIN, D)).flatten(0, 1))
    w = w.view(REPEATS, 2, D)
    errors, expected = torch.zeros(2, REPEATS, 3, 3)
    loud, wanted = torch.zeros(2, REPEATS)
    for i in range(REPEATS):
        y = torch.arange(TEST) % 2
        x = (2 * y - 1)[:, None] * mu[i] + torch.randn(TEST, D)
        odd = torch.randn(D)
        models = {"first": as_model(w[i, 0]), "second": as_model(w[i, 1]), "random": as_model(odd)}
        found = transfer_matrix(models, x, y, norm="linf", radius=epsilon, box=None)
        errors[i] = torch.stack([found.error[:, 1], found.clean, found.noise])
        signs = torch.randint(0, 2, (500, D)) * 2.0 - 1
        for j, one in enumerate((w[i, 0], w[i, 1], odd)):
            mean, spread = float(one @ mu[i]), one.norm()
            expected[i, 0, j] = exact_error(one, w[i, 1], mu[i], epsilon)
            expected[i, 1, j] = float(ndtr(-mean / float(spread)))
            expected[i, 2, j] = torch.special.ndtr(-(mean + epsilon * signs @ one) / spread).mean()
        louder: Any = {"norm": "linf", "radius": LOUD, "box": None}
        loud[i] = transfer_matrix([models["second"]], x, y, **louder).noise[0]
        shifted = (w[i, 1] @ mu[i] + LOUD * signs @ w[i, 1]) / w[i, 1].norm()
        wanted[i] = torch.special.ndtr(-shifted).mean()
    noise = float(errors[:, 2, 1].mean())
    made = {"trained": float(errors[:, 0, 0].mean()), "random": float(errors[:, 0, 2].mean())}
    yield at_least("error on transferred examples", made.get(source, noise), 3 * noise)
    words = ("error of the second on examples made", "error as they are", "error under noise")
    for k, what in enumerate(words):
        for j, name in enumerate(("first", "second", "random")):
            yield _agree(what, errors[:, k, j], expected[:, k, j], name)
    yield _agree("error under louder noise", loud, wanted, "second")


def _agree(what: str, errors: Tensor, expected: Tensor, name: str) -> Evidence:
    """The mean error is what is expected, up to five standard errors at most."""
    p = float(expected.mean())
    wide = 5 * math.sqrt(p * (1 - p) / (REPEATS * TEST))
    return equals(what, float(errors.mean()), p, tol=wide, model=name)


transfer_attack.foil("made for random weights they do no more than noise", source="random")
transfer_attack.foil("noise of the same size does as much", source="noise")
