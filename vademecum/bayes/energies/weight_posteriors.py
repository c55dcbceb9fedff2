r"""The energy of a posterior over weights, for many weights at once.

With a likelihood of independent examples and a prior the posterior is $e^{-E(\theta)} / Z$,

$$E(\theta) = \frac1T \Big( - \sum_{i = 1}^n \log p(y_i \mid x_i, \theta) - \log p(\theta) \Big) +
\text{const},$$

with the temperature $T = 1$. For Gaussian noise $\delta$ and a Gaussian prior of scale $\sigma$ it
is $\frac1{2 \delta^2} \|y - f(\theta)\|^2 + \frac1{2 \sigma^2} \|\theta\|^2$. Constants are left
out. From $b$ examples, drawn with replacement, the sum is estimated by $\frac nb$ times theirs,
which is right on average; with a control point $\hat\theta$, at which the whole gradient is known,
by

$$\sum_{i = 1}^n \nabla \ell_i(\hat\theta) + \frac nb \sum_{i \in \text{batch}} \big( \nabla
\ell_i(\theta) - \nabla \ell_i(\hat\theta) \big),$$

whose noise vanishes where $\theta$ is there. The claim is `posterior_energy`.

References:
    Baker, Fearnhead, Fox and Nemeth, Control variates for stochastic gradient MCMC, Statistics and
    Computing, 2019.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, number, whole
from vademecum.bayes.energies._dense_stacks import dense_stack
from vademecum.bayes.energies._likelihoods import likelihood_of
from vademecum.bayes.energies._priors import prior_of
from vademecum.gradients import functional
from vademecum.models import (
    Output,
    cannot_be_mapped,
    count_examples,
    map_tensors,
    targets_of,
    warn_of_slow_path,
)
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["EnergyAndGradient", "PosteriorEnergy", "posterior"]

Prior = float | Tensor | Mapping[str, float] | Callable[[Tensor], Tensor]


class EnergyAndGradient(NamedTuple):
    """Energies of chains, and their gradients."""

    energy: Float[Tensor, " chains"]
    """The energies."""
    gradient: Float[Tensor, " chains P"]
    """Their gradients."""

    __repr__ = one_line


class PosteriorEnergy:
    r"""The energy $E(\theta)$ of a posterior: see `posterior`.

    Attributes:
        theta: The model's own parameters as one vector.
        size: How many there are, $P$.
        n: The number of examples.
        unravel: Turns rows of parameters into parameters by name.
    """

    def __init__(
        self, model: nn.Module, x: Any, y: Tensor, *, likelihood: Any, noise: float | Tensor,
        prior: Any, temperature: float, batch: int | None, control: Tensor | None, shared: bool,
        frozen: bool, output: Output,
    ):  # fmt: skip
        self._given = model, x, y, {
            "likelihood": likelihood, "noise": noise, "prior": prior, "temperature": temperature,
            "batch": batch, "control": control, "shared": shared, "frozen": frozen,
            "output": output,
        }  # fmt: skip
        self.n = count_examples(x, targets_of(y))
        self._f = functional(model, frozen=frozen, output=output)
        self.theta, self.size, self.unravel = self._f.theta, self._f.size, self._f.unravel
        if not self.size:
            raise ValueError("model must have parameters, and it has none")
        self._likelihood = likelihood_of(likelihood, noise, y)
        self._prior = prior_of(prior, self._f.shapes, self.theta)
        self._inverse_temperature = 1 / number("temperature", temperature, above=0)
        self._batch = None if batch is None else whole("batch", batch, low=1, high=self.n)
        self._shared = shared
        names, sizes = list(self._f.shapes), [s.numel() for s in self._f.shapes.values()]
        offsets = dict(zip(names, accumulate([0, *sizes[:-1]]), strict=True))
        self._stack = dense_stack(model, offsets, x) if output is None else None
        self._x = x.flatten(1) if self._stack is not None else x
        self._y = y
        self._unmapped: set[bool] = set()  # whether inputs are chains' own, where vmap failed
        self._control: tuple[Tensor, Tensor, Tensor] | None = None
        if control is not None:
            if self._batch is None:
                raise ValueError("control must come with batch, and there is none")
            at = self._row("control", floats("control", control, ndim=1)[None])
            self._control = (at, *self._of_data(at, self._x, self._y[None]))

    def __call__(self, theta: Float[Tensor, " chains P"]) -> Float[Tensor, " chains"]:
        """The energies of rows of parameters."""
        theta = self._row("theta", theta)
        found = self._likelihood.total(self._outputs(theta, self._x, False), self._y[None])
        return self._inverse_temperature * (found + self._prior(theta))

    def with_gradient(self, theta: Float[Tensor, " chains P"]) -> EnergyAndGradient:
        """The energies of rows of parameters, and their gradients."""
        theta = self._row("theta", theta).detach()
        value, slope = self._of_data(theta, self._x, self._y[None])
        return self._joined(theta, value, slope)

    def gradient(self, theta: Float[Tensor, " chains P"]) -> Float[Tensor, " chains P"]:
        """The gradients alone, which costs a little less."""
        theta = self._row("theta", theta).detach()
        _, slope = self._of_data(theta, self._x, self._y[None], value=False)
        return self._joined(theta, None, slope).gradient

    def estimate(
        self, theta: Float[Tensor, " chains P"], *, generator: torch.Generator | None = None
    ) -> EnergyAndGradient:
        """Energies and gradients from a random part of the data, right on average.

        Args:
            theta: Rows of parameters.
            generator: Where random numbers come from; torch's global generator by default.
        """
        if self._batch is None:
            return self.with_gradient(theta)
        theta = self._row("theta", theta).detach()
        size = (self._batch,) if self._shared else (len(theta), self._batch)
        index = torch.randint(self.n, size, **source(generator, theta.device)).to(theta.device)
        x = map_tensors(self._x, lambda t: t[index])
        y = self._y[index] if index.ndim == 2 else self._y[index][None]
        scale = self.n / self._batch
        value, slope = (scale * t for t in self._of_data(theta, x, y, own=index.ndim == 2))
        if self._control is not None:
            at, total, whole_slope = self._control
            rows = at if self._shared else at.expand(len(theta), -1)
            there = self._of_data(rows, x, y, own=index.ndim == 2)
            value = value - scale * there[0] + total
            slope = slope - scale * there[1] + whole_slope
        return self._joined(theta, value, slope)

    def on(self, device: torch.device | str) -> "PosteriorEnergy":
        """The same energy on a device, with copies of the model and the data.

        Args:
            device: Where to bring them.
        """
        model, x, y, knobs = self._given
        x, y, knobs = map_tensors((x, y, knobs), lambda t: t.to(device))
        return PosteriorEnergy(deepcopy(model).to(device), x, y, **knobs)

    def __repr__(self) -> str:
        return f"PosteriorEnergy({type(self._f.model).__name__}, n={self.n}, P={self.size})"

    def _of_data(
        self, theta: Tensor, x: Any, y: Tensor, *, own: bool = False, value: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The likelihood's part of the energies, and of the gradients."""
        total = theta.new_zeros(len(theta))
        if self._stack is not None:
            with torch.no_grad():
                z, back = self._stack.pulled_back(theta, x)
                total = self._likelihood.total(z, y) if value else total
                return total, back(self._likelihood.slope(z, y))
        with torch.enable_grad():
            at = theta.detach().requires_grad_()
            total = self._likelihood.total(self._outputs(at, x, own), y)
            (slope,) = torch.autograd.grad(total.sum(), at, materialize_grads=True)
        return total.detach(), slope

    def _outputs(self, theta: Tensor, x: Any, own: bool) -> Tensor:
        """The model's outputs (chains, n, ...), each chain with inputs of its own or all alike."""
        if self._stack is not None:
            return self._stack(theta, x)
        if own not in self._unmapped:
            try:
                return _tensor(torch.func.vmap(self._f, (0, 0 if own else None))(theta, x))
            except RuntimeError as error:
                if not cannot_be_mapped(error):
                    raise
                warn_of_slow_path("chains are asked one by one", error)
                self._unmapped.add(own)
        inputs = [map_tensors(x, itemgetter(i)) if own else x for i in range(len(theta))]
        return torch.stack([_tensor(self._f(*pair)) for pair in zip(theta, inputs, strict=True)])

    def _joined(self, theta: Tensor, value: Tensor | None, slope: Tensor) -> EnergyAndGradient:
        """Prior and temperature added to what the data say."""
        energy, own = self._prior.with_gradient(theta, value is not None)
        energy = energy if value is None else energy + value
        slope = slope + own
        if self._inverse_temperature != 1:
            energy, slope = (t * self._inverse_temperature for t in (energy, slope))
        return EnergyAndGradient(energy, slope)

    def _row(self, name: str, theta: Tensor) -> Tensor:
        if theta.ndim != 2 or theta.shape[1] != self.size or theta.dtype != self.theta.dtype:
            raise ValueError(
                f"{name} must be {self.size} wide and of dtype {self.theta.dtype}, got shape"
                f" {tuple(theta.shape[-1:] if name == 'control' else theta.shape)} and"
                f" {theta.dtype}"
            )
        return theta


