r"""Representations: what a linear map reads off each layer, and how many directions it uses.

The score of a layer is that of `linear_probe` on half of the examples, held out; its control task
has random labels. The effective rank of features with covariance eigenvalues $\lambda_i$ is
$e^{H(p)}$, $p_i = \lambda_i / \sum_j \lambda_j$: the number of directions if all were used alike.
Features of positions are averaged first, those of pixels over a grid of 2 x 2, and where many are
left they are projected on random directions; intervals of scores are exact, at 95 %.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence
from vademecum.examine._study import Study, named_seed
from vademecum.examine._task import IGNORED
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._fresh import best_examples
from vademecum.examine.sections._layers import label, layers_of
from vademecum.examine.sections._single_inputs import real_tensor
from vademecum.foundations import clopper_pearson
from vademecum.language import LinearProbe, linear_probe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "effective_rank", "rank_error", "representations"]

CLAIMS = ("language.layer_probe", "foundations.entropy", "foundations.eckart_young")
"""Claims of the course that stand behind it."""
_LAYERS, _WIDTH = 8, 256  # layers that are looked at, and features of each, at most
_FEW, _MANY = 100, 1000  # examples
_PARTS = 20  # of them, one of which is left out at a time
_CLASSES = 50  # beyond which targets are put in two groups


class _Property(NamedTuple):
    """What probes are to read."""

    y: Tensor
    words: str


def representations(study: Study, clock: Clock) -> Iterator[Item]:
    """Effective ranks, then probes, layer by layer."""
    examples = best_examples(study)
    if examples is None:
        raise NotApplicable("because its examples hang together, and layers have no rows for them")
    ranks, probe, words = dict[str, float](), None, ""
    for m in clock.portions(_FEW, min(_MANY, examples.n)):
        x, y = examples.take(m)
        reduce = _reducer(study)
        features = layers_of(study, x, reduce, _LAYERS)
        if not features:
            raise NotApplicable("because no module gives a tensor with a row for each example")
        ranks = {name: effective_rank(h) for name, h in features.items()}
        yield from _ranks(ranks, features, m)
        if real_tensor(x) is not None:
            yield _given(x.flatten(1), m)
        target = _property(study, y)
        if target is not None and m >= 8:
            words = target.words
            probe = _probed(study, x, target, list(features), reduce)
        if target is not None and probe is not None:
            yield from _scores(probe, target, features, m)
        kept, told = probe, dict(ranks)
        yield Drawing(lambda kept=kept, told=told: _drawn(kept, told))
        yield Sentence(_sentence(kept, told, words, examples.words))


def _probed(
    study: Study,
    x: Any,
    target: _Property,
    names: list[str],
    reduce: Callable[[Tensor], Tensor],
) -> LinearProbe | None:
    """What a linear map reads off layers, or None where labels are too few to split."""
    tokens = target.y.ndim > 1
    try:
        return linear_probe(
            study.network, x, target.y, layers=[_inner(study, name) for name in names],
            reduce=_reducer(study, positions=True) if tokens else reduce,
            generator=study.generator("representations"), ignore_index=IGNORED,
            held_out=0.5 if tokens or target.y.is_floating_point() else _every_other(target.y),
        )  # fmt: skip
    except ValueError as error:
        if "2 classes" in str(error) or "2 values" in str(error):
            return None
        raise


def _every_other(y: Tensor) -> Tensor:
    """Half of each class: whatever is drawn, both halves have the classes that have two."""
    held = torch.zeros(len(y), dtype=torch.bool)
    held[y.cpu().argsort(stable=True)[1::2]] = True
    return held


def effective_rank(h: Tensor) -> float:
    """The number of directions that features (n, d) use, as if alike.

    Example:
        >>> square = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
        >>> round(effective_rank(square), 6)
        2.0
    """
    h = h.detach().double()
    return _alike(torch.linalg.svdvals(h - h.mean(0)).square())


def rank_error(h: Tensor) -> float:
    """The standard error of that rank: the jackknife that leaves out a twentieth at a time.

    Example:
        >>> two = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
        >>> all_ = [effective_rank(two[[j for j in range(4) if j != i]]) for i in range(4)]
        >>> len({round(rank, 6) for rank in all_}), round(rank_error(two), 6)
        (1, 0.0)
    """
    h = h.detach().double()
    h = h - h.mean(0)
    parts, whole, ranks = h.tensor_split(min(_PARTS, len(h))), h.T @ h, list[float]()
    for part in parts:
        kept = max(len(h) - len(part), 1)
        mean = part.sum(0) / kept  # of what is kept, but for its sign
        rest = whole - part.T @ part - kept * torch.outer(mean, mean)
        ranks.append(_alike(torch.linalg.eigvalsh(rest).clamp(min=0)))
    k, values = len(ranks), torch.tensor(ranks).double()
    return float(((k - 1) / k * (values - values.mean()).square().sum()).sqrt())


def _alike(values: Tensor) -> float:
    """How many alike would have the entropy of these."""
    total = values.sum()
    if not bool(total > 0):
        return 0.0
    return float(torch.special.entr(values / total).sum().exp())


def _inner(study: Study, name: str) -> str:
    """The name of a module in the network that gives one tensor."""
    return name if study.network is study.model else f"model.{name}"


def _reducer(study: Study, *, positions: bool = False) -> Callable[[Tensor], Tensor]:
    """What to make of a layer's output: at most so many features for each example or position."""
    conv1d = any(isinstance(module, nn.Conv1d) for module in study.model.modules())

    def reduced(h: Tensor) -> Tensor:
        h = h.detach()
        h = h.to(torch.promote_types(h.dtype, torch.float32))
        if h.ndim == 4:
            h = F.adaptive_avg_pool2d(h, (min(2, h.shape[2]), min(2, h.shape[3])))
        elif h.ndim == 3 and not positions:
            h = h.mean(2 if conv1d else 1)
        h = h if positions else h.flatten(1)
        d = h.shape[-1]
        if d <= _WIDTH:
            return h
        draw = torch.Generator().manual_seed(named_seed(study.seed, f"directions {d}"))
        directions = torch.randn(d, _WIDTH, generator=draw).to(h) / d**0.5
        return h @ directions

    return reduced


