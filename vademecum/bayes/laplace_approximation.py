r"""Laplace's approximation: a normal law around the weights that training found.

At a minimum $\hat\theta$ of $-\log p(S \mid \theta) + \|\theta\|^2 / 2 \sigma^2$ the posterior is
taken as $\mathcal N(\hat\theta, \Sigma)$, $\Sigma^{-1} = G + I / \sigma^2$, with the Gauss-Newton
matrix $G$ of the log-likelihood for its Hessian, all of it or in the form of a diagonal or of
Kronecker products. The network is linearised there, as the Gauss-Newton matrix does, so that

$$f(x) \sim \mathcal N(f_{\hat\theta}(x),\ J(x)\, \Sigma\, J(x)^\top), \qquad \log p(S) \approx \log
p(S \mid \hat\theta) - \frac{\|\hat\theta\|^2}{2 \sigma^2} - \frac12 \sum_j \log(1 + \sigma^2
\lambda_j)$$

with the eigenvalues $\lambda_j$ of $G$. The evidence has one maximum in $\sigma$, where
$\|\hat\theta\|^2 = \sum_j \sigma^4 \lambda_j / (1 + \sigma^2 \lambda_j)$, whose right side grows.

Exact for linear networks with Gaussian noise, if $\hat\theta$ is the minimum; else an
approximation. Logits become probabilities by draws (`posterior_predictive`), or by
$\operatorname{softmax}(f_c / \sqrt{1 + \pi v_c / 8})$ with the variances $v_c$.

References:
    MacKay, A practical Bayesian framework for backpropagation networks, Neural Computation, 1992.
    Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig, Laplace redux: effortless Bayesian
    deep learning, NeurIPS, 2021.
"""

import math
from contextlib import closing
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vademecum.arguments import choice, number, whole
from vademecum.bayes._curvature_blocks import Curvature
from vademecum.bayes._evidence import best_prior, log_evidence
from vademecum.bayes._last_layer import LastLayerSums, features, last_call
from vademecum.bayes._linearised_outputs import OutputLaw, of_last_layer, of_network
from vademecum.bayes._network_curvature import NetworkSums
from vademecum.bayes._output_curvature import OutputCurvature
from vademecum.gradients import functional
from vademecum.gradients.network_function import Functional
from vademecum.models import Output, batches, count_examples, refuse_nan
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Laplace", "laplace"]


