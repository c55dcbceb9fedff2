r"""The linear recurrence with any matrices, and its diagonal form.

$$h_t = A h_{t-1} + B x_t, \qquad y_t = C h_t + D x_t .$$

Where $A = P \Lambda P^{-1}$ is diagonalisable, $\xi_t = P^{-1} h_t$ obeys the recurrence with
$\Lambda$, $P^{-1} B$ and $C P$, whose channels do not mix: a step costs $m$ products instead of
$m^2$, and `scan` computes all steps at once. Rounding grows with the condition number of $P$, which
is infinite where $A$ is defective, that is, has too few eigenvectors. If two of them stand at a
small angle $\delta$, the condition number is about $1 / \delta$, and a change of $A$ by some
$\delta^2$ makes them one: beyond $1 / \sqrt{m \varepsilon}$ that is within rounding.

A dense recurrence takes its steps one after the other, as it is written. Eigenvectors are those of
LAPACK in double precision. The claims are `linear_recurrence`, `linear_stability` and
`diagonal_form`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Inexact, Shaped
from torch import Tensor, nn

from vademecum.arguments import floats, number
from vademecum.recurrence.linear_scan import scan
from vademecum.recurrence.recurrent_outputs import RecurrentOutput
from vademecum.results import one_line

__all__ = ["DiagonalForm", "LinearRecurrence", "diagonalize_recurrence"]


class LinearRecurrence(nn.Module):
    r"""$h_t = A h_{t-1} + B x_t$ and $y_t = C h_t + D x_t$, with matrices that are parameters.

    Args:
        A: The (m, m) matrix of the recurrence, or the m entries of a diagonal one; real or complex.
        B: The (m, d) matrix of the input.
        C: The (k, m) matrix of the output; the identity gives the states.
        D: The (k, d) matrix from input to output; None for none.

    Raises:
        ValueError: If shapes, dtypes or devices do not fit together, or a number is not finite.

    Example:
        >>> one = torch.ones(1, 1)
        >>> total = LinearRecurrence(one, one, one)  # an eigenvalue of 1 adds up its input
        >>> total(torch.tensor([[[1.0], [2.0], [3.0]]])).output.flatten()
        tensor([1., 3., 6.], grad_fn=<ViewBackward0>)
        >>> total.step(torch.tensor([[4.0]]), torch.tensor([[6.0]])).state.item()
        10.0
    """

    def __init__(
        self,
        A: Inexact[Tensor, " m *m"],
        B: Inexact[Tensor, " m d"],
        C: Inexact[Tensor, " k m"],
        D: Inexact[Tensor, " k d"] | None = None,
    ):
        super().__init__()
        _insist_on_fit(A, B, C, D)
        self.A, self.B = nn.Parameter(A.detach().clone()), nn.Parameter(B.detach().clone())
        self.C = nn.Parameter(C.detach().clone())
        self.D = None if D is None else nn.Parameter(D.detach().clone())

    def forward(
        self, x: Shaped[Tensor, " n T d"], state: Inexact[Tensor, " n m"] | None = None
    ) -> RecurrentOutput:
        """The outputs at all steps.

        Args:
            x: The inputs.
            state: What an earlier call gave, to go on from there; zeros by default.
        """
        x, state = self._checked(x, state, 3)
        b = x @ self.B.T
        if self.A.ndim == 1:
            h = scan(self.A, b.to(state.dtype), initial=state)  # autocast may have halved b
        else:
            steps, transposed = [], self.A.T
            for t in range(x.shape[1]):
                state = torch.addmm(b[:, t], state, transposed)
                steps.append(state)
            h = torch.stack(steps, 1)
        return RecurrentOutput(self._read(h, x), h[:, -1])

    def step(
        self, x: Shaped[Tensor, " n d"], state: Inexact[Tensor, " n m"] | None = None
    ) -> RecurrentOutput:
        """The output at the next step.

        Args:
            x: The inputs of this step, one for each sequence.
            state: What the step before gave, or `forward`; zeros by default.
        """
        x, state = self._checked(x, state, 2)
        kept = self.A * state if self.A.ndim == 1 else state @ self.A.T
        state = torch.addmm(kept, x, self.B.T)
        return RecurrentOutput(self._read(state, x), state)

    @property
    def eigenvalues(self) -> Inexact[Tensor, " m"]:
        """The eigenvalues of A, whose largest modulus decides what is forgotten."""
        return self.A if self.A.ndim == 1 else torch.linalg.eigvals(self.A)

    def _read(self, h: Tensor, x: Tensor) -> Tensor:
        y = h @ self.C.T
        return y if self.D is None else y + x @ self.D.T

    def _checked(self, x: Tensor, state: Tensor | None, ndim: int) -> tuple[Tensor, Tensor]:
        m, d = self.B.shape
        if x.ndim != ndim or x.shape[-1] != d or (ndim == 3 and not x.shape[1]):
            shape = f"(n, T, {d}), T >= 1," if ndim == 3 else f"(n, {d}),"
            raise ValueError(f"x must have the shape {shape} got {tuple(x.shape)}")
        if x.dtype not in (self.B.dtype, self.B.dtype.to_real()):
            raise ValueError(f"x must be {self.B.dtype} as the matrices are, got {x.dtype}")
        if state is None:
            state = self.B.new_zeros(len(x), m)
        elif state.shape != (len(x), m) or state.dtype != self.B.dtype:
            raise ValueError(
                f"state must be {self.B.dtype} of shape {(len(x), m)}, got {state.dtype} of shape"
                f" {tuple(state.shape)}"
            )
        return x.to(self.B.dtype), state

    def extra_repr(self) -> str:
        """The sizes."""
        kind = "diagonal " if self.A.ndim == 1 else ""
        return f"{kind}m={self.B.shape[0]}, d={self.B.shape[1]}"


def _insist_on_fit(A: Tensor, B: Tensor, C: Tensor, D: Tensor | None) -> None:
    m, d = floats("A", A).shape[0] if A.ndim else 0, floats("B", B, ndim=2).shape[1]
    k = floats("C", C, ndim=2).shape[0]
    if A.shape not in ((m,), (m, m)):
        raise ValueError(f"A must be square or a diagonal, got shape {tuple(A.shape)}")
    for name, matrix, shape in (("B", B, (m, d)), ("C", C, (k, m)), ("D", D, (k, d))):
        if matrix is None:
            continue
        if floats(name, matrix).shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {tuple(matrix.shape)}")
        if (matrix.dtype, matrix.device) != (A.dtype, A.device):
            raise ValueError(
                f"{name} must be {A.dtype} on {A.device} as A is, got {matrix.dtype} on"
                f" {matrix.device}"
            )


class DiagonalForm(NamedTuple):
    """A linear recurrence in the basis of eigenvectors.

    Example:
        >>> swap, one = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.eye(2)
        >>> round(diagonalize_recurrence(LinearRecurrence(swap, one, one)).condition, 6)
        1.0
    """

    recurrence: LinearRecurrence
    """The same outputs, with a diagonal: complex, and real up to rounding if the given one is."""
    vectors: Inexact[Tensor, " m m"]
    """Eigenvectors as columns: the given state is this matrix times the new one."""
    condition: float
    """The condition number of the eigenvectors, by which rounding grows."""

    __repr__ = one_line


@torch.no_grad()
def diagonalize_recurrence(
    recurrence: LinearRecurrence, *, max_condition: float | None = None
) -> DiagonalForm:
    r"""Rewrite a linear recurrence so that its channels do not mix.

    Args:
        recurrence: The recurrence; it stays as it is.
        max_condition: The largest condition number of eigenvectors that is accepted;
            $1 / \sqrt{10 m \varepsilon}$ by default, beyond which a matrix can no longer be told
            from a defective one in double precision.

    Raises:
        ValueError: If the matrix is defective: it has no basis of eigenvectors.

    Note:
        Below single precision there are no complex numbers: then the new one is in single, and
        wants inputs in single.

    Example:
        >>> A = torch.tensor([[0.5, 1.0], [0.0, 0.25]])
        >>> form = diagonalize_recurrence(LinearRecurrence(A, torch.eye(2), torch.eye(2)))
        >>> form.recurrence.A.data.real
        tensor([0.5000, 0.2500])
        >>> diagonalize_recurrence(LinearRecurrence(A.sign(), torch.eye(2), torch.eye(2)))
        Traceback (most recent call last):
        ValueError: A is defective: its eigenvectors have the condition number ...
    """
    A, B = _double(recurrence.A), _double(recurrence.B)
    values, vectors = torch.linalg.eig(A.diag() if A.ndim == 1 else A)
    limit = 1 / math.sqrt(10 * len(A) * torch.finfo(torch.float64).eps)
    if max_condition is not None:
        limit = number("max_condition", max_condition, low=1)
    condition = float(torch.linalg.cond(vectors))
    if not condition <= limit:
        raise ValueError(
            f"A is defective: its eigenvectors have the condition number {condition:.3g}, more than"
            f" {limit:.3g}"
        )
    dtype = torch.promote_types(recurrence.A.dtype, torch.complex64)
    inputs = torch.linalg.solve(vectors, B.to(vectors.dtype))
    outputs = recurrence.C.to(vectors.dtype) @ vectors
    direct = None if recurrence.D is None else recurrence.D.to(dtype)
    diagonal = LinearRecurrence(values.to(dtype), inputs.to(dtype), outputs.to(dtype), direct)
    return DiagonalForm(diagonal, vectors.to(dtype), condition)


def _double(matrix: Tensor) -> Tensor:
    return matrix.detach().to(torch.complex128 if matrix.is_complex() else torch.float64)
