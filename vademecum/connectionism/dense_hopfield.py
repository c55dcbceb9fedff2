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

The step is exact up to rounding; `retrieve` stops when a state moves by no more than `tol`. The
claim `dense_hopfield_is_attention` checks step and energy.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from vademecum.arguments import floats, number, whole

__all__ = ["DenseHopfield", "DenseRetrieval"]


class DenseRetrieval(NamedTuple):
    """Where the steps led, how many each state took, and whether it had come to rest.

    Example:
        >>> DenseHopfield(torch.ones(1, 2)).retrieve(torch.zeros(2))
        DenseRetrieval(states=tensor([1., 1.]), steps=tensor(2), converged=tensor(True))
    """

    states: Float[Tensor, " *batch d"]
    steps: Int[Tensor, " *batch"]
    converged: Bool[Tensor, " *batch"]


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
        >>> memory(torch.tensor([torch.log(torch.tensor(3.0)), 0.0]))
        tensor([0.7500, 0.2500])
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
        """Make one step of retrieval."""
        queries = self._checked(states).reshape(1, 1, -1, states.shape[-1])
        p = self.patterns[None, None]
        return scaled_dot_product_attention(queries, p, p, scale=self.beta).reshape(states.shape)

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
        self, states: Float[Tensor, " *batch d"], *, steps: int = 100, tol: float = 1e-6
    ) -> DenseRetrieval:
        r"""Repeat the step until the states are at rest.

        Args:
            states: The starts.
            steps: How many steps to make at most.
            tol: A state is at rest when a step moves it by no more than this times $1 + \|x\|$.
        """
        whole("steps", steps, low=1)
        number("tol", tol, low=0)
        x = self._checked(states)
        done = torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)
        taken = done.long()
        for _ in range(steps):
            new = torch.where(done[..., None], x, self(x))
            taken = taken + ~done
            done = done | ((new - x).norm(dim=-1) <= tol * (1 + x.norm(dim=-1)))
            x = new
            if done.all():
                break
        return DenseRetrieval(x, taken, done)

    def _checked(self, states: Tensor) -> Tensor:
        x, p = floats("states", states, width=self.patterns.shape[1]), self.patterns
        if (x.dtype, x.device) != (p.dtype, p.device):
            raise ValueError(f"states must be {p.dtype} on {p.device}, got {x.dtype} on {x.device}")
        return x