def _property(study: Study, y: Any) -> _Property | None:
    """What the probes are asked for, or None without targets."""
    if not isinstance(y, Tensor):
        return None
    if y.is_floating_point():
        first = y.reshape(len(y), -1)[:, 0]
        words = "the target" if prod(y.shape[1:]) == 1 else "the first entry of the target"
        return _Property(first, words) if bool(first.std() > 0) else None
    if y.ndim > 2:
        return None
    y, words = y.long(), "the class"
    asked = y >= 0
    if (study.aim.classes or 0) > _CLASSES:
        kinds, counts = y[asked].unique(return_counts=True)
        order = counts.argsort(descending=True)
        half = kinds[order][: int((counts[order].cumsum(0) < asked.sum() / 2).sum()) + 1]
        y, words = torch.isin(y, half).long(), "whether the class is one of the frequent ones"
    y = torch.where(asked, y, IGNORED)
    return _Property(y, words) if len(y[asked].unique()) > 1 else None


def _ranks(ranks: dict[str, float], features: dict[str, Tensor], m: int) -> Iterator[Item]:
    how = "exponential of the entropy of the covariance's normalised eigenvalues; n examples"
    names = tuple(name or "(the network)" for name in ranks)
    yield Measurement("layers", names, method="modules, in the order of their calls")
    yield Measurement("effective_ranks", tuple(ranks.values()), None, "directions", m, how)
    widths = tuple(float(h.shape[1]) for h in features.values())
    yield Measurement("widths", widths, None, "features", m, "features that were looked at")
    how += f"; standard error, by leaving out one of {min(_PARTS, m)} parts of them at a time"
    *hidden, last = ranks
    # Where the last layer is not constant, others go around those that are: a branch of zeros.
    hidden = [name for name in hidden if ranks[name] or not ranks[last]] or [last]
    least = min(hidden, key=lambda name: ranks[name])
    for title, name in (("last_effective_rank", last), ("least_hidden_rank", least)):
        where = f"of {name or 'the network'}: {how}"
        yield Measurement(title, ranks[name], rank_error(features[name]), "directions", m, where)


