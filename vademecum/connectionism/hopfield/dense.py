r"""The dense associative memory with continuous states, whose retrieval is attention.

The patterns are the rows of $P \in \mathbb{R}^{s \times d}$, a state is $x \in \mathbb{R}^d$, and

$$E(x) = -\frac1\beta \log \sum_{t=1}^s e^{\beta \langle p_t, x \rangle} + \frac12 \|x\|^2
+ \frac{\log s}{\beta} + \frac12 \max_t \|p_t\|^2 \ge 0 .$$

One step of retrieval,

$$x \leftarrow P^\top \mathrm{softmax}(\beta P x),$$

is attention with the queries $x$, and $P$ as keys and values. The first term of $E$ is concave and
the second one convex, and the step minimises the second plus the tangent of the first: hence $E$
never rises (the concave-convex procedure), and falls by at least $\frac12 \|\Delta x\|^2$. Random
patterns are told apart in a number exponential in $d$, where the Hebbian network holds $0.138 d$.

The step is exact up to rounding; `retrieve` stops when a state moves by no more than `tol`. It is
torch's fused attention, except on a GPU in single and double precision, which has no fast kernel
for it: there the scores are made, some at a time, unless gradients would have to keep them. The
claim `dense_hopfield_is_attention` checks step and energy.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from vademecum.arguments import floats, number, whole
from vademecum.arrays import portions
from vademecum.connectionism.hopfield.retrieval import Retrieval, with_warning

__all__ = ["DenseHopfield"]

# Bytes of scores, and of their exponentials; on an H200 portions of half of it take a tenth longer.
_PORTION = 2**28


class DenseHopfield(nn.Module):
    r"""A memory for real vectors that retrieves by attention.

    Args:
        patterns: The patterns $P$, one a row.
        beta: The inverse temperature $\beta$: the larger, the closer a single pattern is met.
        learnable: Whether the patterns are a parameter to train.

    References:
        Ramsauer et al., Hopfield Networks is All You Need, ICLR, 2021. Krotov, Hopfield, Dense
        Associative Memory for Pattern Recognition, NeurIPS, 2016.

    Example:
        >>> memory = DenseHopfield(torch.eye(2), beta=1.0)
        >>> memory.step(torch.tensor([torch.log(torch.tensor(3.0)), 0.0]))
        tensor([0.7500, 0.2500])
        >>> memory.retrieve(torch.tensor([1.0, 0.0])).states  # hot: only their mean is at rest
        tensor([0.5000, 0.5000])
    """

    patterns: Tensor

    def __init__(
        self, patterns: Float[Tensor, " s d"], *, beta: float = 1.0, learnable: bool = False
    ):
        super().__init__()
        patterns = floats("patterns", patterns, ndim=2).detach().clone()
        self.beta = number("beta", beta, above=0)
        if learnable:
            self.patterns = nn.Parameter(patterns)
        else:
            self.register_buffer("patterns", patterns)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        s, d = self.patterns.shape
        return f"patterns={s}, d={d}, beta={self.beta:g}"

    def forward(self, states: Float[Tensor, " *batch d"]) -> Float[Tensor, " *batch d"]:
        """Retrieve: the states at rest; differentiable, through all the steps."""
        return self.retrieve(states).states

    def step(self, states: Float[Tensor, " *batch d"]) -> Float[Tensor, " *batch d"]:
        """One step of the dynamics."""
        seen: list[Callable[[], bool]] = []
        new = self._attend(self._fitting(states), seen)
        if not seen[0]():
            floats("states", states)
        return new

    def energy(self, states: Float[Tensor, " *batch d"]) -> Float[Tensor, " *batch"]:
        """The energy, which no step raises.

        Example:
            >>> DenseHopfield(torch.eye(2)).energy(torch.zeros(2))
            tensor(0.5000)
        """
        x, s = self._checked(states), len(self.patterns)
        soft_maximum = torch.logsumexp(self.beta * (x @ self.patterns.T), -1) / self.beta
        constant = x.new_tensor(s).log() / self.beta + self.patterns.square().sum(1).max() / 2
        return x.square().sum(-1) / 2 - soft_maximum + constant

    def retrieve(
        self,
        states: Float[Tensor, " *batch d"],
        *,
        max_iter: int = 1000,
        tol: float = 1e-6,
        trajectory: bool = False,
    ) -> Retrieval:
        r"""Repeat the step until the states are at rest.

        Args:
            states: The starts.
            max_iter: The most iterations; reaching it gives a `ConvergenceWarning`.
            tol: A state is at rest when a step moves it by no more than this times $1 + \|x\|$.
            trajectory: Whether to keep the states and energies at the start and after each step.
        """
        whole("max_iter", max_iter, low=1)
        number("tol", tol, low=0)
        x = self._checked(states)
        done = torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)
        n_iter, path = done.long(), [x]
        for _ in range(max_iter):
            new = torch.where(done[..., None], x, self._attend(x))
            n_iter = n_iter + ~done
            moved, size = (new - x).norm(dim=-1), x.norm(dim=-1)
            done = done | ~(moved > tol * (1 + size))  # which NaN is not, either
            x = new
            if trajectory:
                path.append(x)
            if done.all():
                break
        if not torch.isfinite(x).all():
            raise ValueError(f"beta <p, x> must be finite in {x.dtype}, got others")
        kept = torch.stack(path) if trajectory else None
        energies = torch.stack([self.energy(each) for each in path]) if trajectory else None
        end = Retrieval(x, n_iter, done, done.long(), kept, energies)
        return with_warning(end, max_iter)

    def _attend(self, states: Tensor, seen: list[Callable[[], bool]] | None = None) -> Tensor:
        """The states after a step. `seen` gets what tells whether those before were finite."""
        x, p = states.reshape(-1, states.shape[-1]), self.patterns
        keeps = torch.is_grad_enabled() and (x.requires_grad or p.requires_grad)
        if not keeps and x.is_cuda and x.dtype in (torch.float32, torch.float64):
            new = _by_scores(x, p, self.beta, seen)
        else:
            q, p = x[None, None], p[None, None]
            new = scaled_dot_product_attention(q, p, p, scale=self.beta)
            if seen is not None:
                seen.append(_finite(x))
        return new.reshape(states.shape)

    def _fitting(self, states: Tensor) -> Tensor:
        """States of the right shape and kind, whatever their numbers."""
        x, p = states, self.patterns
        if not (isinstance(x, Tensor) and x.numel()) or (*x.shape[-1:], x.dtype, x.device) != (
            p.shape[1],
            p.dtype,
            p.device,
        ):
            floats("states", x, width=p.shape[1])
            raise ValueError(f"states must be {p.dtype} on {p.device}, got {x.dtype} on {x.device}")
        return x

    def _checked(self, states: Tensor) -> Tensor:
        return floats("states", self._fitting(states))


def _by_scores(x: Tensor, p: Tensor, beta: float, seen: list[Callable[[], bool]] | None) -> Tensor:
    """The states after a step, from some scores at a time."""
    new = []
    for part in portions(len(x), each=2 * x.itemsize * len(p), memory=_PORTION):
        scores = torch.addmm(p.new_empty(()), x[part], p.T, beta=0, alpha=beta)
        if seen is not None and not seen:  # launched while the product is computed
            seen.append(_finite(x))
        new.append(torch.softmax(scores, -1) @ p)
    return torch.cat(new) if len(new) > 1 else new[0]


def _finite(x: Tensor) -> Callable[[], bool]:
    """What tells whether all numbers are finite, and waits for no later work of a GPU."""
    zero = (0 * x.detach()).sum().to("cpu", non_blocking=True)
    done = torch.cuda.current_stream(x.device).record_event() if x.is_cuda else None

    def finite() -> bool:
        if done is not None:
            done.synchronize()
        return float(zero) == 0

    return finite
