"""A model from outside with something to ask it, and what is known of it.

A case makes its subject anew, with the same random numbers each time, so that there can be a twin
for the oracle which no instrument has ever touched.
"""

import fnmatch
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Case", "Subject", "call", "one_of"]

KINKS = (
    *("local_affine_map", "activation_pattern", "linear_regions", "certify_regions"),
    *("regions_along", "dead_units", "dc_split"),
)
GRAPHS: tuple[str, ...] = ("oversmoothing", "leaf_influence", "wl_ceiling")
EXAMPLES: tuple[str, ...] = (
    *("per_example_gradients", "gradient_norms", "gradient_noise", "laplace", "ntk_drift"),
    *("lazy_ratio", "empirical_ntk", "ntk_spectrum"),
)
ATTACKS = (*("fgsm", "pgd", "apgd", "deepfool", "square", "auto_attack", "gradient_alignment"),)
BOUNDS = ("interval_bounds", "crown_bounds", "lipschitz")
LANGUAGE = ("perplexity", "linear_probe")
IN_THETA = (
    *("gradient", "jacobian_theta", "jvp", "vjp", "hessian", "hvp", "eigsh", "trace"),
    *("spectral_density", "gauss_newton", "gradient_covariance", "sharpness", "curvature_trace"),
    *("critical_step", "weight_decay_effect", "posterior", "ntk_operator", *EXAMPLES),
    *("sharpness_measures", "classify_critical_point", "loss_plane"),
    "LinearizedNetwork",
)
DIGITS: dict[str, str] = dict.fromkeys(
    ("[etsw]*", "classify*", "la*_ratio", "loss_plane"), "must be in single or double"
)  # what is said to models in half precision


class Subject(NamedTuple):
    """A model, its inputs and targets, and how it is asked."""

    model: nn.Module
    x: Any
    y: Any = None
    loss: Callable[[Any, Any], Tensor] = F.mse_loss
    output: Any = None  # what instruments are told of the output
    read: Callable[[Any], Any] = lambda result: getattr(result, "logits", result)  # what that is
    wrt: str = "x"  # the input in which to differentiate: "x", a name, or "" for none
    whole: Any = ...  # what losses are told of the output, where they take all that there is
    graph: Any = None  # the edges, of a graph network


@dataclass(frozen=True)
class Case:
    """How to make a subject, and what is true of it.

    Args:
        name: What it is called in the table.
        make: Makes the subject.
        kinks: Whether it is piecewise linear in its input.
        separate: Whether examples lie along the first axis and do not influence each other.
        coarse: The coarsest dtype that the model computes in.
        differences: Whether torch's own second derivatives are wrong for it, so that differences
            of gradients are the oracle.
        refused: Words of the refusals that are expected, by patterns of names of instruments.
        skip: Reasons, likewise, why an instrument is not asked.
        only: Names of the instruments to ask, if not all.
    """

    name: str
    make: Callable[[], Subject]
    kinks: bool = False
    separate: bool = True
    coarse: torch.dtype = torch.float64
    differences: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    skip: Mapping[str, str] = field(default_factory=dict)
    only: tuple[str, ...] = ()

    def subject(self) -> Subject:
        """The subject made anew, always the same, with gradients that somebody left there."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            subject = self.make()
            for p in subject.model.parameters():
                if p.is_floating_point():
                    p.grad = torch.full_like(p, 0.5)
        return subject

    def refusal(self, instrument: str) -> str | None:
        """Words of the refusal that is expected of an instrument, or None."""
        return _look_up(self.refused, instrument)

    def not_asked(self, instrument: str, subject: Subject) -> str | None:
        """Why an instrument is not asked, or None."""
        if self.only and instrument not in self.only:
            return "enough others are asked"
        if instrument in GRAPHS and subject.graph is None:
            return "no graph"
        plain = isinstance(subject.x, Tensor) and subject.x.is_floating_point()
        if instrument in LANGUAGE and _tokens(subject.x) is not subject.y:
            return "it does not give the next token"
        if instrument in IN_THETA and not list(subject.model.parameters()):
            return "no parameters"
        if instrument in ("gauss_newton", "gradient_covariance"):
            if subject.whole is not ... or not isinstance(subject.y, Tensor):
                return "the loss takes more than a tensor of outputs and one of targets"
            if instrument == "gradient_covariance" and not self.separate:
                return "examples influence each other"
        if instrument in ATTACKS and not (plain and _classifies(subject)):
            return "it does not tell classes of arrays apart"
        if instrument in ("jacobian_x", "jacobian_spectral_norm") and not subject.wrt:
            return "no floating-point input"
        if (
            instrument in (*KINKS, *BOUNDS, "fit_readout", "backprop", "tape", "infinite_width")
            and not plain
        ):
            return "the input is not one tensor of floats"
        return _look_up(self.skip, instrument)


def _classifies(subject: Subject) -> bool:
    """Whether classes are given for the logits that the model gives."""
    y = subject.y
    classes = isinstance(y, Tensor) and y.dtype == torch.int64 and y.ndim == 1
    return classes and subject.loss is F.cross_entropy and subject.output is None


def _tokens(x: Any) -> Any:
    return x.get("input_ids", x) if isinstance(x, Mapping) else x


def _look_up(table: Mapping[str, str], instrument: str) -> str | None:
    return next((v for k, v in table.items() if fnmatch.fnmatch(instrument, k)), None)


def call(model: nn.Module, x: Any) -> Any:
    """What a model gives for keyword arguments, positional ones, or a single one."""
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if type(x) is tuple else model(x)


def one_of(x: Any, i: int) -> Any:
    """Example i of the inputs or targets, as a batch of one."""
    if isinstance(x, Tensor):
        return x[i : i + 1]
    if isinstance(x, Mapping):
        return {name: one_of(value, i) for name, value in x.items()}
    return tuple(one_of(value, i) for value in x) if type(x) is tuple else x