class Laplace(NamedTuple):
    """A normal law around the weights of a network.

    Example:
        >>> x, y = torch.tensor([[1.0], [1.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
        >>> found = laplace(nn.Linear(1, 1, bias=False).double(), x, y, likelihood="gaussian")
        >>> found.outputs(x[:1]).variance  # 1 / (1 + 1 + 1)
        tensor([[0.3333]], dtype=torch.float64)
    """

    model: nn.Module
    """The network, with the weights that it had."""
    mean: Float[Tensor, " P"]
    """The weights that the law is of, as one vector: the rows of (W, b) of the last layer, or all
    in the order of `functional`."""
    places: Int[Tensor, " P"]
    """Where they are in `functional(model).theta`."""
    curvature: Curvature
    r"""The eigenvalues `values` of the Gauss-Newton matrix, and its eigenvectors."""
    prior: float
    r"""The standard deviation $\sigma$ of the prior."""
    likelihood: str
    """The likelihood's name."""
    noise: float
    """The standard deviation of Gaussian noise."""
    log_evidence: float
    """The logarithm of the evidence in this approximation."""
    effective_parameters: float
    r"""How many parameters the data determine, $\sum_j \lambda_j / (\lambda_j + \sigma^{-2})$."""
    layer: str | None
    """The name of the last layer, where the law is of its weights alone."""
    options: dict[str, Any]
    """What counts of the parameters and of what the network gives."""

    __repr__ = one_line

    def sample(
        self, draws: int, *, generator: torch.Generator | None = None
    ) -> Float[Tensor, " draws P"]:
        """Draw weights of the whole network; those without a law stay as they are.

        Args:
            draws: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        whole("draws", draws, low=1)
        theta = functional(self.model, **self.options).theta
        size = (draws, len(self.mean))
        drawn = torch.randn(size, dtype=self.mean.dtype, **source(generator, self.mean.device))
        off = self.curvature.back(drawn.to(self.mean) * self._variances().sqrt())
        found = theta.repeat(draws, 1)
        found[:, self.places] += off
        return found

    def outputs(self, x: Any, *, memory: int | None = None) -> OutputLaw:
        """The law of the linearised network's outputs.

        Args:
            x: The inputs.
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        """
        refuse_nan(x)
        if memory is not None:
            whole("memory", memory, low=1)
        f = functional(self.model, **self.options)
        if not f.theta[self.places].equal(self.mean):
            raise ValueError("model must have the weights that it had, and they have changed")
        if self.layer is not None:
            return of_last_layer(features(f, self.layer, x), self.curvature, self._variances())
        return of_network(f, x, self.curvature, self._variances(), memory, self.options)

    def probabilities(self, x: Any, *, memory: int | None = None) -> Float[Tensor, " n k"]:
        r"""Probabilities of classes without draws, $\sigma(f / \sqrt{1 + \pi v / 8})$ (MacKay).

        Args:
            x: The inputs.
            memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        """
        if self.likelihood == "gaussian":
            raise ValueError("likelihood must be of classes, got 'gaussian'")
        law = self.outputs(x, memory=memory)
        z = law.mean / (1 + math.pi / 8 * law.variance).sqrt()
        return z.softmax(1) if self.likelihood == "categorical" else z.sigmoid()

    def _variances(self) -> Tensor:
        return 1 / (self.curvature.values + self.prior**-2)


def laplace(
    model: nn.Module,
    x: Any,
    y: Tensor | None = None,
    *,
    likelihood: str,
    noise: float = 1.0,
    prior: float | str = 1.0,
    subset: str = "last",
    structure: str = "kron",
    memory: int | None = None,
    frozen: bool = True,
    output: Output = None,
    progress: bool = False,
) -> Laplace:
    r"""Laplace's approximation of the posterior over the weights of a trained network.

    The model is taken in evaluation mode, with the weights that it has, and never changed.

    Args:
        model: Any module with outputs (n, k), or (n,).
        x: The inputs it was trained on; a tensor, or any structure of tensors; or a `DataLoader`
            of inputs and targets, whose batches are passed over once.
        y: The targets; None where `x` is a loader.
        likelihood: "gaussian", "categorical" (outputs are logits) or "bernoulli".
        noise: The standard deviation of Gaussian targets.
        prior: The standard deviation $\sigma$ of the weights' prior, or "evidence" for that with
            the largest evidence.
        subset: "last" for the weights of the last linear layer, "all" for all of them.
        structure: "full" for all of the Gauss-Newton matrix, "kron" for a Kronecker product for
            each layer (linear ones and convolutions), "diagonal" for its diagonal.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        frozen: Whether parameters that require no gradient count, too.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If targets do not fit, there is no linear layer at the end for "last", layers
            have no Kronecker product, or the evidence has no maximum.

    Example:
        >>> x, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])
        >>> model = nn.Linear(1, 2, bias=False)
        >>> _ = nn.init.zeros_(model.weight)  # both classes have the probability 1/2
        >>> found = laplace(model, x, y, likelihood="categorical", structure="full")
        >>> found.curvature.values  # of 2 [[1/4, -1/4], [-1/4, 1/4]]
        tensor([0., 1.])
    """
    choice("subset", subset, ("last", "all"))
    choice("structure", structure, ("full", "kron", "diagonal"))
    if isinstance(prior, str):
        choice("prior", prior, ("evidence",))
    else:
        number("prior", prior, above=0)
    law = OutputCurvature(likelihood, noise)
    options: dict[str, Any] = {"frozen": frozen, "output": output}
    f = functional(model, **options)
    if not f.size:
        raise ValueError("model must have parameters, and it has none")
    knobs = {"structure": structure, "memory": memory}
    sums = _summed(f, x, y, law, subset, knobs, options, progress)
    name, places, curvature, likely = sums
    mean = f.theta[places]
    size, values = float(mean.double().square().sum()), curvature.values.double()
    scale = best_prior(size, values) if isinstance(prior, str) else float(prior)
    evidence = log_evidence(likely, size, values, scale)
    used = float((values / (values + scale**-2)).sum())
    return Laplace(
        model, mean, places, curvature, scale, likelihood, float(noise), evidence, used, name,
        options,
    )  # fmt: skip


def _summed(
    f: Functional, x: Any, y: Any, law: OutputCurvature, subset: str, knobs: dict[str, Any],
    options: dict[str, Any], progress: bool,
) -> tuple[str | None, Tensor, Curvature, float]:  # fmt: skip
    """The name of the last layer, the places of its weights, or all, curvature, log-likelihood."""
    name, places, sums, likely = None, torch.arange(f.size, device=f.device), None, 0.0
    with closing(batches(x, y, device=f.device, progress=progress)) as each:
        for inputs, given in each:
            if subset == "last":
                if not isinstance(sums, LastLayerSums):
                    call, table = last_call(f, inputs)
                    name, places = call.name, table.flatten()
                    sums = LastLayerSums(law, table, **knobs)
                assert name is not None
                phi, z = (torch.cat(t) for t in zip(*features(f, name, inputs), strict=True))
                targets = law.targets(given, z)
                sums.add(phi, z)
            else:
                if not isinstance(sums, NetworkSums):
                    sums = NetworkSums(f.model, law, **knobs, **options)
                with torch.no_grad():
                    z = _outputs(f(f.theta, inputs), count_examples(inputs))
                targets = law.targets(given, z)
                sums.add(inputs, targets, z)
            wide = targets.double() if targets.is_floating_point() else targets
            likely -= float(law.loss(z.double(), wide))
    if sums is None:
        raise ValueError("x must hold batches, got an empty DataLoader")
    return name, places, sums.curvature(), likely


def _outputs(z: Any, n: int) -> Tensor:
    if not isinstance(z, Tensor) or z.shape[:1] != (n,) or z.ndim > 2:
        given = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"model must give outputs of shape ({n}, k), got {given}")
    return z.reshape(n, -1)
