r"""Which examples a step sees: important ones more often, or easy ones first.

**Importance.** Example $i$ of $n$ is drawn with probability $p_i > 0$, and its loss counts with the
weight $w_i = 1 / (n p_i)$, so that the mean of $w_i \nabla f_i$ is the full gradient
$\bar g = \frac1n \sum_i \nabla f_i$ whatever $p$. Its variance is smallest for
$p_i \propto \|\nabla f_i\|$, namely $(\frac1n \sum_i \|\nabla f_i\|)^2 - \|\bar g\|^2$. Scores that
are guesses of these norms are mixed with equal shares,

$$p_i = (1 - \lambda) \frac{s_i}{\sum_j s_j} + \frac\lambda n ,$$

after which no weight exceeds $1 / \lambda$. Without weights one descends on another objective.

**Curriculum.** Examples come in the order of a difficulty, the easiest first; or only an easy share
of them comes at all, which is raised as the model improves.

The claims are `optimization.importance_sampling` and `optimization.curriculum`.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Sampler

from vademecum.arguments import floats, number, whole
from vademecum.randomness import source

__all__ = ["CurriculumSampler", "ImportanceSampler"]


class ImportanceSampler(Sampler[int]):
    r"""Draws examples in proportion to scores, with the weights that keep gradients unbiased.

    A data set that also gives the index of an example lets a loop look up its weight:
    `(sampler.weights[index] * losses).mean()` has the gradient of the mean loss as its mean.

    Args:
        scores: A number for each example, at least 0: how often to draw it, relatively. Norms of
            per-example gradients are best.
        size: How many indices a pass draws, with replacement; by default as many as examples.
        uniform: The share $\lambda$ of draws that are made with equal probabilities; no weight
            exceeds $1 / \lambda$. It must be positive where scores are 0.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> sampler = ImportanceSampler(torch.tensor([1.0, 3.0]), uniform=0.2)
        >>> sampler.probabilities, sampler.weights
        (tensor([0.3000, 0.7000]), tensor([1.6667, 0.7143]))
        >>> len(list(sampler))
        2
    """

    probabilities: Float[Tensor, " n"]
    """With which each example is drawn in this pass."""
    weights: Float[Tensor, " n"]
    """What its loss counts in this pass, $1 / (n p_i)$."""

    def __init__(
        self,
        scores: Float[Tensor, " n"],
        *,
        size: int | None = None,
        uniform: float = 0.0,
        generator: torch.Generator | None = None,
    ):
        self._uniform = number("uniform", uniform, low=0, high=1)
        self._scores = self._accepted(scores).clone()
        self._size = whole("size", len(scores) if size is None else size, low=1)
        self._generator = generator
        self._prepare()

    def update(self, index: Int[Tensor, " b"], scores: Float[Tensor, " b"]) -> None:
        """Set new scores for some examples; they count from the next pass on.

        Indices that a loader has drawn ahead keep the weights that they were drawn for.

        Args:
            index: Which examples.
            scores: Their scores.
        """
        new = self._scores.clone()
        if index.ndim != 1 or index.is_floating_point() or index.shape != scores.shape:
            raise ValueError(
                f"index must be integers, one for each score, got shape {tuple(index.shape)} and"
                f" {index.dtype} for scores of {tuple(scores.shape)}"
            )
        if len(index) and not (int(index.min()) >= 0 and int(index.max()) < len(new)):
            raise ValueError(f"index must be in 0 ... {len(new) - 1}, got {index.tolist()}")
        new[index.to(new.device)] = scores.detach().to(new)
        self._scores = self._accepted(new)

    def __iter__(self) -> Iterator[int]:
        self._prepare()
        where = source(self._generator, self.probabilities.device)
        levels = self._levels.to(where["device"])
        u = torch.rand(self._size, dtype=torch.float64, **where) * levels[-1]
        drawn = torch.searchsorted(levels, u, right=True)
        yield from drawn.clamp(max=len(levels) - 1).tolist()

    def __len__(self) -> int:
        return self._size

    def _prepare(self) -> None:
        scores, n = self._scores.double(), len(self._scores)
        p = scores / scores.max()  # the sum of huge ones would overflow
        p = (1 - self._uniform) * p / p.sum() + self._uniform / n
        self._levels = p.cumsum(0)  # in double precision, or rare examples would never come
        self.probabilities = p.to(self._scores)
        self.weights = (1 / (n * p)).to(self._scores)

    def _accepted(self, scores: Tensor) -> Tensor:
        scores = floats("scores", scores, ndim=1).detach()
        if scores.is_complex():
            raise ValueError(f"scores must be real, got {scores.dtype}")
        least = float(scores.min())
        if least < 0 or (least == 0 and not self._uniform) or not scores.any():
            wanted = ">= 0 and not all 0" if self._uniform else "> 0 where uniform is 0"
            raise ValueError(f"scores must be {wanted}, got {least:g} at {int(scores.argmin())}")
        return scores


class CurriculumSampler(Sampler[int]):
    r"""Gives the easy share of the examples, the easiest first or shuffled.

    Args:
        difficulty: A number for each example, the larger the harder; margins with a minus sign,
            lengths of sentences, losses of another model. Ties keep the order of the data.
        share: The share of examples, from the easiest on, that a pass gives: in $(0, 1]$. Set the
            attribute to raise it; at least one example is given.
        shuffle: Whether a pass gives them in random order.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> sampler = CurriculumSampler(torch.tensor([0.3, 0.1, 0.9, 0.5]), share=0.5)
        >>> list(sampler)
        [1, 0]
        >>> sampler.share = 1.0
        >>> list(sampler)
        [1, 0, 3, 2]
    """

    def __init__(
        self,
        difficulty: Float[Tensor, " n"],
        *,
        share: float = 1.0,
        shuffle: bool = False,
        generator: torch.Generator | None = None,
    ):
        self._order = floats("difficulty", difficulty, ndim=1).detach().argsort(stable=True)
        self._shuffle, self._generator = shuffle, generator
        self.share = share

    @property
    def share(self) -> float:
        """The share of examples, from the easiest on, that a pass gives."""
        return self._share

    @share.setter
    def share(self, share: float) -> None:
        self._share = number("share", share, above=0, high=1)

    def __iter__(self) -> Iterator[int]:
        easy = self._order[: len(self)]
        if self._shuffle:
            where = source(self._generator, "cpu")
            easy = easy[torch.randperm(len(easy), **where).to(easy.device)]
        yield from easy.tolist()

    def __len__(self) -> int:
        return math.ceil(self._share * len(self._order) * (1 - 1e-12))  # 0.07 of 100 is 7
