r"""The restricted Boltzmann machine, learnt by contrastive divergence.

The law $p(v, h) = e^{a^\top v + b^\top h + h^\top W v} / Z$ of binary units has the likelihood
gradient

$$\frac{\partial \log p(v)}{\partial W} = \mathbb E[h \mid v]\, v^\top - \mathbb E_p[h v^\top],
\qquad \frac{\partial \log p(v)}{\partial a} = v - \mathbb E_p[v], \qquad
\frac{\partial \log p(v)}{\partial b} = \mathbb E[h \mid v] - \mathbb E_p[h].$$

The second terms come from chains of Gibbs steps: begun at the examples (CD-k, biased for any finite
k), or continued from update to update (persistent, whose bias falls with the learning rate). Given
the weights, likelihoods are exact while the smaller layer has at most 20 units; beyond, annealed
importance sampling gives the constant. Checked by the claims
`generative.restricted_boltzmann_machine` and `generative.energy_model_gradient`.
"""

from typing import Any

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import floats, number, whole
from vademecum.estimators import like_input
from vademecum.generative._binary_rows import binary_rows
from vademecum.generative.boltzmann._contrast import ascend
from vademecum.generative.boltzmann._draws import annealed_draws, exact_draws
from vademecum.generative.boltzmann._enumeration import MOST
from vademecum.generative.boltzmann._units import Units, bernoulli
from vademecum.generative.boltzmann.partition import (
    Annealed,
    LogPartition,
    annealed,
    annealed_partition,
    exact_partition,
)

__all__ = ["RestrictedBoltzmannMachine"]

SMALL = 0.01  # the standard deviation of the first weights
CHAINS, TEMPERATURES = 100, 1000


