"""Outputs that are fed back: dependence of outputs, teacher forcing, and what free running adds."""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vademecum.claims import Evidence, at_least, claim, equals, in_mean
from vademecum.recurrence import FeedbackRNN, LinearRecurrence, sequence_log_prob
from vademecum.recurrence.claims._strings import all_strings, scattered


@claim(
    by="identity",
    sources=("A-246", "B-362", "B-379"),
    short=r"z^t = F(z^{t-1}, x^t, y^{t-1}),\quad"
    r" \text{without}\ y^{t-1}:\ p(y \mid x) = \textstyle\prod_t p(y^t \mid x^{1:t})",
)
def output_feedback(
    network: Literal["feedback", "none", "deep", "wide"] = "feedback",
    naive: Literal["inputs", "inputs and outputs"] = "inputs",
):
    r"""Only if outputs are fed back can they depend on each other.

    Without feedback the state is a function of the inputs alone, so given $x$ the outputs are
    independent and $p(y^t \mid x^{1:t}, y^{1:t-1}) = p(y^t \mid x^{1:t})$. With
    $z^t = F(z^{t-1}, x^t, y^{t-1})$ the state depends on $x^{1:t}$ and $y^{1:t-1}$, as the
    factorisation requires.

    All output sequences of length 3 are enumerated for a fixed input. Without feedback the mutual
    information of $y^1$ and $y^2$ is 0 for networks of every kind, depth and width tried; with
    feedback a network that copies $y^1$ with probability 0.9 has $\ln 2 - H(0.9)$.

    Knobs:
        network: What is to copy $y^1$: a network with feedback, or a shallow, deep or wide one
            without, whose output weights are the same.
        naive: What the state is said to depend on in a network without feedback.
    """
    T, k = 3, 2
    y = all_strings(k, T)
    kinds: list[tuple[Any, int, int]] = [("tanh", 1, 3), ("gru", 3, 4), ("lstm", 1, 40)]
    for cell, layers, m in kinds:
        model = scattered(FeedbackRNN(2, m, k, cell=cell, layers=layers, feedback=False))
        x = torch.randn(T, 2).expand(len(y), T, 2)
        found = information(model, x, y)
        yield equals("mutual information of two outputs without feedback", found, 0.0, tol=1e-12,
                     cell=cell, m=m)  # fmt: skip
        for feedback in (False, True):
            fed = scattered(FeedbackRNN(2, m, k, cell=cell, layers=layers, feedback=feedback))
            with torch.no_grad():
                last = fed.run(x, y).states[:, -1]
            number = len(torch.unique((last * 2**30).round(), dim=0))
            depends = feedback or naive == "inputs and outputs"
            yield equals("different states at step 3 over all outputs before it", number,
                         k ** (T - 1) if depends else 1, feedback=feedback, cell=cell)  # fmt: skip
    model = copying(network)
    found = information(model, torch.ones(len(y), T, 1), y)
    wanted = math.log(2) + 0.9 * math.log(0.9) + 0.1 * math.log(0.1)
    yield equals("mutual information of two outputs of the copying network", found, wanted,
                 tol=1e-12)  # fmt: skip


def information(model: FeedbackRNN, x: Tensor, y: Tensor) -> Tensor:
    """The mutual information of the first two of three bits, from all strings."""
    with torch.no_grad():
        p = sequence_log_prob(model, x, y).exp().view(2, 2, 2).sum(2)
    return (p * (p / (p.sum(0) * p.sum(1, keepdim=True))).log()).sum()


def copying(network: str) -> FeedbackRNN:
    """A network whose output is the one before with probability 0.9, at first uniform."""
    layers = 3 if network == "deep" else 1
    m = 50 if network == "wide" else 1
    model = FeedbackRNN(1, m, 2, layers=layers, dimension=1, feedback=network == "feedback")
    embedding: Any = model.decoder.embedding
    with torch.no_grad():
        if embedding is not None:
            for p in model.parameters():
                p.zero_()
            embedding.weight.copy_(torch.tensor([[1.0], [-1.0], [0.0]]))
            model.decoder.rnn.get_parameter("weight_ih_l0").copy_(torch.tensor([[0.0, 2.0]]))
        head = torch.tensor([[1.0], [-1.0]]) * math.log(9) / (2 * math.tanh(2))
        model.decoder.logits.weight.copy_(head.expand(2, m))
        model.decoder.logits.bias.zero_()
    return model


for kind, words in (
    ("none", "a network without feedback"),
    ("deep", "a deep network without feedback"),
    ("wide", "a wide network without feedback"),
):
    output_feedback.foil(f"{words} copies its output", network=kind)
