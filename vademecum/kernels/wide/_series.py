r"""What any pointwise activation does to covariances, by its Hermite coefficients.

$$\mathbb{E} \phi(u) \phi(v) = \sum_{k < K} a_k(q)\, a_k(q')\, c^k + R, \qquad
|R| \le |c|^K \sqrt{r(q)\, r(q')}, \quad r(q) = \mathbb{E} \phi^2 - \sum_{k < K} a_k^2 ,$$

and the same for $\phi'$. $K$ is doubled until $|R|$ is at most `tol` times $\sqrt{\mathbb{E}
\phi(u)^2 \mathbb{E} \phi(v)^2}$ for all pairs, or until it is 256; pairs that are left then
(correlations near $\pm 1$ of activations with kinks) are integrated in the plane one by one, which
is slow and said. Equal inputs, $c = 1$ and $q = q'$, are exact.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.expectations import GaussianExpectations, hermite_coefficients
from vademecum.kernels.wide._duals import correlation
from vademecum.kernels.wide._workspace import Workspace
from vademecum.models import warn_of_slow_path

__all__ = ["Series"]

_AT_ONCE = 256  # variances: their some thousand nodes each stay in the cache
_MANY = 10_000  # pairs that are integrated in some ten seconds


class Series:
    """A function of each number, integrated to a tolerance."""

    def __init__(self, function: Callable[[Tensor], Tensor], tol: float):
        self.integrals, self.tol = GaussianExpectations(function), tol

    def mean(self, q: Tensor) -> Tensor:
        return self.integrals.mean(q)

    def maps(
        self, k: Tensor, q: Tensor, p: Tensor, room: Workspace, *, slopes: bool, owned: bool
    ) -> tuple[Tensor, Tensor | None, float]:
        c = correlation(k, q, p, owned=owned)
        value = self._product(c, q, p, 0)
        return value, (self._product(c, q, p, 1) if slopes else None), 1.0

    def _product(self, c: Tensor, q: Tensor, p: Tensor, order: int) -> Tensor:
        equal = (c == 1) & (q == p)
        terms = 1 if bool(equal.all()) else 32
        while True:
            (a, size), (b, other) = (self._coefficients(v, terms, order) for v in (q, p))
            rest = [(s - x.square().sum(-1)).clamp(min=0) for x, s in ((a, size), (b, other))]
            most = self.tol * (size * other).sqrt()
            bad = c.double().abs() ** terms * (rest[0] * rest[1]).sqrt() > most
            bad &= ~equal
            if terms == 256 or not bool(bad.any()):
                break
            terms *= 2
        total = (a[..., -1] * b[..., -1]).expand(c.shape).clone()
        for i in range(terms - 2, -1, -1):
            total.mul_(c).addcmul_(a[..., i], b[..., i])
        total = torch.where(equal, size, total)
        if bool(bad.any()):
            total[bad] = self._one_by_one(bad, c, q, p, order)
        return total.to(c.dtype)

    def _coefficients(self, q: Tensor, terms: int, order: int) -> tuple[Tensor, Tensor]:
        flat, back = torch.unique(q.double(), return_inverse=True)
        found = [
            hermite_coefficients(self.integrals, some, terms, order=order)
            for some in flat.split(_AT_ONCE)
        ]
        a, size = (torch.cat(parts) for parts in zip(*found, strict=True))
        if not bool(torch.isfinite(size).all()):
            raise ValueError(
                f"activation must have a {'derivative' if order else 'value'} with a second moment,"
                f" got {float(size[~torch.isfinite(size)][0])}"
            )
        return a[back], size[back]

    def _one_by_one(self, bad: Tensor, c: Tensor, q: Tensor, p: Tensor, order: int) -> Tensor:
        number = int(bad.sum())
        if number > _MANY:
            warn_of_slow_path(
                f"{number} of {bad.numel()} covariances are integrated one by one",
                f"tol={self.tol:g} is beyond 256 terms for correlations as near 1 as theirs",
            )
        integrate = self.integrals.slope_product if order else self.integrals.product
        q, p = (v.expand(bad.shape)[bad].double() for v in (q, p))
        return integrate(q, c[bad].double(), p)