class RestrictedBoltzmannMachine(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Binary units in two layers, each independent given the other layer.

    Given arrays it is a scikit-learn transformer; given tensors it works on their device and
    answers with tensors. Unlike scikit-learn's `BernoulliRBM`, whose score is a pseudo-likelihood,
    it scores examples by their likelihood. Visible log-odds start at those of the examples.

    Args:
        n_components: The number m of hidden units.
        learning_rate: The first step of the stochastic gradient ascent, at most 1000; in the second
            half of `fit` it falls to 0, in `partial_fit` it stays.
        batch_size: How many examples an update uses, and how many persistent chains there are.
        n_iter: How many passes over the examples are made.
        gibbs_steps: The k of CD-k: steps of the chains for each update.
        persistent: Whether chains go on from update to update, or begin at examples.
        binarize: Numbers above it count as 1, others as 0; without it examples must be 0 or 1.
        random_state: Where random numbers come from, as in scikit-learn.
        progress: Whether to show a progress bar on standard error.

    Attributes:
        components_: The weights $W$, of shape (m, d).
        intercept_visible_: The log-odds $a$.
        intercept_hidden_: The log-odds $b$.

    References:
        Hinton, Training products of experts by minimizing contrastive divergence, Neural
        Computation, 2002.
        Tieleman, Training restricted Boltzmann machines using approximations to the likelihood
        gradient, ICML, 2008.
        Salakhutdinov and Murray, On the quantitative analysis of deep belief networks, ICML, 2008.

    Example:
        >>> zero = torch.zeros(1).double()
        >>> machine = RestrictedBoltzmannMachine.from_parameters(zero[None], zero, zero + 1)
        >>> machine.score_samples(torch.tensor([[0.0], [1.0]]).double()).exp()
        tensor([0.5000, 0.5000], dtype=torch.float64)
        >>> round(machine.log_partition().value, 6)  # log of 2 (1 + e)
        2.006409
    """

    n_features_in_: int
    _seed: int
    _partition: LogPartition | None
    _chains: Tensor | None
    _state: Tensor | None
    _base: Tensor

    def __init__(
        self, n_components=256, *, learning_rate=0.1, batch_size=10, n_iter=10, gibbs_steps=1,
        persistent=True, binarize=None, random_state=None, progress=False,
    ):  # fmt: skip
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.gibbs_steps = gibbs_steps
        self.persistent = persistent
        self.binarize = binarize
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @classmethod
    def from_parameters(
        cls, components: Any, intercept_visible: Any, intercept_hidden: Any
    ) -> "RestrictedBoltzmannMachine":
        """A machine with known numbers, as if it had been fitted.

        Args:
            components: The weights W, of shape (m, d), an array or a tensor.
            intercept_visible: The log-odds a, d of them.
            intercept_hidden: The log-odds b, m of them.
        """
        W = floats("components", torch.as_tensor(components), ndim=2)
        m, d = W.shape
        a = floats("intercept_visible", torch.as_tensor(intercept_visible), ndim=1, width=d)
        b = floats("intercept_hidden", torch.as_tensor(intercept_hidden), ndim=1, width=m)
        machine = cls(m)
        machine.n_features_in_ = d
        machine._start(a.to(W), 0)
        machine._keep(Units(W, a.to(W), b.to(W)), components)
        return machine

    def fit(self, X: Any, y: Any = None) -> "RestrictedBoltzmannMachine":
        """Learn from the examples, in `n_iter` passes; `y` is ignored.

        Raises:
            ValueError: If examples are not binary and there is no `binarize`, or a parameter is
                out of range.
        """
        x = binary_rows(self, X, reset=True)
        self._begin(x, X)
        self._learn(x, X, whole("n_iter", self.n_iter, low=1), falling=True)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> "RestrictedBoltzmannMachine":
        """Go on learning, with one pass over these examples; `y` is ignored."""
        fresh = not hasattr(self, "components_")
        x = binary_rows(self, X, reset=fresh)
        if fresh:
            self._begin(x, X)
        self._learn(x, X, 1, falling=False)
        return self

    def transform(self, X: Any) -> Any:
        r"""The probabilities $P(h_j = 1 \mid v)$ of the hidden units, of shape (n, m)."""
        check_is_fitted(self)
        x = binary_rows(self, X)
        return like_input(self._units(x).hidden_given(x), X)

    def free_energy(self, X: Any) -> Any:
        r"""The $F(v) = -\log \sum_h e^{a^\top v + b^\top h + h^\top W v}$ of each example."""
        check_is_fitted(self)
        x = binary_rows(self, X)
        return like_input(-self._units(x).log_weight(x), X)

    def score_samples(self, X: Any) -> Any:
        r"""The log-likelihood $-F(v) - \log Z$ of each example.

        The constant is computed when it is first asked for, and kept: exactly while the smaller
        layer has at most 20 units, else by `log_partition` with its defaults.
        """
        check_is_fitted(self)
        x = binary_rows(self, X)
        if self._partition is None:
            self._partition = self.log_partition()
        weight = self._units(x).double().log_weight(x.double())  # two large numbers' difference
        return like_input((weight - self._partition.value).to(x), X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the examples; `y` is ignored."""
        return float(self.score_samples(X).mean())

    def log_partition(
        self,
        *,
        n_chains: int = CHAINS,
        n_temperatures: int = TEMPERATURES,
        random_state: Any = None,
    ) -> LogPartition:
        """The logarithm of the constant Z.

        Args:
            n_chains: How many annealed chains are run, where states are too many to count.
            n_temperatures: How many laws they pass.
            random_state: Where their random numbers come from; the same ones each time by default.
        """
        check_is_fitted(self)
        if self._exact():
            return exact_partition(self._units())
        return annealed_partition(self._anneal(n_chains, n_temperatures, random_state))

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Any:
        """Draw visible states.

        They are exact and independent while the smaller layer has at most 20 units. Beyond, they
        are ends of annealed chains, drawn by their weights: independent but for repetitions, and
        exact in the limit of many temperatures.

        Args:
            n_samples: How many.
            random_state: Where random numbers come from; that of the machine by default.
        """
        check_is_fitted(self)
        n, generator = whole("n_samples", n_samples, low=1), self._chosen(random_state)
        if self._exact():
            v = exact_draws(self._units(), n, generator)
        else:
            run = self._anneal(max(n, CHAINS), TEMPERATURES, generator)
            v = annealed_draws(run, n, generator)
        return like_input(v, self.components_)

    def gibbs(self, X: Any, *, n_steps: int = 1, random_state: Any = None) -> Any:
        """Visible states after some steps of Gibbs, each hidden layer and then visible.

        Args:
            X: Visible states to begin at.
            n_steps: How many steps.
            random_state: Where random numbers come from; that of the machine by default.
        """
        check_is_fitted(self)
        x = binary_rows(self, X)
        units, generator = self._units(x), self._chosen(random_state)
        h = bernoulli(units.hidden_given(x), generator)
        return like_input(units.sweep(h, whole("n_steps", n_steps, low=1), generator)[0], X)

    def _begin(self, x: Tensor, X: Any) -> None:
        m, d = whole("n_components", self.n_components, low=1), x.shape[1]
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        a = ((x.sum(0) + 0.5) / (len(x) + 1)).logit()  # of shares that are never 0 or 1
        source = torch.Generator(x.device).manual_seed(seed)
        weights = torch.empty(m, d, dtype=x.dtype, device=x.device)
        weights.normal_(0, SMALL, generator=source)
        self._start(a, seed)
        self._state = source.get_state()
        self._keep(Units(weights, a.clone(), a.new_zeros(m)), X)

    def _start(self, base: Tensor, seed: int) -> None:
        """What annealed chains begin with, and no state of learning."""
        self._base, self._seed, self._chains, self._state = base, seed, None, None

    def _learn(self, x: Tensor, X: Any, passes: int, *, falling: bool) -> None:
        units = Units(*(part.clone() for part in self._units(x)))
        source = self._generator(self._seed)
        if self._state is not None:
            source.set_state(self._state)
        size = whole("batch_size", self.batch_size, low=1)
        chains = None if self._chains is None else self._chains.to(x)
        self._chains = ascend(
            units, x, chains, passes=passes, size=size, generator=source,
            eta=number("learning_rate", self.learning_rate, above=0, high=1e3),
            steps=whole("gibbs_steps", self.gibbs_steps, low=1),
            persistent=bool(self.persistent), falling=falling, progress=bool(self.progress),
        )  # fmt: skip
        self._state = source.get_state()
        self._keep(units, X)

    def _keep(self, units: Units, like: Any) -> None:
        W, a, b = (like_input(part, like) for part in units)
        self.components_, self.intercept_visible_, self.intercept_hidden_ = W, a, b
        self._partition = None

    def _units(self, like: Tensor | None = None) -> Units:
        parts = self.components_, self.intercept_visible_, self.intercept_hidden_
        made = [torch.as_tensor(part) for part in parts]
        return Units(*(made if like is None else [part.to(like) for part in made]))

    def _exact(self) -> bool:
        return min(self.components_.shape) <= MOST

    def _generator(self, state: Any) -> torch.Generator:
        if isinstance(state, torch.Generator):
            return state
        seed = int(check_random_state(state).randint(2**31 - 1))
        return torch.Generator(torch.as_tensor(self.components_).device).manual_seed(seed)

    def _chosen(self, state: Any) -> torch.Generator:
        return self._generator(self.random_state if state is None else state)

    def _anneal(self, chains: int, temperatures: int, state: Any) -> Annealed:
        units = self._units()
        return annealed(
            units, self._base.to(units.weights), progress=bool(self.progress),
            chains=whole("n_chains", chains, low=2),
            temperatures=whole("n_temperatures", temperatures, low=1),
            generator=self._generator(self._seed if state is None else state),
        )  # fmt: skip

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