output_feedback.erratum(
    "B-379",
    printed=r"says of the naive model that $p(\mathbf y^t)$ sees $\mathbf y^{1:t-1}$ through"
    r" $\mathbf h^t$ alone",
    right=r"in the naive model $\mathbf h^t$ is a function of $\mathbf x^{1:t}$ alone, and"
    r" $p(\mathbf y^t)$ does not see $\mathbf y^{1:t-1}$",
    why=r"Misleading: without feedback the state does not depend on outputs at all, so that there"
    r" is one state at step 3 for all outputs before it, and not four. Dependence through the"
    r" state is what the remedied model has.",
    weight="soft",
    refuted_by="different states at step 3 over all outputs before it",
    naive="inputs and outputs",
)


@claim(
    by="identity",
    sources=("A-247", "B-380", "D-295"),
    short=r"-\log p(y \mid x) = \textstyle\sum_t \mathrm{CE}(\mu^t, y^t)"
    r",\quad z^t = F(z^{t-1}, x^t, y_{\mathrm{true}}^{t-1})",
)
def teacher_forcing(fed: Literal["truth", "own", "leak"] = "truth", T: int = 4):
    r"""Fed with the true outputs, a network's losses add up to the negative log-likelihood.

    In training the true previous output is fed back while the loss is computed on the prediction;
    at prediction time the model's own output is fed back. The training loss is then exactly the
    negative log-likelihood of the chain-rule factorisation, and the states do not depend on the
    model's predictions.

    Checked for random networks over three symbols: the probabilities of all $3^4$ strings come from
    the tree of outputs, with the recursion written out; other output weights leave the states as
    they are, bit by bit, and change those of free running.

    Knobs:
        fed: What is fed back while a string is scored: its true output before, the network's most
            probable one, or the very output that is to be predicted.
        T: How many steps there are.
    """
    k = 3
    y = all_strings(k, T)
    for d, m in ((0, 4), (2, 3)):
        model = scattered(FeedbackRNN(d, m, k))
        x = torch.randn(1, T, d)
        each = x.expand(len(y), T, d)
        with torch.no_grad():
            own = model.generate(x).expand(len(y), T)
            given = {"truth": y, "own": own, "leak": y.roll(-1, 1)}[fed]
            loss = cross_entropy(model(each, given).mT, y, reduction="none").sum(1)
            tree = tree_of(model, x[0], torch.zeros(m), None)
        yield equals("sum of the probabilities in the tree", tree.sum(), 1.0, tol=1e-12, d=d)
        yield equals("loss of a string", loss, -tree.log(), tol=1e-10, d=d)
        yield from states_and_outputs(model, each, y)


def tree_of(model: FeedbackRNN, x: Tensor, z: Tensor, before: int | None) -> Tensor:
    """The probabilities of all strings for the inputs that are left, by the recursion itself."""
    if not len(x):
        return torch.ones(1)
    U, V, b, c = (p.detach() for p in model.decoder.rnn.parameters())
    rows: Any = model.decoder.embedding
    enters = torch.cat((x[0], rows.weight[model.k if before is None else before]))
    z = torch.tanh(U @ enters + V @ z + b + c)
    logits = model.decoder.logits.weight @ z + model.decoder.logits.bias
    p = logits.exp() / logits.exp().sum()
    return torch.cat([p[j] * tree_of(model, x[1:], z, j) for j in range(model.k)])


def states_and_outputs(model: FeedbackRNN, x: Tensor, y: Tensor) -> Iterator[Evidence]:
    """States before and after a change of the output weights, in both modes."""
    runs = []
    with torch.no_grad():
        for _ in range(2):
            free = model.run(x, generator=torch.Generator().manual_seed(1))
            runs.append((model.run(x, y).states, free.states))
            model.decoder.logits.weight.neg_()
    (forced, free), (forced_after, free_after) = runs
    yield equals("change of the states with other output weights", forced_after - forced, 0.0,
                 tol=0.0)  # fmt: skip
    moved = (free_after - free).abs().amax()
    yield at_least("change of the states of free running", moved, 1e-3)


teacher_forcing.foil("its own most probable output is fed back", fed="own")
teacher_forcing.foil("the output to be predicted is fed in", fed="leak")


