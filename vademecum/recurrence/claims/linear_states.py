"""Linear recurrences: their closed form, their eigenvectors, and when they forget."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, integers
from vademecum.recurrence import LRU, LinearRecurrence, diagonalize_recurrence


def scaled(m: int, radius: float = 0.95) -> Tensor:
    """A Gaussian matrix whose largest eigenvalue has this modulus."""
    A = torch.randn(m, m)
    return radius * A / torch.linalg.eigvals(A).abs().max()


def closed_form(A: np.ndarray, B: np.ndarray, x: np.ndarray, z: np.ndarray, lag: int) -> np.ndarray:
    r"""$A^t z^0 + \sum_{k<t} A^{t - \mathrm{lag} - k} B x^k$ for t = 1, 2, ..., by powers of A."""
    powers = [np.eye(len(A), dtype=A.dtype)]
    for _ in x:
        powers.append(powers[-1].dot(A))
    return np.array([
        powers[t].dot(z) + sum(powers[t - lag - k].dot(B.dot(x[k])) for k in range(t))
        for t in range(1, len(x) + 1)
    ])  # fmt: skip


@claim(
    by="identity", sources=("A-240", "C-142", "D-291"), budget=0.5,
    short=r"z^{t+1} = A z^t + B x^t: \quad z^t = A^t z^0 + \textstyle\sum_{k<t} A^{t-1-k} B x^k",
)  # fmt: skip
def linear_recurrence(lag: int = 1, started: bool = True):
    r"""The closed form of a linear recurrence.

    $z^{t+1} = A z^t + B x^t$ has the solution $z^t = A^t z^0 + \sum_{k<t} A^{t-1-k} B x^k$: the
    response to the input is a causal convolution with the kernel $B, AB, A^2 B, \dots$, and there
    is no nonlinearity in the state: start and input enter by superposition. With the output map
    $y = C z^{t+1} + D x^t$ the kernel is $CB + D, CAB, CA^2 B, \dots$

    *Proof.* By induction over $t$. Checked in exact integers, for random matrices with spectral
    radius 0.95, and for diagonal ones.

    Knobs:
        lag: What is subtracted from $t - k$ in the exponent.
        started: Whether the closed form has the term $A^t z^0$.
    """
    for m, d, T in ((3, 2, 8), (2, 4, 5)):
        A, B, x, z = (integers(*s, most=2) for s in ((m, m), (m, d), (T, d), (m,)))
        x[0, 0], z[0], A[0, 0], B[0, 0] = 1, 2, 2, 1
        found = LinearRecurrence(A, B, torch.eye(m))(x[None], z[None]).output[0]
        exact = [v.long().numpy().astype(object) for v in (A, B, x, z * started)]
        stated = closed_form(*exact, lag=lag).astype(np.int64)
        yield equals("states in integers", found.long(), stated, m=m, T=T)
    for m, d, k, T in ((4, 2, 3, 50), (7, 3, 2, 20)):
        C, D = torch.randn(k, m), torch.randn(k, d)
        x, z = torch.randn(2, T, d), torch.randn(2, m)
        for A, form in ((scaled(m), "dense"), (torch.linspace(-0.95, 0.9, m), "diagonal")):
            B = torch.randn(m, d)
            y, last = LinearRecurrence(A, B, C, D)(x, z)
            whole = A if form == "dense" else A.diag()
            for i in range(2):
                ours = (v.numpy() for v in (whole, B, x[i], z[i] * started))
                states = closed_form(*ours, lag=lag)
                stated = states @ C.numpy().T + (x[i] @ D.T).numpy()
                yield equals("outputs", y[i], stated, tol=1e-10, A=form, m=m)
                yield equals("last state", last[i], states[-1], tol=1e-10, A=form, m=m)


linear_recurrence.foil("the exponent t - k, one step too many", lag=0)
linear_recurrence.foil("the start forgotten at once", started=False)


def refused(A: Tensor) -> int:
    """1 if a matrix has no diagonal form, by the library's word."""
    try:
        diagonalize_recurrence(LinearRecurrence(A, torch.eye(len(A)), torch.eye(len(A))))
    except ValueError as error:
        return int("A is defective" in str(error))
    return 0


