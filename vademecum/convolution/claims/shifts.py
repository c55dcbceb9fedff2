"""Convolutions commute with shifts: no other linear maps do."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.arrays import rational_rank
from vademecum.claims import Evidence, claim, equals
from vademecum.convolution import convolve, impulse_response
from vademecum.convolution.claims._signals import crooked, whole

Map = Callable[[Tensor], Tensor]


@claim(
    by="identity", sources=("A-129", "B-262", "B-264", "B-273", "D-190"), budget=0.5,
    short=r"f_\Delta * h = (f * h)_\Delta,\quad f_\Delta(t) = f(t + \Delta)",
)  # fmt: skip
def shift_equivariance(
    layer: Literal["convolution", "dense", "multiplication", "stride 2"] = "convolution",
    padding: Literal["circular", "zeros"] = "circular",
):
    r"""Convolution is shift-equivariant.

    With $f_\Delta(t) = f(t + \Delta)$ an operator $T$ is shift-equivariant if $T(f_\Delta) =
    (T f)_\Delta$ for all $f$ and $\Delta$ (signal processing says shift-invariant). Convolution
    with any kernel has this property, $f_\Delta * h = (f * h)_\Delta$, so a stack of stride-1
    convolutions and pointwise nonlinearities shifts its feature maps with the input: exactly with
    circular boundaries, away from the border with zero padding. All shifts are tried; sums of whole
    numbers are exact.

    Knobs:
        layer: What is said to be equivariant.
        padding: What stands beyond the border of an image in a network that is said to be
            equivariant everywhere.
    """
    for n, k in ((7, 3), (6, 4), (8, 8)):
        h, dense, factor = crooked(k), whole(n, n), torch.arange(1, n + 1)
        maps: dict[str, Map] = {
            "convolution": lambda f, h=h: convolve(f, h, mode="circular"),
            "dense": lambda f, A=dense: A @ f,
            "multiplication": lambda f, c=factor: c * f,
            "stride 2": lambda f, h=h: convolve(f, h, mode="circular")[::2],
        }
        f, T = crooked(n), maps[layer]
        for shift in range(n):
            found, stated = T(f.roll(-shift)), T(f).roll(-shift)
            yield equals("image of a shifted signal", found, stated, n=n, k=k, shift=shift)
    conv = {"padding": "same", "padding_mode": padding, "bias": False}
    net = nn.Sequential(nn.Conv2d(2, 3, 3, **conv), nn.ReLU(), nn.Conv2d(3, 2, (3, 5), **conv))
    for p in net.parameters():
        p.data = whole(*p.shape).double()
    x = whole(1, 2, 8, 7).double()
    moved = [(x.roll((i, j), (2, 3)), (i, j)) for i in range(8) for j in range(7)]
    with torch.no_grad():
        found = torch.cat([net(y) for y, _ in moved])
        stated = torch.cat([net(x).roll(shift, (2, 3)) for _, shift in moved])
        yield equals("features of a shifted image", found, stated, tol=0.0)
        yield _away_from_the_border(net)


def _away_from_the_border(net: nn.Sequential) -> Evidence:
    """Zero padding: shift by (2, 1), and compare where no window of either layer meets zeros."""
    x = whole(1, 2, 12, 13).double()
    for conv in (net[0], net[2]):
        setattr(conv, "padding_mode", "zeros")  # noqa: B010
    before, after = net(x[:, :, :-2, :-1]), net(x[:, :, 2:, 1:])
    inner = before[:, :, 2 + 2 : -2, 3 + 1 : -3], after[:, :, 2 : -2 - 2, 3 : -3 - 1]
    return equals("features away from the border", *inner, tol=0.0)


for _layer in ("dense", "multiplication", "stride 2"):
    shift_equivariance.foil(f"no convolution of stride 1: {_layer}", layer=_layer)
shift_equivariance.foil("zeros at the border do not move along", padding="zeros")


@claim(
    by="identity", sources=("A-122", "B-265", "D-187"), budget=0.7,
    short=r"T f_\Delta = (T f)_\Delta \ \forall \Delta \iff T f = f * h,\ h = T \delta",
)  # fmt: skip
def linear_equivariant_is_convolution(
    map: Literal["linear", "maximum"] = "linear",
    kernel: Literal["impulse", "function"] = "impulse",
):
    r"""Linear shift-equivariant operators are convolutions.

    On finitely supported sequences, and on cyclic signals $\mathbb{Z}_n$, a linear operator
    commutes with all shifts if and only if it is convolution with a kernel, namely its impulse
    response $h = T \delta$; on $\mathbb{Z}_n$ these are exactly the circulant matrices. On the real
    line the same holds for continuous operators on suitable spaces, with $h$ in general a
    distribution: the identity has $h = \delta$.

    Checked on $\mathbb{Z}_n$ for $n = 2, \dots, 8$: the matrices that commute with the shift $S$
    have dimension $n$, by elimination in fractions, and are spanned by its powers; the mean of
    $S^{-k} A S^k$ over all $k$ is the circulant matrix of its first column. Quoted on the line.

    Knobs:
        map: A linear map that commutes with shifts, or the larger one of two neighbours, which
            also commutes with them.
        kernel: What the identity is said to be the convolution with: an impulse, or an integrable
            function, here a narrow Gaussian.
    """
    for n in range(2, 9):
        S = np.roll(np.eye(n, dtype=int), 1, 0)
        commutator = np.kron(np.eye(n, dtype=int), S.T) - np.kron(S, np.eye(n, dtype=int))
        rank = rational_rank(commutator.tolist())
        yield equals("dimension of the matrices that commute with S", n * n - rank, n, n=n)
        powers = np.stack([np.linalg.matrix_power(S, k) for k in range(n)])
        yield equals("rank of the powers of S", rational_rank(powers.reshape(n, -1).tolist()), n)
        yield equals("commutators with the powers of S", powers @ S - S @ powers, 0, n=n)
        A = whole(n, n).numpy()
        total = np.sum([P.T @ A @ P for P in powers], 0)
        circulant = [[int(total[(i - j) % n, 0]) for j in range(n)] for i in range(n)]
        yield equals("sum over all shifts of a matrix", total, circulant, n=n)
        matrix, x = torch.from_numpy(total).double(), crooked(n).double()
        T: Map = {"linear": lambda f, M=matrix: M @ f,
                  "maximum": lambda f: torch.maximum(f, f.roll(-1))}[map]  # fmt: skip
        found = impulse_response(T, x)
        stated = sum(x[s] * found.response.roll(s) for s in range(n))
        yield equals("image of a signal as a sum of shifted responses", T(x), stated, n=n)
        if map == "linear":
            h: Any = found.kernel
            yield equals("kernel of the map", h, matrix[:, 0], n=n)
            name = "convolution with the kernel"
            yield equals(name, convolve(x, h, mode="circular"), T(x), n=n)
    yield _transform_of_identity(kernel)


def _transform_of_identity(kernel: str) -> Evidence:
    """What the identity's kernel has at each frequency: 1, if the convolution keeps every wave."""
    n = 32
    if kernel == "impulse":
        h: Any = impulse_response(lambda f: f, torch.randn(n)).kernel
        t = np.arange(n)
        waves = np.exp(-2j * np.pi * np.outer(np.arange(n), t) / n) @ h.numpy()
    else:  # a Gaussian of integral 1 and width 1/8, at frequencies that it does not resolve
        t, u = np.linspace(-1, 1, 401), np.arange(n)
        h = 8 * np.exp(-np.pi * (8 * t) ** 2) * (t[1] - t[0])
        waves = np.exp(-2j * np.pi * np.outer(u, t)) @ h
    return equals("transform of the identity's kernel", np.stack((waves.real, waves.imag)),
                  np.stack((np.ones(n), np.zeros(n))), tol=1e-12)  # fmt: skip


linear_equivariant_is_convolution.foil("the larger neighbour is not linear", map="maximum")
linear_equivariant_is_convolution.erratum(
    "D-187",
    printed=r"calls Convolution Theorem the claim that every linear translation-invariant $T$ is"
    r" $f \mapsto f * h$ for a suitable $h$",
    right=r"for continuous $T$, with a distribution $h$; the convolution theorem is"
    r" $\mathcal F(f * h) = \mathcal F f \cdot \mathcal F h$",
    why=r"The name belongs to $\mathcal F(f * h) = \mathcal F f \cdot \mathcal F h$, and continuity"
    r" is missing; moreover $h$ need not be a function: no $h \in L^1$ satisfies $f * h = f$ for"
    r" all $f$, as $\hat h \equiv 1$ contradicts the lemma of Riemann and Lebesgue.",
    weight="soft",
    refuted_by="transform of the identity's kernel",
    kernel="function",
)
