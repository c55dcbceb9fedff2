r"""The spectrum of a symmetric operator as a density, by stochastic Lanczos quadrature.

The spectral measure $\frac1n \sum_i \delta_{\lambda_i}$ of $A \in \mathbb{K}^{n \times n}$ is the
mean over random unit vectors $v$ (signs over $\sqrt n$) of $\sum_i |u_i^H v|^2 \delta_{\lambda_i}$,
with the eigenvectors $u_i$. After $s$ Lanczos steps from $v$ the tridiagonal $T = Y \Theta Y^T$
gives the Gauss quadrature of the latter,

$$\sum_{j=1}^s w_j\, \delta_{\theta_j}, \qquad w_j = Y_{1j}^2, \quad \sum_j w_j = 1,$$

exact on polynomials of degree $2 s - 1$. For a function of the operator therefore
$\operatorname{tr} f(A) \approx n\, \mathbb{E}_v \sum_j w_j f(\theta_j)$, and $f = \log$ gives $\log
\det A$. The density is the measure smoothed by a Gaussian of standard deviation `width`.

Standard errors are those over the probes: the variance of a share of the spectrum falls like
$\frac{1}{n}$ even for one probe, so that a few are enough where $n$ is large. The error of the
quadrature comes on top and falls geometrically with $s$ for smooth $f$. On a range of length $\ell$
a Gaussian of width $w$ is a polynomial of degree $2 s - 1$ up to about $e^{-2 (2 s w / \ell)^2}$ of
its height, so that at the *resolution* $w = \ell / s$ some thousandth of it is left, and much less
beyond. All probes run side by side, each with full
reorthogonalisation, so that $s$ steps hold $s$ blocks of probes. If there are $n$ probes or more,
the spectrum is computed as it stands. The claim is `spectral_quadrature`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.foundations._lanczos import side_by_side
from vademecum.foundations._probes import (
    insist_on_symmetry,
    random_block,
    square_operator,
    watched,
)
from vademecum.foundations.stochastic_trace import ProbeEstimate, mean_and_error
from vademecum.results import one_line

__all__ = ["SpectralDensity", "log_det", "spectral_density"]


class SpectralDensity(NamedTuple):
    """A quadrature of the spectral measure; calling it gives the density.

    Example:
        >>> found = spectral_density(torch.diag(torch.tensor([1.0, 1.0, 3.0])))
        >>> found.trace(torch.log).value  # log 3
        tensor(1.0986)
        >>> density, error = found(torch.tensor([1.0, 2.0]), width=0.1)
        >>> density  # 2/3 and 0 over 0.1 sqrt(2 pi)
        tensor([2.6596e+00, 7.69...e-22])
    """

    nodes: Float[Tensor, " probes steps"]
    r"""The quadrature nodes $\theta$, one row a probe."""
    weights: Float[Tensor, " probes steps"]
    """Their weights $w$; each row sums to one."""
    n: int
    """The width of the operator."""
    applications: int
    """The number of vectors that it was applied to."""
    exact: bool
    """Whether these are the eigenvalues themselves."""
    resolution: float
    """The least width at which the steps give the density to a thousandth; 0 if it is exact."""
    standard_error: float
    """The largest standard error of the density at that width, as a share of its peak."""

    __repr__ = one_line

    def __call__(
        self, grid: Float[Tensor, " *shape"], *, width: float | None = None
    ) -> tuple[Float[Tensor, " *shape"], Float[Tensor, " *shape"]]:
        """The smoothed density at points, and its standard error over the probes.

        Args:
            grid: Where.
            width: The standard deviation of the Gaussian; by default a fiftieth of the range, or
                the resolution if that is coarser.
        """
        grid = floats("grid", grid).to(self.nodes)
        if width is None:
            spread = float(self.nodes.max() - self.nodes.min())
            width = max(spread / 50, self.resolution) or 1.0
        number("width", width, above=0)
        gap = (grid[..., None, None] - self.nodes) / width
        bumps = self.weights * torch.exp(-(gap**2) / 2) / (width * (2 * torch.pi) ** 0.5)
        return self._mean(bumps.sum(-1))

    def trace(self, f: Callable[[Tensor], Tensor]) -> ProbeEstimate:
        r"""The trace of $f(A)$, for a function on the real line.

        Args:
            f: The function, on tensors; it is not called outside the range of the spectrum.
        """
        value, error = self._mean((self.weights * f(self.nodes)).sum(-1))
        return ProbeEstimate(self.n * value, self.n * error, self.applications)

    def _mean(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        if self.exact:
            return samples.mean(-1), torch.zeros_like(samples[..., 0])
        return mean_and_error(samples)


def spectral_density(
    op: Any,
    *,
    probes: int = 4,
    steps: int = 32,
    symmetry_tol: float | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> SpectralDensity:
    r"""The spectral measure of a symmetric (complex: Hermitian) operator, from random probes.

    It takes a product with the operator for each probe and step: 128 by default.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        probes: How many probes; from $n$ on, the eigenvalues are computed as they are. The standard
            error falls with the root of their number.
        steps: How many Lanczos steps from each, $n$ at most. The resolution falls with their
            number.
        symmetry_tol: The largest relative difference of $\langle u, A v \rangle$ and $\langle A u,
            v \rangle$ for random vectors that passes for rounding; by default the square root of
            the machine precision.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the operator is not symmetric, or in half precision.

    References:
        Ubaru, Chen and Saad, Fast estimation of tr(f(A)) via stochastic Lanczos quadrature, SIAM
        Journal on Matrix Analysis and Applications 38, 2017. Ghorbani, Krishnan and Xiao, An
        investigation into neural net optimization via Hessian eigenvalue density, ICML, 2019.

    Example:
        >>> spectral_density(2 * torch.eye(100), probes=3).nodes[:, 0]
        tensor([2., 2., 2.])
    """
    op = square_operator("op", op, half=False)
    n = op.shape[0]
    whole("probes", probes, low=min(2, n))
    steps = min(whole("steps", steps, low=1), n)
    with watched(op, n if probes >= n else probes * steps, progress=progress) as op:
        if probes >= n:
            A = op.dense().detach()
            insist_on_symmetry(torch.eye(n, dtype=A.dtype, device=A.device), A, tol=symmetry_tol)
            nodes = torch.linalg.eigvalsh(A)[None]
            return SpectralDensity(nodes, torch.full_like(nodes, 1 / n), n, n, True, 0.0, 0.0)
        block = random_block(op, probes, generator, signs=True) / n**0.5
        image = (op @ block).detach()
        insist_on_symmetry(block, image, tol=symmetry_tol)
        _, T = side_by_side(lambda q: (op @ q.T).detach().T, block.T.contiguous(), steps, image.T)
    if not torch.isfinite(T).all():
        raise ValueError("op must return finite numbers, got others")
    nodes, Y = torch.linalg.eigh(T)
    low, high = float(nodes.min()), float(nodes.max())
    width, weights = (high - low) / steps, Y[:, 0].abs() ** 2
    found = SpectralDensity(nodes, weights, n, probes * steps, False, width, math.nan)
    density, error = found(torch.linspace(low, high, 2 * steps + 1), width=width or 1.0)
    return found._replace(standard_error=float(error.max() / density.max()))


def log_det(
    op: Any,
    *,
    probes: int = 16,
    steps: int = 64,
    symmetry_tol: float | None = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> ProbeEstimate:
    r"""The logarithm of the determinant of a symmetric positive definite operator.

    Args:
        op: The operator, or anything that `aslinearoperator` takes.
        probes: How many probes; from $n$ on, the eigenvalues are computed as they are.
        steps: How many Lanczos steps from each, $n$ at most; the more, the worse the condition.
        symmetry_tol: The largest relative difference of $\langle u, A v \rangle$ and $\langle A u,
            v \rangle$ for random vectors that passes for rounding; by default the square root of
            the machine precision.
        generator: Where random numbers come from; torch's global generator by default.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If the operator is not symmetric, or in half precision, or has been seen not to
            be positive definite: the quadrature nodes lie within the range of its spectrum. One
            below the machine precision times the largest counts as zero, which rounding could
            have made of it.

    Example:
        >>> log_det(2 * torch.eye(100), probes=3).value  # 100 log 2
        tensor(69.3147)
    """
    measure = spectral_density(
        op, probes=probes, steps=steps, symmetry_tol=symmetry_tol, generator=generator,
        progress=progress,
    )  # fmt: skip
    least, largest = float(measure.nodes.min()), float(measure.nodes.max())
    if least <= torch.finfo(measure.nodes.dtype).eps * largest:
        raise ValueError(
            f"op must be positive definite, got a form u^H A u = {least:.3g} |u|^2, where others"
            f" are up to {largest:.3g} |u|^2"
        )
    return measure.trace(torch.log)