def _given(x: Tensor, m: int) -> Measurement:
    """The effective rank of inputs, no positions of which are averaged: layers may use them all."""
    some = x[:, :: -(-x.shape[1] // _WIDTH)]
    how = f"of the inputs, {some.shape[1]} of their entries at equal distances; n examples"
    rank, error = effective_rank(some), rank_error(some)
    how += ", standard error as of layers"
    return Measurement("input_effective_rank", rank, error, "directions", m, how)


def _scores(
    probe: LinearProbe, target: _Property, features: dict[str, Tensor], m: int
) -> Iterator[Item]:
    how = f"what a linear map reads of {target.words} off a layer, on n held-out inputs"
    n = m // 2
    share = not target.y.is_floating_point()
    best = int(probe.scores.argmax())
    positions = int((target.y != IGNORED).sum()) // 2 if share else n

    def interval(score: float) -> tuple[float, float] | None:
        return tuple(clopper_pearson(round(score * positions), positions)) if share else None

    yield Measurement("probe_scores", tuple(probe.scores.tolist()), None, "", n, how)
    yield Measurement("control_scores", tuple(probe.control.tolist()), None, "", n, "random labels")
    how += ": share of right answers, exact interval" if share else ": R^2"
    score, name = float(probe.scores[best]), list(features)[best] or "(the network)"
    yield Measurement("best_score", score, interval(score), "", n, f"{how}; the best layer")
    yield Measurement("best_layer", name, method="the first of the best")
    last = float(probe.scores[-1])
    yield Measurement("last_score", last, interval(last), "", n, f"{how}; the last layer")
    selectivity = float(probe.selectivity[best])
    how = "best score minus that of a probe for random labels"
    yield Measurement("selectivity", selectivity, None, "", n, how)
    yield Measurement("chance", probe.chance, None, "", n, "score of the most frequent class")
    lost = score - last
    yield Measurement(
        "lost_by_the_end", lost, None, "", n, "best score minus that of the last layer"
    )


def _sentence(probe: LinearProbe | None, ranks: dict[str, float], words: str, of: str) -> str:
    names, values = [f"'{name}'" if name else "the network" for name in ranks], [*ranks.values()]
    text = (
        f"Effective rank goes from {values[0]:.3g} ({names[0]}) to {values[-1]:.3g} ({names[-1]})"
    )
    if probe is None:
        return f"{text}; without targets of a known kind that differ nothing was read off layers."
    best = int(probe.scores.argmax())
    form = "{:.1%}" if probe.chance else "R^2 {:.3g}"
    score, control = (form.format(float(v[best])) for v in (probe.scores, probe.control))
    last = form.format(float(probe.scores[-1]))
    if float(probe.scores[best]) <= probe.chance:
        guess = form.format(probe.chance)
        return (
            f"{text}; {words} cannot be read off any layer better than by chance ({guess}; {of})."
        )
    return (
        f"{text}; {words} can be read best off {names[best]} ({score}, random labels {control}),"
        f" off the last layer {last} ({of})."
    )


def _drawn(probe: LinearProbe | None, ranks: dict[str, float]) -> "Figure":
    from vademecum.canvas import panels

    names = [label(name, 18) for name in ranks]
    both = 1 if probe is None else 2
    size, margins = (3.6 * both, 3.6), (0.6, 0.2, 1.3, 0.3)
    figure, axes = panels(size, 1, both, margins=margins, squeeze=False)
    for axis in axes[0]:
        axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    axes[0, 0].plot(list(ranks.values()), "o-", ms=4)
    axes[0, 0].set(title="effective rank", ylim=(0, None))
    if probe is not None:
        axes[0, 1].plot(probe.scores.tolist(), "o-", ms=4, label="targets")
        axes[0, 1].plot(probe.control.tolist(), "s--", ms=4, label="random labels")
        axes[0, 1].axhline(probe.chance, lw=0.8, color="#7d8289")
        axes[0, 1].set(title="what a linear map reads")
        axes[0, 1].legend()
    return figure