@claim(
    by="identity",
    sources=("A-248", "B-381", "D-296"),
    short=r"\text{errors last: } \mathrm{err}_{\mathrm{forced}} ="
    r" \epsilon,\ \mathrm{err}_{\mathrm{free}}(h) = 1 - (1 - \epsilon)^h",
)
def exposure_bias(
    error: Callable[[float, int], float] = lambda epsilon, h: 1 - (1 - epsilon) ** h,
    growth: Callable[[Fraction, Fraction, int], Fraction] = lambda a, delta, h: abs(
        (a + delta) ** h - a**h
    ),
    horizon: int = 10,
):
    r"""What a model has not seen in training costs more with every step of free running.

    Teacher forcing trains one-step prediction from true prefixes only; in free running the model
    conditions on its own outputs, and errors can accumulate. If a mistake of probability
    $\varepsilon$ a step leads to states never seen in training, from which every output is wrong,
    the error rate is $\varepsilon$ at every step with true prefixes, but $1 - (1 - \varepsilon)^h$
    at step $h$ of free running. A linear model $x^{t+1} = (a + \delta) x^t$ of $x^{t+1} = a x^t$ is
    off by $|\delta x|$ a step from the truth, and by $|(a + \delta)^h - a^h| |x|$ after $h$ steps.

    *Proof.* Step $h$ is right if and only if no mistake was made up to $h$; the linear models have
    the states $a^h x$ and $(a + \delta)^h x$.

    A network is set by hand that repeats the symbol before, but for mistakes, and stays wrong;
    all $2^{10}$ strings are enumerated, and 4000 are drawn. Linear models run with $a$ below 0,
    below, at and above 1, against exact fractions.

    Knobs:
        error: The error rate at step $h$ in free running.
        growth: The error of the linear model after $h$ steps, for $|x| = 1$.
        horizon: The last step.
    """
    for epsilon in (0.05, 0.2):
        model = copying_with_mistakes(epsilon)
        y = all_strings(2, horizon)
        nothing = torch.zeros(len(y), horizon, 0)
        right = torch.zeros(1, horizon, dtype=torch.long)
        with torch.no_grad():
            forced = model(nothing[:1], right).softmax(2)[0, :, 1]
            p = sequence_log_prob(model, nothing, y).exp()
            drawn = model.run(torch.zeros(4000, horizon, 0)).outputs
        yield equals("error with true prefixes", forced, epsilon, tol=1e-12)
        free = (p[:, None] * y).sum(0)
        wanted = torch.tensor([error(epsilon, h + 1) for h in range(horizon)])
        for h in (1, 2, horizon):
            yield equals("error in free running", free[h - 1], wanted[h - 1], tol=1e-12, h=h,
                         epsilon=epsilon)  # fmt: skip
        yield equals("error in free running at all steps", free, wanted, tol=1e-12)
        share = drawn[:, -1].double()
        yield in_mean("error of strings that were drawn", share, float(wanted[-1]), h=horizon)
    yield from linear_models(growth, horizon)


def linear_models(
    growth: Callable[[Fraction, Fraction, int], Fraction], horizon: int
) -> Iterator[Evidence]:
    """Errors of a step from the truth, and of steps that go on from what the model said itself."""
    for a, delta in ((0.5, 0.25), (1.0, -0.125), (1.25, 0.125), (-0.75, 0.25)):
        one, x = torch.ones(1, 1), torch.tensor([[3.0]])
        nothing = torch.zeros(1, horizon, 1)
        with torch.no_grad():
            truth = LinearRecurrence(a * one, one, one)(nothing, x).output[:, :, 0]
            model = LinearRecurrence((a + delta) * one, one, one)
            before = torch.cat((x, truth[:, :-1]), 1)
            forced = model.step(torch.zeros(horizon, 1), before.T).output[:, 0]
            free = model(nothing, x).output[0, :, 0]
        powers = torch.tensor([float(Fraction(a) ** t) for t in range(horizon)])
        yield equals("error of the linear model a step from the truth", (forced - truth[0]).abs(),
                     abs(delta) * 3 * powers.abs(), tol=1e-12, a=a)  # fmt: skip
        exact = [3 * growth(Fraction(a), Fraction(delta), h + 1) for h in range(horizon)]
        yield equals("error of the linear model in free running", (free - truth[0]).abs(),
                     torch.tensor([float(e) for e in exact]), tol=1e-12, a=a)  # fmt: skip


def copying_with_mistakes(epsilon: float) -> FeedbackRNN:
    """A network for which 1 follows 0 with some probability, and 0 never follows 1."""
    model = FeedbackRNN(0, 1, 2, dimension=1)
    embedding: Any = model.decoder.embedding
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        embedding.weight.copy_(torch.tensor([[0.0], [1.0], [0.0]]))
        model.decoder.rnn.get_parameter("weight_ih_l0").fill_(2.0)
        model.decoder.logits.weight[1] = 60 / math.tanh(2)
        model.decoder.logits.bias[1] = math.log(epsilon / (1 - epsilon))
    return model


exposure_bias.foil(
    "the error of teacher forcing at all steps", error=lambda epsilon, h: epsilon,
    refuted_by="error in free running",
)  # fmt: skip
exposure_bias.foil("errors that add up", error=lambda epsilon, h: epsilon * h)
exposure_bias.foil(
    "the first order of the linear model's error", growth=lambda a, d, h: abs(h * a ** (h - 1) * d),
    refuted_by="error of the linear model in free running",
)  # fmt: skip
exposure_bias.foil(
    "a step of the linear model as good as many", growth=lambda a, d, h: abs(d * a ** (h - 1)),
    refuted_by="error of the linear model in free running",
)  # fmt: skip