@claim(
    by="identity", sources=("A-241", "C-143", "C-150", "D-292", "D-293"), budget=0.5,
    short=r"A = P \Lambda P^{-1}: \quad \xi^{t+1} = \Lambda \xi^t + P^{-1} B x^t, \quad"
    r" z^t = P \xi^t",
)  # fmt: skip
def diagonal_form(
    inputs: Literal["inverse", "vectors"] = "inverse",
    matrix: Literal["Gaussian", "Jordan block"] = "Gaussian",
) -> Iterator[Evidence]:
    r"""The diagonal form of a linear recurrence.

    If $A = P \Lambda P^{-1}$ over $\mathbb C$, which holds for almost every real matrix, then
    $\xi^t = P^{-1} z^t$ obeys $\xi^{t+1} = \Lambda \xi^t + \tilde B x^t$ with
    $\tilde B = P^{-1} B$: the channels decouple, the Jacobian of the update is diagonal, and mixing
    is left to the input and output maps. A linear recurrent unit with these eigenvalues and this
    input map has the states $\xi^t$. A defective matrix, such as a Jordan block, has no such form.

    *Proof.* Multiply the recurrence by $P^{-1}$. Checked for Gaussian matrices of three sizes with
    spectral radius 0.95 over 50 steps; differences are held against the condition number of $P$,
    which NumPy computes.

    Knobs:
        inputs: Which matrix is applied to $B$: $P^{-1}$, or $P$.
        matrix: What is said to have a basis of eigenvectors.
    """
    for m, d in ((2, 3), (5, 2), (8, 4)):
        A, B, x = scaled(m), torch.randn(m, d), torch.randn(3, 50, d)
        A = A if matrix == "Gaussian" else torch.eye(m) + torch.eye(m).roll(1, 1).triu()
        P = np.linalg.eig(A.numpy())[1]
        yield equals("independent eigenvectors", int(np.linalg.matrix_rank(P)), m, m=m)
        condition = np.linalg.cond(P)
        whole = LinearRecurrence(A, B, torch.randn(3, m), torch.randn(3, d)).requires_grad_(False)
        form = diagonalize_recurrence(whole)
        form.recurrence.requires_grad_(False)
        ratio = form.condition / condition
        yield equals("condition number over NumPy's", ratio, 1.0, tol=1e-6, m=m)
        product = form.vectors.numpy() * form.recurrence.A.numpy()
        off = np.abs(product - A.numpy() @ form.vectors.numpy()).max()
        yield at_most("distance of P Lambda from A P", off, 1e-12, m=m)
        mixing = np.linalg.inv(form.vectors.numpy()) if inputs == "inverse" else form.vectors
        stated = torch.as_tensor(np.asarray(mixing) @ B.numpy())
        size = float(stated.abs().max()) * condition
        found = form.recurrence.B / size
        yield equals("input map over its size", found, stated / size, tol=1e-12, m=m)
        y, xi = form.recurrence(x)
        wanted, z = whole(x)
        rounding = 50 * m * 2.0**-52 * condition * float(1 + wanted.abs().max() + z.abs().max())
        for name, mine, other in (
            ("P xi", xi @ form.vectors.T, z),
            ("output", y, wanted),
            ("P times the state of a unit", unit_state(form.recurrence, x) @ form.vectors.T, z),
        ):
            off = (mine - other).abs().max() / rounding
            yield at_most(f"distance of {name} from the dense recurrence", off, 1.0, m=m)
        probes = torch.eye(m, dtype=torch.complex128)
        jacobian = form.recurrence.step(torch.zeros(m, d), probes).state
        mixed = jacobian - jacobian.diag().diag()
        yield equals("entries of the Jacobian off the diagonal", mixed, 0.0, tol=0.0, m=m)
    for size in (2, 3):
        block = torch.eye(size) + torch.eye(size).roll(1, 1).triu()
        yield equals("Jordan blocks refused, of one", refused(block), 1, size=size)
        yield equals("Gaussian matrices refused, of one", refused(scaled(size)), 0, size=size)


diagonal_form.foil("the input map P B", inputs="vectors")
diagonal_form.foil("a Jordan block has one eigenvector", matrix="Jordan block")


def unit_state(diagonal: LinearRecurrence, x: Tensor) -> Tensor:
    """The last state of a linear recurrent unit with these eigenvalues and this input map."""
    (m, d), values = diagonal.B.shape, diagonal.A
    unit = LRU(d, m).requires_grad_(False)
    layer: Any = unit.layers[0]
    layer.nu.copy_((-values.abs().log()).log())
    layer.theta.copy_(values.angle())
    layer.log_gamma.zero_()
    layer.B.copy_(torch.view_as_real(diagonal.B).mT.reshape(2 * m, d))
    return unit(x).state[0]


def channels(values: Tensor) -> LinearRecurrence:
    """Channels with these eigenvalues, each of its own input with weight 1."""
    one = torch.eye(len(values), dtype=torch.complex128)
    return LinearRecurrence(values.to(torch.complex128), one, one).requires_grad_(False)


