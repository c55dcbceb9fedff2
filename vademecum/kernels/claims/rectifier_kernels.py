"""Kernels of rectifiers: one layer of them, and their derivatives."""

import math
from itertools import product
from typing import Literal

import numpy as np
import torch

from vademecum.claims import at_least, claim, equals
from vademecum.kernels import ArcCosineKernel, gram


def polar(order: int, theta: float) -> float:
    r"""$\mathbb E (w^\top u)_+^n (w^\top v)_+^n$ for unit vectors, by quadrature over the plane.

    The angular part is a trigonometric polynomial, for which 24 Gaussian nodes leave nothing.
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    low, high = theta - math.pi / 2, math.pi / 2  # where both are positive
    phi = low + (high - low) * (nodes + 1) / 2
    both = (np.cos(phi) * np.cos(phi - theta)) ** order
    angular = float(weights @ both) * (high - low) / 2
    r, w = np.polynomial.laguerre.laggauss(8)  # of r^2 / 2
    radial = float(w @ (2 * r) ** order)
    return radial * angular / (2 * math.pi)


@claim(
    by="identity",
    sources=("D-378", "C-268"),
    budget=0.4,
    short=r"w \sim N(0, I): \mathbb E(w^\top x)_+ (w^\top x')_+ ="
    r" \tfrac{\|x\|\|x'\|}{2\pi} (\sin\theta + (\pi - \theta) \cos\theta)",
)
def arc_cosine_kernel(angle: Literal["pi - theta", "theta"] = "pi - theta", halves: int = 2):
    r"""Arc-cosine kernel of ReLU networks.

    For $w \sim N(0, I)$ and the angle $\theta$ between $x$ and $x'$,
    $\mathbb E[(w^\top x)_+ (w^\top x')_+] = \frac{\|x\| \|x'\|}{2 \pi} (\sin \theta + (\pi -
    \theta) \cos \theta)$ and $\mathbb E[1_{w^\top x > 0}\, 1_{w^\top x' > 0}] = \frac{\pi -
    \theta}{2 \pi}$, orders 1 and 0; so $\|x\|^2 / 2$ and $1/2$ for $\theta = 0$, and 0 for $\theta
    = \pi$. Being expectations of products, both are kernels.

    Formula and `ArcCosineKernel` are compared with quadrature in polar coordinates of the plane of
    $x$ and $x'$, which are drawn with a known angle in 3 and 5 dimensions. Order 2, whose kernel
    the room has as well, is compared without the formula.

    Knobs:
        angle: What stands before the cosine, and for order 0 in the numerator.
        halves: The 2 in $2 \pi$.
    """
    angles = [0.0, math.pi, math.pi / 2, 1e-5, *(math.pi * torch.rand(6)).tolist()]
    for d, theta in product((3, 5), angles):
        Q = torch.linalg.qr(torch.randn(d, 2)).Q.T
        a, b = (0.2 + 2 * torch.rand(2)).tolist()
        x, z = a * Q[:1], b * (math.cos(theta) * Q[:1] + math.sin(theta) * Q[1:])
        turn = math.pi - theta if angle == "pi - theta" else theta
        formulas = [turn, math.sin(theta) + turn * math.cos(theta)]
        for order in (0, 1, 2):
            size = (a * b) ** order
            wanted = size * polar(order, theta)
            found = ArcCosineKernel(order=order)(x, z)
            yield equals("kernel", found, wanted, tol=1e-10, order=order, theta=theta)
            if order < 2:
                formula = size * formulas[order] / (halves * math.pi)
                yield equals("formula", formula, wanted, tol=1e-10, order=order, theta=theta)
        for order, moment in ((0, 1.0), (1, a * a), (2, 3 * a**4)):
            own = ArcCosineKernel(order=order).diagonal(x)
            yield equals("half of the moment", own, moment / 2, tol=1e-12, order=order)
    for n, d in ((12, 3), (25, 4)):
        for order in (0, 1, 2):
            lam = torch.linalg.eigvalsh(gram(ArcCosineKernel(order=order), torch.randn(n, d)))
            yield at_least("smallest eigenvalue, in the largest", lam[0] / lam[-1], 0.0, tol=1e-12)


arc_cosine_kernel.foil(r"$\theta \cos \theta$ for $(\pi - \theta) \cos \theta$", angle="theta")
arc_cosine_kernel.foil(r"$\pi$ for $2 \pi$", halves=1)
