r"""The penalised likelihood that logistic and softmax regression minimise, and its preconditioner.

Examples $x_i \in \mathbb{R}^d$ with weights $s_i \ge 0$ have logits
$z_i = W x_i + b \in \mathbb{R}^K$ and targets $y_i$. With the log-partition $A$ of the Bernoulli
($K = 1$, $A(z) = \log(1 + e^z)$) or the categorical family ($A(z) = \log \sum_k e^{z_k}$) the
function of $\theta = (W, b)$ is

$$f(\theta) = \frac{1}{\sum_i s_i} \sum_i s_i \big(A(z_i) - \langle y_i, z_i \rangle\big)
+ \frac{\lambda}{2} \|W\|_F^2, \qquad
\nabla f = \frac{1}{\sum_i s_i} \sum_i s_i\, (p_i - y_i)\, (x_i, 1)^\top + \lambda (W, 0),
\qquad p_i = \nabla A(z_i).$$

The preconditioner takes the Hessian's diagonal blocks, one for each logit,

$$\frac{1}{\sum_i s_i} \sum_i q_i\, (x_i, 1) (x_i, 1)^\top + \lambda I, \qquad
q_i = s_i\, p_{ik} (1 - p_{ik}),$$

and inverts them, slightly damped. Of many examples, each block uses $4 (d + 1)$ or 2048 that are
drawn with probabilities proportional to $q_i$: at equally spaced points of the cumulated $q_i$, so
without randomness. Where the blocks would be too large, or 512 of these examples are as if their
features were uncorrelated, the diagonals take their place: sampling would add more than it tells.

Value and gradient are exact up to rounding. Rows are met in chunks, in the dtype of the data (at
least single precision; double precision if they are sparse), and sums over chunks, and over parts
of long ones, are kept in double precision; after `refine` everything is.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arrays import portions
from vademecum.estimators import SparseRows, precision

__all__ = ["PenalisedLikelihood"]

CHUNK = {"cpu": 2**20}  # entries of the data met at once: as the cache likes; elsewhere a gigabyte
LONG = 2**25  # the same for one logit, where calls cost more than the cache saves
SUMMED = 2**12  # examples of one logit whose gradient is summed in single precision
LARGEST = 2**25  # entries of all blocks of the preconditioner
FEWEST = 2048  # examples that a block is made from
FLOOR = 1e-3  # of the mean curvature: a logit without any would take endless steps
EVERY = 4096  # examples, the least that the diagonal is made from
PROBE = 512  # of them, that tell whether features are correlated at all
DAMPING = 1e-2  # of the diagonal: the blocks come from a sample


class PenalisedLikelihood:
    r"""The function $f$ of $\theta$, flattened from shape (K, d + 1).

    Args:
        x: The examples, of shape (n, d): a tensor or `SparseRows`.
        y: The targets, of shape (K, n); one row means the Bernoulli family.
        s: The weights of the examples.
        weight_decay: The factor $\lambda$.
        bias: Whether there is a $b$; without, its entries of $\theta$ have no effect.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0, 1.0]])
        >>> f = PenalisedLikelihood(x, y, torch.ones(2), weight_decay=0.0)
        >>> f(torch.zeros(2, dtype=torch.float64))[1]  # half of (1/2)(1, 1) - (1/2)(2, 1)
        tensor([-0.2500,  0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        x: Any,
        y: Float[Tensor, " k n"],
        s: Float[Tensor, " n"],
        *,
        weight_decay: float,
        bias: bool = True,
    ):
        self.dtype = torch.float64 if isinstance(x, SparseRows) else precision(x)
        self.x, self.y, self.s = x.to(self.dtype) if isinstance(x, SparseRows) else x, y, s
        self.decay, self.bias = weight_decay, float(bias)
        self.total = float(s.sum(dtype=torch.float64))
        self.chunks = self._portions()

    def refine(self) -> bool:
        """Compute in double precision from now on; whether that is new."""
        fresh, self.dtype = self.dtype != torch.float64, torch.float64
        self.chunks = self._portions()
        return fresh

    def _portions(self) -> list[slice]:
        """The rows that are met at once."""
        (n, d), k = self.x.shape, len(self.y)
        if isinstance(self.x, SparseRows):
            return portions(n, each=k, memory=LONG)
        copied = self.x.dtype != self.dtype
        entries = CHUNK.get(self.x.device.type, 2**28)
        return portions(n, each=d, memory=entries if k > 1 or copied else max(entries, LONG))

    def logits(self, theta: Tensor, rows: slice) -> Tensor:
        """The logits of some examples, of shape (K, rows)."""
        w, b = self._shaped(theta).to(self.dtype).split([self.x.shape[1], 1], dim=1)
        x = self.x[rows].to(self.dtype)
        if isinstance(x, SparseRows):
            return (x @ w.T.contiguous()).T + b * self.bias
        return torch.addmm(b * self.bias, w, x.T)

    def __call__(self, theta: Tensor) -> tuple[float, Tensor]:
        """The value and the gradient."""
        value = theta.new_zeros(())
        g, start = torch.zeros_like(self._shaped(theta)), not theta.any()
        for rows in self.chunks:
            y, s = self.y[:, rows], self.s[rows]
            z = torch.zeros_like(y, dtype=self.dtype) if start else self.logits(theta, rows)
            a, p = _log_partition(z)
            value += ((a - (y * z).sum(0)) * s).sum(dtype=theta.dtype)
            error = (p - y).to(self.dtype) * s
            g[:, :-1] += _pull(error, self.x[rows].to(self.dtype))
            g[:, -1] += self.bias * error.sum(1, dtype=theta.dtype)
        w = self._shaped(theta)[:, :-1]
        g /= self.total
        g[:, :-1] += self.decay * w
        return float(value / self.total + self.decay / 2 * w.square().sum()), g.flatten()

    def preconditioner(self, theta: Tensor) -> Callable[[Tensor], Tensor]:
        """The product with the inverses of the sampled Hessian's diagonal blocks."""
        k, width = len(self.y), self.x.shape[1] + 1
        if theta.any():
            p = [_log_partition(self.logits(theta, rows))[1] for rows in self.chunks]
            p = torch.cat(p, 1)
        else:
            p = self.s.new_full((1, 1), 1 / max(k, 2))  # all logits are alike
        q = p * (1 - p)
        q = (q + FLOOR * q.mean()) * self.s / self.total
        diagonal = self._diagonal(q)
        if len(q) * width**2 > LARGEST:
            inverse = 1 / (diagonal + self.decay)
            return lambda v: (inverse * v.view(k, width)).flatten()
        blocks = torch.stack([self._inverse(*pair) for pair in zip(q, diagonal, strict=True)])
        if len(q) == 1:
            return lambda v: (v.view(k, width) @ blocks[0]).flatten()
        return lambda v: torch.bmm(blocks, v.view(k, width, 1)).flatten()

    def _diagonal(self, q: Tensor) -> Tensor:
        """The diagonals of the Hessian's blocks without decay; 1 for what has no effect."""
        step = 8 if len(self.x) >= 8 * EVERY and isinstance(self.x, Tensor) else 1
        diagonal = self._squares(q, step)
        if step > 1 and not (diagonal > 0).all():  # there may be entries that are rare
            diagonal = self._squares(q, 1)
        if not diagonal.isfinite().all():
            raise ValueError(f"X must be smaller: the squares of its entries overflow {self.dtype}")
        diagonal = torch.cat([diagonal, self.bias * q.sum(1, keepdim=True).double()], 1)
        return torch.where(diagonal > 0, diagonal, 1.0)

    def _squares(self, q: Tensor, step: int) -> Tensor:
        """The weighted sums of the squares of every feature, from one in `step` examples."""
        total, buffer = q.new_zeros(len(q), self.x.shape[1], dtype=torch.float64), None
        for rows in self.chunks:
            x, some = self.x[rows], q[:, rows].to(self.dtype)
            if isinstance(x, SparseRows):
                total += x.to(self.dtype).square().pull(some)
                continue
            x, some = x[::step].to(self.dtype), some[:, ::step]
            buffer = torch.empty_like(x) if buffer is None else buffer  # memory anew costs as much
            total += some @ torch.mul(x, x, out=buffer[: len(x)])
        return step * total

    def _inverse(self, q: Tensor, diagonal: Tensor) -> Tensor:
        """The inverse of one block, from a sample of examples with weights `q`."""
        n, d = self.x.shape
        size = max(4 * (d + 1), FEWEST)
        if n <= size:
            x, share = self.x, q.sqrt()
        else:
            ends = q.cumsum(0, dtype=torch.float64)
            places = (torch.arange(size, device=q.device) + 0.5) / size * ends[-1]
            places = torch.searchsorted(ends, places).clamp_(max=n - 1)
            share = (ends[-1] / size).sqrt().expand(size)
            some = self.x[places[:: size // PROBE]].to(self.dtype)
            if _uncorrelated(
                _second_moment(some, share[: len(some)].to(self.dtype), self.bias), len(some)
            ):
                return torch.diag(1 / (diagonal + self.decay))
            x = self.x[places]
        block = _second_moment(x.to(self.dtype), share.to(self.dtype), self.bias).double()
        entries = block.diagonal()
        entries += self.decay + torch.where(entries < diagonal / 2, diagonal, DAMPING * diagonal)
        return torch.cholesky_inverse(torch.linalg.cholesky(block))

    def _shaped(self, theta: Tensor) -> Tensor:
        return theta.view(len(self.y), self.x.shape[1] + 1)


def _uncorrelated(moment: Tensor, m: int) -> bool:
    """Whether entries off the diagonal are mostly what `m` independent rows have by chance."""
    lengths = moment.diagonal().sqrt()
    share = (moment / torch.where(lengths > 0, lengths, 1.0) / lengths[:, None]).nan_to_num()
    by_chance = len(share) * (len(share) - 1) / m
    return bool(share.square().sum() - (lengths > 0).sum() < 2 * by_chance)


def _second_moment(x: Any, share: Tensor, bias: float) -> Tensor:
    """The Gram matrix of the rows (x, bias), each times its share."""
    if not isinstance(x, SparseRows):
        x = torch.cat([x * share[:, None], share[:, None] * bias], 1)
        return x.T @ x
    x, share = x.times(share), bias * share[None]
    cross = x.pull(share)
    return torch.cat([torch.cat([x.gram(), cross.T], 1), torch.cat([cross, share @ share.T], 1)])


def _pull(error: Tensor, x: Any) -> Tensor:
    """The product of the errors with the examples, of which many are summed in double precision."""
    if isinstance(x, SparseRows):
        return x.pull(error)
    whole = len(x) - len(x) % SUMMED
    if len(error) > 1 or not whole or error.dtype == torch.float64:
        return error @ x
    parts = error[:, :whole].reshape(-1, 1, SUMMED), x[:whole].reshape(-1, SUMMED, x.shape[1])
    return torch.bmm(*parts).sum(0, dtype=torch.float64) + error[:, whole:] @ x[whole:]


def _log_partition(z: Tensor) -> tuple[Tensor, Tensor]:
    """The log-partition of each column of logits, and its gradient."""
    if len(z) == 1:
        return torch.logaddexp(z[0], z.new_zeros(())), z.sigmoid()
    a = z.logsumexp(0)
    return a, (z - a).exp()
