"""Radii of linear classifiers: when a perturbation can change the answer."""

from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.robustness import linear_radius

EXPONENTS: dict[Any, float] = {"l1": 1.0, "l2": 2.0, "linf": torch.inf}


def shortest(w: np.ndarray, gap: float, norm: str) -> np.ndarray:
    """The shortest r with w^T r = gap: by least squares, or by linear programming."""
    d = len(w)
    if norm == "l2":
        return np.linalg.lstsq(w[None], np.array([gap]), rcond=None)[0]
    if norm == "l1":  # r = a - b with a, b >= 0
        found = linprog(np.ones(2 * d), A_eq=np.concatenate([w, -w])[None], b_eq=[gap])
        return found.x[:d] - found.x[d:]
    eye, ones = np.eye(d), np.ones((d, 1))
    found = linprog(  # |r_i| <= t
        np.concatenate([np.zeros(d), [1.0]]),
        A_ub=np.block([[eye, -ones], [-eye, -ones]]),
        b_ub=np.zeros(2 * d),
        A_eq=np.concatenate([w, [0.0]])[None],
        b_eq=[gap],
        bounds=[(None, None)] * d + [(0, None)],
    )
    return found.x[:d]


def length(r: Any, norm: str) -> Tensor:
    """The norms of the rows."""
    return torch.linalg.vector_norm(torch.as_tensor(r), EXPONENTS[norm], dim=-1)


def sphere(n: int, d: int, norm: str) -> Tensor:
    """Random directions of length 1; for the cube and the octahedron half of them extreme."""
    r = torch.randn(n, d)
    if norm == "linf":
        r[::2] = r[::2].sign()
    if norm == "l1":
        r[::2] = torch.eye(d)[torch.randint(d, (len(r[::2]),))] * r[::2, :1].sign()
    return r / length(r, norm)[:, None]


@claim(
    by="identity",
    sources=("A-321", "B-439", "B-440", "B-441", "C-336"),
    short=r"\inf\{\|r\|_p : k(x + r) \ne k(x)\} = \frac{|w^\top x + b|}{\|w\|_q},"
    r" \quad \tfrac1p + \tfrac1q = 1",
)
def adversarial_example(exponent: Literal["dual", "same"] = "dual", d: int = 6):
    r"""Adversarial example.

    An adversarial example for $x$ is $x + r$ with $\|r\|_p$ small and a changed prediction, $k(x +
    r) \ne k(x)$; the $\ell_p$ norm stands proxy for similarity. For a binary linear classifier
    $\operatorname{sign}(w^\top x + b)$ perturbations with $\|r\|_p \le \epsilon$ can reach the
    decision boundary iff $\epsilon \ge |w^\top x + b| / \|w\|_q$ with the dual exponent. With $k$
    classes it is the least such quotient over the faces $f_c = f_i$ of the region of the class $c$.

    Checked for $p = 1, 2, \infty$ against solvers (linear programs, least squares), for one score
    and for four classes: 1.001 times the shortest perturbation changes the class, and none of
    10,000 of 0.999 times its length does, half of which are corners of the ball.

    Knobs:
        exponent: Of the norm of the weights in the formula.
        d: The dimension, and one more for several classes.
    """
    for norm in EXPONENTS:
        w, b, x = torch.randn(d), torch.randn(()), torch.randn(3, d)
        gap = x @ w + b
        formula = gap.abs() / torch.linalg.vector_norm(w, EXPONENTS[norm])
        found = linear_radius(w, b, x, norm=norm) if exponent == "dual" else formula
        r = torch.as_tensor(np.stack([shortest(w.numpy(), -float(g), norm) for g in gap]))
        at: Any = {"norm": norm, "d": d}
        yield equals("radius against a solver", found, length(r, norm), tol=1e-7, **at)
        beyond = gap.sign() * ((x + 1.001 * r) @ w + b)
        yield at_most("score beyond the radius, times its sign", beyond, 0.0, tol=0.0, **at)
        near = 0.999 * found[0] * sphere(10_000, d, norm)
        kept = gap[0].sign() * ((x[0] + near) @ w + b)
        yield at_least("score within the radius, times its sign", kept, 0.0, tol=0.0, **at)
    yield from several_classes(exponent, d + 1)


def several_classes(exponent: str, d: int):
    """The same with four classes, whose regions are polyhedra."""
    for norm in EXPONENTS:
        W, b, x = torch.randn(4, d), torch.randn(4), torch.randn(2, d)
        scores = x @ W.T + b
        top = scores.argmax(1)
        faces = torch.zeros(2, 4, d)
        for i, c in enumerate(top.tolist()):
            for j in range(4):
                w, gap = (W[j] - W[c]).numpy(), float(scores[i, c] - scores[i, j])
                faces[i, j] = torch.as_tensor(shortest(w, gap, norm)) if j != c else torch.inf
        lengths = length(faces, norm)
        same = torch.linalg.vector_norm(W[top][:, None] - W, EXPONENTS[norm], dim=-1)
        formula = (scores.amax(1, keepdim=True) - scores) / same  # 0 / 0 at the class itself
        formula = formula.nan_to_num(nan=torch.inf).amin(1)
        found = linear_radius(W, b, x, norm=norm) if exponent == "dual" else formula
        at: Any = {"norm": norm, "classes": 4}
        yield equals("radius against a solver", found, lengths.amin(1), tol=1e-7, **at)
        beyond = x + 1.001 * faces[torch.arange(2), lengths.argmin(1)]
        changed = ((beyond @ W.T + b).argmax(1) != top).int()
        yield equals("whether the class changes beyond the radius", changed, 1, **at)
        near = 0.999 * found[0] * sphere(10_000, d, norm)
        kept = ((x[0] + near) @ W.T + b).argmax(1)
        yield equals("class within the radius", kept, torch.full_like(kept, int(top[0])), **at)


adversarial_example.foil(
    "the same exponent in place of the dual one",
    exponent="same",
    refuted_by="radius against a solver",
)
