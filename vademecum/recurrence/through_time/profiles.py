r"""How the derivative of the last state fades or grows along a sequence, in logarithms.

$$\ell_t = \log \Big\| \frac{\partial z_T}{\partial z_t} \Big\|_2
= \log \|J_T J_{T-1} \cdots J_{t+1}\|_2, \qquad J_s = \frac{\partial z_s}{\partial z_{s-1}} .$$

The product is made from the last step back, in double precision, and scaled by a power of two at
each step, which is exact and counted in the logarithm: $10^{-400}$ is a number, and zero is
$-\infty$. The norm of every product is its largest singular value, up to rounding. Rounding is that
of the Jacobians in the model's precision, and of products: where factors cancel, below $T m
\varepsilon$ times what the factors without the cancellation would be, nothing is known.

Beside it stand the bound that the weights alone give (see `_spectral_bounds`) and
$\ell_1 / (T - 1)$, which tends to the largest Lyapunov exponent: the mean of $\log \|J_T \cdots
J_2\|$ is subadditive in the length, so it comes from above. The claims are `long_range_jacobian`,
`vanishing_gradients` and `exploding_gradients`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.models import evaluation, unwrapped
from vademecum.progress import ticking
from vademecum.recurrence._stepping import Network, network_of
from vademecum.recurrence.through_time._product_norms import GrowingProduct
from vademecum.recurrence.through_time._spectral_bounds import log_powers, norm_matrix
from vademecum.recurrence.through_time._state_jacobians import (
    Run,
    backwards,
    run_chain,
    step_jacobians,
)
from vademecum.results import one_line

__all__ = ["JacobianProfile", "jacobian_profile"]

_ROOM = 2**28  # bytes: beyond this larger blocks are not faster
_PASSING = 40  # numbers for each one in a state: what the graph of an LSTM's step keeps, twice


class JacobianProfile(NamedTuple):
    r"""The logarithms of $\|\partial z_T / \partial z_t\|_2$ along a sequence.

    Example:
        >>> model = nn.RNN(1, 1, nonlinearity="relu", bias=False, batch_first=True)
        >>> _ = [nn.init.constant_(p, 0.5) for p in model.parameters()]
        >>> profile = jacobian_profile(model, torch.ones(1, 4, 1))
        >>> profile.log_norms[0, 0].exp()
        tensor([0.1250, 0.2500, 0.5000, 1.0000], dtype=torch.float64)
    """

    log_norms: Float[Tensor, " n chains T"]
    r"""For each sequence and chain, by the place t: $\log \|\partial z_T / \partial z_t\|_2$, with
    $z_t$ the state after reading $x_t$, and $z_T$ the last state that the chain reaches."""
    log_bounds: Float[Tensor, " chains T"] | None
    r"""Logarithms of the bound by slopes and weights, $(T - t) \log(\alpha\, \sigma_{\max}(U))$ for
    one layer; None where there is none."""
    lyapunov: Float[Tensor, " n chains"]
    r"""The largest Lyapunov exponent as far as the sequence tells, $\log \|\partial z_T / \partial
    z_1\| / (T - 1)$."""
    chains: tuple[str, ...]
    """The states that were followed: one of all layers, or those of each layer and direction."""

    __repr__ = one_line


def jacobian_profile(
    model: nn.Module, x: Tensor, *, memory: int | None = None, progress: bool = False
) -> JacobianProfile:
    r"""The norms of $\partial z_T / \partial z_t$ for all t, in logarithms, beside their bound.

    The model is taken in evaluation mode, from a state of zeros (what `step` makes of None), and
    left as it was. The state of an LSTM is (h, c), that of a stack the states of all its layers; in
    two directions the state of each layer and direction is followed by itself, at the inputs that
    it gets from below.

    For n sequences of length T and m numbers in a state it costs n T products of m x m matrices,
    their norms, and as many backward passes through one step as there are numbers.

    Args:
        model: `nn.RNN`, `nn.LSTM` or `nn.GRU`, stacked or in both directions; a cell of torch's; or
            a module with `step(x_t, state)` that gives an output and the next state, and takes
            None at first.
        x: The inputs, in the order of axes that torch's layer takes; else (n, T, ...), where the
            steps get (n, ...).
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. Beside
            the states of all steps, which it needs in any case.
        progress: Whether to show a progress bar on standard error. It counts steps.

    Returns:
        A `JacobianProfile`; `draw_jacobian_profile` draws it.

    Raises:
        ValueError: If the model is not recurrent, the inputs do not fit it or have one step only,
            states grow, are not finite or influence each other, or `memory` is too small for the
            Jacobian of one step.

    References:
        Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, ICML,
        2013. Vogt, Puelma Touzel, Shlizerman and Lajoie, On Lyapunov exponents for RNNs, 2022.

    Example:
        >>> cell = nn.RNNCell(1, 1, bias=False)
        >>> _ = [nn.init.constant_(p, 0.1) for p in cell.parameters()]
        >>> profile = jacobian_profile(cell, torch.zeros(1, 1001, 1))
        >>> profile.log_norms[0, 0, 0], profile.log_bounds[0, 0]  # 1000 log(0.1)
        (tensor(-2302.5851, dtype=torch.float64), tensor(-2302.5851, dtype=torch.float64))
    """
    model = unwrapped(model)
    network = network_of(model, x)
    T = network.x.shape[1]
    if T < 2:
        raise ValueError(f"x must have at least 2 steps, got {T}")
    if memory is not None:
        whole("memory", memory, low=1)
    with evaluation(model), torch.no_grad():
        steps = (T - 1) * len(network.x) * sum(map(len, network.layers))
        with ticking("steps", steps, progress=progress) as tick:
            chains = [_chain(model, run, memory, tick) for run in _runs(network)]
    bounds = [chain.bounds for chain in chains if chain.bounds is not None]
    return JacobianProfile(
        torch.stack([chain.norms for chain in chains], 1),
        torch.stack(bounds) if len(bounds) == len(chains) else None,
        torch.stack([chain.lyapunov for chain in chains], 1),
        tuple(chain.name for chain in chains),
    )


def _runs(network: Network) -> Iterator[Run]:
    """The runs of all chains, layer by layer."""
    x = network.x.detach()
    for layer in network.layers:
        runs = [run_chain(chain, x) for chain in layer]
        yield from runs
        outputs = [run.y.flip(0) if run.chain.reverse else run.y for run in runs]
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        x = x.transpose(0, 1)


class _Chain(NamedTuple):
    """What is found of one chain."""

    name: str
    norms: Tensor
    bounds: Tensor | None
    lyapunov: Tensor


def _chain(model: nn.Module, run: Run, memory: int | None, tick: Callable[[int], None]) -> _Chain:
    """The logarithms of a chain by the places of its inputs."""
    norms, N = _log_norms(run, memory, tick), norm_matrix(model, run.chain)
    T = norms.shape[1]
    bounds = None if N is None else log_powers(N, T).flip(0).to(norms.device)
    rate = norms[:, 0] / (T - 1)
    name = " ".join(run.chain.places) or "state"
    if run.chain.reverse:
        return _Chain(name, norms.flip(1), None if bounds is None else bounds.flip(0), rate)
    return _Chain(name, norms, bounds, rate)


def _log_norms(run: Run, memory: int | None, tick: Callable[[int], None]) -> Tensor:
    """The logarithms by the order of the chain, (n, T)."""
    T, n, m = run.z.shape
    found = torch.zeros(n, T, dtype=torch.float64, device=run.z.device)
    each, own = 8 * m * (m + _PASSING), 6 * 8 * m * m  # a Jacobian, and the work on a product
    if memory is not None and memory < each + own:
        raise ValueError(f"memory must be >= {each + own} bytes for one step, got {memory}")
    room = _ROOM if memory is None else memory
    for some in [slice(0, n)] if run.alone else portions(n, each=each + own, memory=room):
        count = some.stop - some.start
        size = 1 if run.alone else max(1, (room - own * count) // (each * count))
        product = GrowingProduct(count, m, run.z.device)
        for times in backwards(T, size):
            J = step_jacobians(run, times, some)
            for t in range(times.stop - 1, times.start - 1, -1):
                found[some, t - 1] = product.times(J[t - times.start])
                tick(count)
    return found
