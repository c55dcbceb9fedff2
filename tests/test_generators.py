"""Whatever takes a generator draws from it, or from torch's global one; all have calls here."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.bayes import drawn_chains, drawn_predictions
from tests.conventions import calls
from tests.generalization import drawn_descent, drawn_landscape, drawn_weights
from tests.generative import drawn as drawn_examples
from tests.geometry import drawn_graphs
from tests.kernels import drawn_probes
from tests.language import drawn_texts
from tests.recurrence import drawn_sequences
from tests.regularization import (
    drawn_images,
    drawn_noise,
    drawn_passes,
    drawn_signals,
    drawn_spectra,
    drawn_units,
)
from tests.robustness import drawn as drawn_attacks
from vademecum import (
    ROOMS,
    approximation,
    connectionism,
    convolution,
    data,
    foundations,
    gradients,
    language,
    linear,
    optimization,
    recurrence,
)

Source = torch.Generator | None

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
A = torch.linspace(1, 2, 60, dtype=torch.float64).diag() + 0.01
BOX = foundations.Box(-torch.ones(2), torch.ones(2))
FEW = {"starts": 2, "steps": 0}


def wavy(x: Tensor) -> Tensor:
    return (x.sin() * x.roll(1, 1)).sum(1)


def turing(generator: Source) -> Any:
    machine = connectionism.TuringMachine.random(4, kind="B", generator=fixed())
    bits, wanted = torch.tensor([[0], [1]]), torch.tensor([[1], [0]])
    knobs: dict[str, Any] = {"inputs": [0], "outputs": [3], "steps": 3, "max_iter": 64}
    return machine.educate(bits, wanted, generator=generator, **knobs)


def fixed() -> torch.Generator:
    return torch.Generator().manual_seed(17)


def memory() -> Any:
    patterns = torch.randn(12, 30, generator=fixed()).sign()
    return connectionism.HopfieldNetwork(patterns)


def noisy(n: int = 30) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(4)).sign()


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(), nn.Linear(8, 1)).double().train()


def wave() -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return convolution.WaveNet(8, width=4, skip=4, blocks=1, depth=2)


def certificate(generator: Source) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 1)).double()
    regions = approximation.linear_regions(model, approximation.input_plane())
    return approximation.certify_regions(model, regions, generator=generator)


def backprop(generator: Source) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = dropping()
    return gradients.backprop(model, X, X[:, :1], generator=generator)


def measured(name: str, **knobs: Any) -> Callable[[Source], Any]:
    """A measure of curvature, of a network that is always the same."""

    def measure(generator: Source) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = nn.Sequential(nn.Linear(3, 90), nn.Tanh(), nn.Linear(90, 3)).double()
        found = getattr(optimization, name)(net, X, X, generator=generator, **knobs)
        return (found.step(), found.last) if name == "SharpnessTracker" else found

    return measure


def edges() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Conv1d(1, 2, 2)


def norm_of_layer(generator: Source) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.Conv1d(2, 2, 3, padding=1).double().requires_grad_(False)
    return convolution.conv_singular_values(layer, (2, 60), k=1, generator=generator)


CALLS: dict[str, Callable[[Source], Any]] = {
    # foundations
    "Ball.sample": lambda g: foundations.Ball(torch.zeros(2), 1.0).sample(3, generator=g),
    "Box.sample": lambda g: BOX.sample(3, generator=g),
    "Region.sample": lambda g: BOX.sample(3, generator=g),  # whatever samples is a region
    "convexity_violation": lambda g: foundations.convexity_violation(
        wavy, BOX, chords=8, generator=g, **FEW
    ),
    "diagonal": lambda g: foundations.diagonal(A + 1, applications=4, generator=g),
    "eigsh": lambda g: foundations.eigsh(A, 2, generator=g),
    "lipschitz_constant": lambda g: foundations.lipschitz_constant(
        wavy, BOX, pairs=8, generator=g, **FEW
    ),
    "log_det": lambda g: foundations.log_det(A, probes=2, steps=3, generator=g),
    "power_iteration": lambda g: foundations.power_iteration(A, tol=1e-2, generator=g),
    "smoothness_constant": lambda g: foundations.smoothness_constant(
        wavy, BOX, pairs=8, generator=g, **FEW
    ),
    "spectral_density": lambda g: foundations.spectral_density(A, probes=2, steps=3, generator=g),
    "strong_convexity_constant": lambda g: foundations.strong_convexity_constant(
        wavy, BOX, pairs=8, generator=g, **FEW
    ),
    "trace": lambda g: foundations.trace(A, applications=8, generator=g),
    # connectionism
    "TuringMachine.educate": turing,
    "TuringMachine.random": lambda g: connectionism.TuringMachine.random(9, generator=g),
    "HopfieldNetwork.retrieve": lambda g: memory().retrieve(noisy(), generator=g),
    "HopfieldNetwork.step": lambda g: memory().step(noisy(), generator=g),
    "capacity_curve": lambda g: connectionism.capacity_curve(
        40, [0.1, 0.2], trials=2, probes=2, generator=g
    ),
    "hopfield_flips": lambda g: connectionism.hopfield_flips(memory(), noisy(), generator=g),
    "perceptron_path": lambda g: connectionism.perceptron_path(
        X, noisy(20), order="shuffled", max_iter=20, generator=g
    ),
    "sparse_patterns": lambda g: connectionism.sparse_patterns(5, 30, 3, generator=g),
    # linear
    "ExponentialFamily.sample": lambda g: linear.ExponentialFamily.named("bernoulli").sample(
        torch.zeros(40), generator=g
    ),
    "linear_network_flow": lambda g: linear.linear_network_flow(
        torch.eye(2), torch.linspace(0, 1, 3), noise=0.1, generator=g
    ),
    # approximation
    "barron_fit": lambda g: approximation.barron_fit(X, X.sin().sum(1), 2, generator=g),
    "certify_regions": certificate,
    "interpolating_network": lambda g: approximation.interpolating_network(X, X[:, 0], generator=g),
    "random_feature_fit": lambda g: approximation.random_feature_fit(X, X[:, 0], 5, generator=g),
    # gradients
    "backprop": backprop,
    # optimization
    "SharpnessTracker": measured("SharpnessTracker"),
    "condition_number": measured("condition_number", tol=1e-2),
    "curvature_trace": measured("curvature_trace", applications=4),
    "fisher": lambda g: measured("fisher", kind="sampled")(g) @ torch.ones(633).double(),
    "layer_curvature": measured("layer_curvature", applications=2),
    "sharpness": measured("sharpness"),
    "certify_descent": lambda g: optimization.certify_descent(
        lambda x: (x - X[:, 0]).square(), X[0, :1], method="sgd", L=2.0, mu=2.0, steps=3,
        minimiser=X[:, 0].mean()[None], generator=g,
    ),
    "CurriculumSampler": lambda g: list(
        optimization.CurriculumSampler(X[:, 0], shuffle=True, generator=g)
    ),
    "ImportanceSampler": lambda g: list(optimization.ImportanceSampler(X[:, 0] + 2, generator=g)),
    # convolution
    "conv_singular_values": norm_of_layer,
    "receptive_field": lambda g: convolution.receptive_field(
        edges(), torch.ones(1, 1, 4), generator=g
    ),
    "WaveNet.generate": lambda g: wave().generate(9, generator=g),
    # recurrence
    "lru_init": lambda g: recurrence.lru_init(5, generator=g),
    "adding_task": lambda g: recurrence.adding_task(3, 9, generator=g),
    "copying_task": lambda g: recurrence.copying_task(3, 2, generator=g),
    "latch_task": lambda g: recurrence.latch_task(3, 9, generator=g),
    **drawn_sequences.CALLS,
    # language
    "mask_tokens": lambda g: language.mask_tokens(torch.arange(99), mask=3, V=99, generator=g),
    "nsp_pairs": lambda g: language.nsp_pairs(
        [[[i] for i in range(5, 50)]], 20, cls=1, sep=2, generator=g
    ),
    "NGramModel.sample": lambda g: language.NGramModel(torch.arange(5), 2).sample(
        3, 9, generator=g
    ),
    **drawn_texts.CALLS,
    # geometry
    **drawn_graphs.CALLS,
    # regularization
    **drawn_signals.CALLS,
    **drawn_images.CALLS,
    **drawn_spectra.CALLS,
    **drawn_passes.CALLS,
    **drawn_probes.CALLS,
    **drawn_units.CALLS,
    **drawn_noise.CALLS,
    **drawn_descent.CALLS,
    **drawn_landscape.CALLS,
    **drawn_weights.CALLS,
    **drawn_examples.CALLS,
    **drawn_chains.CALLS,
    **drawn_predictions.CALLS,
    **drawn_attacks.CALLS,
    # data
    "gaussians": lambda g: data.gaussians(6, generator=g),
    "moons": lambda g: data.moons(6, generator=g),
    "separable": lambda g: data.separable(6, 3, margin=0.1, generator=g),
    "spirals": lambda g: data.spirals(6, generator=g),
    "xor": lambda g: data.xor(6, noise=0.1, generator=g),
}  # fmt: skip
ALIKE = {
    "certify_regions": "points are drawn from each region, and all of them say the same",
    "deepfool": "it has a generator as all attacks do, and no use for random numbers",
    "fgsm": "it has a generator as all attacks do, and no use for random numbers",
}
"""Calls whose results do not show the random numbers, and why."""


def drawing() -> list[str]:
    return [
        call.where
        for room in (*ROOMS, "data")
        for call in calls(room)
        if "generator" in call.signature.parameters
    ]


def content(thing: Any) -> list[float]:
    """All numbers in a result, one after the other."""
    if isinstance(thing, Tensor):
        return thing.detach().double().flatten().tolist()
    if isinstance(thing, nn.Module):
        return content([*thing.parameters(), *thing.buffers()])
    if isinstance(thing, dict):
        return content([*thing.values()])
    if isinstance(thing, tuple | list):
        return [number for part in thing for number in content(part)]
    if isinstance(thing, bool | int | float):
        return [float(thing)]
    return content(vars(thing)) if hasattr(thing, "__dict__") and not callable(thing) else []


def same(one: Any, other: Any) -> bool:
    a, b = content(one), content(other)
    return len(a) == len(b) and all(
        x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True)
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", drawing())
def test_random_numbers_come_from_where_it_is_said(name):
    draw = CALLS[name]
    results = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        results.append(draw(None))
    assert content(results[0])
    assert same(results[0], results[1]), "with the same seed, torch's global generator differs"
    assert name in ALIKE or not same(results[0], results[2]), "the global generator is not used"

    state, source = torch.get_rng_state(), torch.Generator().manual_seed(0)
    start = source.get_state()
    first = draw(source)
    assert state.equal(torch.get_rng_state()), "a generator is given, and the global one moved"
    assert not start.equal(source.get_state()), "the generator that is given is not used"
    torch.manual_seed(2)
    assert same(first, draw(torch.Generator().manual_seed(0)))
    assert name in ALIKE or not same(first, draw(torch.Generator().manual_seed(1)))


def test_every_room_that_draws_is_looked_at():
    assert len(drawing()) > 20
