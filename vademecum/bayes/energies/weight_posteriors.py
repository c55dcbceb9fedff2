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
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import floats, number
from vademecum.bayes.energies._dense_stacks import dense_stack
from vademecum.bayes.energies._likelihoods import likelihood_of
from vademecum.bayes.energies._priors import prior_of
from vademecum.bayes.energies._sources import Streamed, examples
from vademecum.gradients import functional
from vademecum.models import Output, cannot_be_mapped, map_tensors, warn_of_slow_path
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
        self, model: nn.Module, x: Any, y: Tensor | None, *, likelihood: Any, noise: float | Tensor,
        prior: Any, temperature: float, batch: int | None, control: Tensor | None, shared: bool,
        frozen: bool, output: Output,
    ):  # fmt: skip
        self._given = model, x, y, {
            "likelihood": likelihood, "noise": noise, "prior": prior, "temperature": temperature,
            "batch": batch, "control": control, "shared": shared, "frozen": frozen,
            "output": output,
        }  # fmt: skip
        self._f = functional(model, frozen=frozen, output=output)
        self.theta, self.size, self.unravel = self._f.theta, self._f.size, self._f.unravel
        if not self.size:
            raise ValueError("model must have parameters, and it has none")
        check = partial(likelihood_of, likelihood, noise)
        self._data = examples(x, y, batch, shared=shared, device=self._f.device, check=check)
        self.n = self._data.n
        x, y = self._data.first()
        self._likelihood = check(y)
        self._prior = prior_of(prior, self._f.shapes, self.theta)
        self._inverse_temperature = 1 / number("temperature", temperature, above=0)
        self._shared = shared or isinstance(self._data, Streamed)
        names, sizes = list(self._f.shapes), [s.numel() for s in self._f.shapes.values()]
        offsets = dict(zip(names, accumulate([0, *sizes[:-1]]), strict=True))
        self._stack = dense_stack(model, offsets, x) if output is None else None
        self._unmapped: set[bool] = set()  # whether inputs are chains' own, where vmap failed
        self._control: tuple[Tensor, Tensor, Tensor] | None = None
        if control is not None:
            if not self._data.random:
                raise ValueError("control must come with batch, and there is none")
            at = self._row("control", floats("control", control, ndim=1)[None])
            self._control = (at, *self._of_all(at))

    def __call__(self, theta: Float[Tensor, " chains P"]) -> Float[Tensor, " chains"]:
        """The energies of rows of parameters."""
        theta = self._row("theta", theta)
        found = self._prior(theta)
        for x, y in self._data.parts():
            found = found + self._likelihood.total(self._outputs(theta, x, False), y[None])
        return self._inverse_temperature * found

    def with_gradient(self, theta: Float[Tensor, " chains P"]) -> EnergyAndGradient:
        """The energies of rows of parameters, and their gradients."""
        theta = self._row("theta", theta).detach()
        return self._joined(theta, *self._of_all(theta))

    def gradient(self, theta: Float[Tensor, " chains P"]) -> Float[Tensor, " chains P"]:
        """The gradients alone, which costs a little less."""
        theta = self._row("theta", theta).detach()
        _, slope = self._of_all(theta, value=False)
        return self._joined(theta, None, slope).gradient

    def estimate(
        self, theta: Float[Tensor, " chains P"], *, generator: torch.Generator | None = None
    ) -> EnergyAndGradient:
        """Energies and gradients from a random part of the data, right on average.

        Args:
            theta: Rows of parameters.
            generator: Where random numbers come from; torch's global generator by default.
        """
        if not self._data.random:
            return self.with_gradient(theta)
        theta = self._row("theta", theta).detach()
        x, y, own, scale = self._data.part(len(theta), theta.device, generator)
        value, slope = (scale * t for t in self._of_data(theta, x, y, own=own))
        if self._control is not None:
            at, total, whole_slope = self._control
            rows = at if self._shared else at.expand(len(theta), -1)
            there = self._of_data(rows, x, y, own=own)
            value = value - scale * there[0] + total
            slope = slope - scale * there[1] + whole_slope
        return self._joined(theta, value, slope)

    def on(self, device: torch.device | str) -> "PosteriorEnergy":
        """The same energy on a device, with copies of the model and the data.

        Args:
            device: Where to bring them.
        """
        model, x, y, knobs = self._given
        if isinstance(self._data, Streamed):
            raise ValueError(
                "x must be at hand where chains are on several devices, got a DataLoader: processes"
                " of torchrun can have one each"
            )
        x, y, knobs = map_tensors((x, y, knobs), lambda t: t.to(device))
        return PosteriorEnergy(deepcopy(model).to(device), x, y, **knobs)

    def __repr__(self) -> str:
        return f"PosteriorEnergy({type(self._f.model).__name__}, n={self.n}, P={self.size})"

    def _of_all(self, theta: Tensor, *, value: bool = True) -> tuple[Tensor, Tensor]:
        """The same for all examples."""
        total, slope = theta.new_zeros(len(theta)), None
        for x, y in self._data.parts():
            more, other = self._of_data(theta, x, y[None], value=value)
            total, slope = total + more, other if slope is None else slope + other
        assert slope is not None
        return total, slope

    def _of_data(
        self, theta: Tensor, x: Any, y: Tensor, *, own: bool = False, value: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The likelihood's part of the energies, and of the gradients."""
        total = theta.new_zeros(len(theta))
        if self._stack is not None:
            with torch.no_grad():
                z, back = self._stack.pulled_back(theta, self._flat(x, own))
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
            return self._stack(theta, self._flat(x, own))
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

    def _flat(self, x: Tensor, own: bool) -> Tensor:
        return x.flatten(1 + own) if x.ndim > 2 + own else x

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
    y: Tensor | None = None,
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
        x: The inputs; a tensor, or any structure of tensors (see `functional`); or a `DataLoader`
            of inputs and targets. Its batches, the same for all chains, then make an `estimate`,
            for which it must shuffle; energies of all the data stream over them.
        y: The targets; None where `x` is a loader.
        likelihood: How targets follow from outputs: "gaussian" around them, "categorical" with
            logits, "bernoulli" with a logit each; or a function of outputs and targets that gives
            minus the log-likelihood of each example, (n,).
        noise: The standard deviation of Gaussian targets: a number, or what broadcasts to them.
        prior: The standard deviation of a Gaussian prior around zero: a number, one for each
            parameter (P,), or a mapping by name; or a function of rows (chains, P) that gives minus
            the log-density of each.
        temperature: What energies are divided by; 1 is Bayes' rule.
        batch: How many examples, drawn with replacement, make an `estimate`; all by default.
            A loader has its own.
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