def _tensor(z: Any) -> Tensor:
    if not isinstance(z, Tensor):
        raise ValueError(f"model must give a tensor, got {type(z).__name__}: set output")
    return z


def posterior(
    model: nn.Module,
    x: Any,
    y: Tensor,
    *,
    likelihood: Literal["gaussian", "categorical", "bernoulli"]
    | Callable[[Tensor, Tensor], Tensor],
    noise: float | Tensor = 1.0,
    prior: Prior = 1.0,
    temperature: float = 1.0,
    batch: int | None = None,
    control: Float[Tensor, " P"] | None = None,
    shared: bool = False,
    frozen: bool = True,
    output: Output = None,
) -> PosteriorEnergy:
    r"""The energy of the posterior over a model's weights, of many weights at once.

    The model is taken in evaluation mode and never changed. Stacks of dense layers take a product
    of matrices a layer for all chains; of other models `torch.func.vmap` makes one of many.

    Args:
        model: Any module.
        x: The inputs; a tensor, or any structure of tensors (see `functional`).
        y: The targets.
        likelihood: How targets follow from outputs: "gaussian" around them, "categorical" with
            logits, "bernoulli" with a logit each; or a function of outputs and targets that gives
            minus the log-likelihood of each example, (n,).
        noise: The standard deviation of Gaussian targets: a number, or what broadcasts to them.
        prior: The standard deviation of a Gaussian prior around zero: a number, one for each
            parameter (P,), or a mapping by name; or a function of rows (chains, P) that gives minus
            the log-density of each.
        temperature: What energies are divided by; 1 is Bayes' rule.
        batch: How many examples, drawn with replacement, make an `estimate`; all by default.
        control: A point near which chains stay, often the mode: estimates are then of the
            difference to it, and less noisy. It costs a second gradient.
        shared: Whether all chains see the same batch: faster, but chains then move together.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        A function of rows of parameters (chains, P), a `PosteriorEnergy`, with the methods
        `with_gradient`, `gradient` and `estimate`, and `theta`, the model's own parameters.

    Raises:
        ValueError: If targets do not fit the likelihood, or a scale is not positive.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [3.0]])
        >>> energy = posterior(nn.Linear(1, 1, bias=False), x, y, likelihood="gaussian")
        >>> energy(torch.tensor([[0.0], [2.0]]))  # (1 + 9) / 2, and (1 + 1 + 4) / 2
        tensor([5., 3.])
        >>> energy.with_gradient(torch.tensor([[2.0]])).gradient  # 1 + 2 + 2
        tensor([[5.]])
    """
    return PosteriorEnergy(
        model, x, y, likelihood=likelihood, noise=noise, prior=prior, temperature=temperature,
        batch=batch, control=control, shared=shared, frozen=frozen, output=output,
    )  # fmt: skip