@claim(
    by="identity", sources=("A-242", "C-144", "D-293"), budget=1.0,
    short=r"A = P \Lambda P^{-1}: \|A^t\| \le \kappa(P)\ \forall t \iff"
    r" \max|\lambda_j| \le 1;\ \text{gain} \le 1 / (1 - |\lambda|)",
)  # fmt: skip
def linear_stability(
    matrix: Literal["diagonalisable", "Jordan block"] = "diagonalisable",
    decides: Literal["eigenvalues", "norm"] = "eigenvalues",
    power: int = 1,
    fading: float = 0.99,
    T: int = 10_000,
) -> Iterator[Evidence]:
    r"""The stability of a linear recurrence.

    For diagonalisable $A = P \Lambda P^{-1}$ the unforced states stay bounded for every start if
    and only if $\max_j |\lambda_j| \le 1$, then by the condition number of $P$ times the start. To
    forget the start, and to respond boundedly to every bounded input, all modes reachable, takes
    $\max_j |\lambda_j| < 1$, with a gain of at most $1 / (1 - |\lambda|)$ for a channel with input
    weight 1, which the input $(\lambda / |\lambda|)^t$ attains in the limit. An eigenvalue 1 adds
    up its input. The norm of $A$ decides nothing: a stable matrix may have any norm.

    *Proof.* $A^t = P \Lambda^t P^{-1}$, and $\sum_k |\lambda|^k = 1 / (1 - |\lambda|)$. A Jordan
    block with $\lambda = 1$ grows like $t$. Checked for scalar channels over $10^4$ steps and
    planted matrices over 1000.

    Knobs:
        matrix: What is said to stay bounded with eigenvalues on the unit circle.
        decides: Which size of $A$ is said to be the growth from step to step.
        power: The gain is said to be $1 / (1 - |\lambda|^{\mathrm{power}})$.
        fading: The modulus that is said to forget its start.
        T: How many steps a channel runs.
    """
    phases = 6 * torch.rand(4)
    left = channels(torch.polar(torch.tensor([fading] * 4), phases))
    silent, start = torch.zeros(1, T, 4), torch.ones(1, 4, dtype=torch.complex128)
    faded = left(silent, start).state.abs().log()
    yield at_most("logarithm of the state left", faded, 0.99 * T * math.log(0.99), modulus=fading)
    moduli = torch.tensor([0.99, 0.9, 0.5, 0.99])
    values = torch.polar(moduli, phases)
    gain = 1 / (1 - moduli**power)
    resonant = torch.polar(torch.ones(T, 4), phases * torch.arange(T)[:, None])[None]
    response = channels(values)(resonant).output[0].abs()
    yield equals("response to its own oscillation", response[-1], gain, tol=1e-9, T=T)
    noise = channels(values)(2 * torch.rand(1, T, 4) - 1).output[0].abs().amax(0)
    yield at_most("response to inputs in [-1, 1]", noise, gain)
    total = channels(torch.ones(1))(torch.ones(1, T, 1)).output[0, :, 0].real
    yield equals("sum of ones, by the eigenvalue 1", total.long(), torch.arange(T) + 1)
    kept = channels(torch.polar(torch.ones(4), phases))(silent, start).state.abs()
    yield equals("modulus kept on the unit circle", kept, 1.0, tol=1e-9)
    grown = channels(torch.polar(torch.full((4,), 1.01), phases))(silent, start).state.abs()
    yield at_least("state beyond the unit circle", grown, 1e40, T=T)
    yield from matrices(matrix, decides)


def matrices(matrix: str, decides: str) -> Iterator[Evidence]:
    """Unforced states of planted matrices: bounds, and growth from step to step."""
    for m in (2, 5):
        P = torch.linalg.qr(torch.randn(m, m)).Q @ torch.diag(torch.linspace(1, 4, m))
        P = P @ torch.linalg.qr(torch.randn(m, m)).Q
        turn = torch.tensor([[math.cos(1.0), -math.sin(1.0)], [math.sin(1.0), math.cos(1.0)]])
        turn = turn if matrix == "diagonalisable" else torch.tensor([[1.0, 1.0], [0.0, 1.0]])
        inner = torch.block_diag(turn, *torch.linspace(-0.9, 0.9, m - 2)[:, None, None])
        A = P @ inner @ torch.linalg.inv(P)
        start = P.T.contiguous()  # a row is a column of P: every direction is started
        whole = LinearRecurrence(A, P, torch.eye(m)).requires_grad_(False)
        states = whole(torch.zeros(m, 1000, m), start).output
        ratio = states.norm(dim=2).amax(1) / start.norm(dim=1)
        yield at_most("growth on the unit circle", ratio, 4.0, m=m)
    for rate in (0.9, 1.1):
        A = torch.tensor([[rate, 5.0, 1.0], [0.0, 0.3, 5.0], [0.0, 0.0, -0.5]])
        size = rate if decides == "eigenvalues" else float(torch.linalg.matrix_norm(A, 2))
        whole = LinearRecurrence(A, A, torch.eye(3)).requires_grad_(False)
        states = whole(torch.zeros(1, 600, 3), torch.ones(1, 3)).output[0]
        ends = states[[299, 599]].norm(dim=1).log()
        found = float((ends[1] - ends[0]) / 300)
        yield equals("logarithm of the growth from step to step", found, math.log(size),
                     tol=1e-9, rate=rate)  # fmt: skip


linear_stability.foil("a Jordan block grows without bound", matrix="Jordan block")
linear_stability.foil("the norm of A decides", decides="norm")
linear_stability.foil("the gain of a power, 1 / (1 - r^2)", power=2)
linear_stability.foil("a modulus of 1 forgets", fading=1.0)
