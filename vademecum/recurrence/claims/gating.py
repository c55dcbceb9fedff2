"""Gates: what they pass and block, and what gated cells cost."""

from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.recurrence import (
    CourseGRU,
    CourseLSTM,
    LSTMTrace,
    count_recurrent_params,
    gates,
)
from vademecum.recurrence.claims._scalar_cells import listed, sigma, tanh
from vademecum.recurrence.claims._scalar_cells import lstm as lstm_by_hand


def traced(net: nn.Module, x: Tensor, state: Any = None) -> Any:
    """What the one layer of a network did."""
    ((trace,),), *_ = gates(net, x, state)
    return trace


def kept_cell(net: CourseLSTM, x: Tensor, c: Tensor) -> Tensor:
    """What a forget gate leaves of a cell to which nothing is written."""
    with torch.no_grad():
        return net.step(x, (torch.zeros_like(c), c)).state.c


@claim(
    by="identity",
    sources=("A-235", "D-282"),
    short=r"z_{\mathrm{gated}} = \sigma(G \zeta + b) \odot z,\qquad \sigma \in (0, 1)",
)
def gate(squash: Literal["sigmoid", "tanh"] = "sigmoid", slope: Literal["s", "1-s"] = "s"):
    r"""A gate multiplies a signal by factors between 0 and 1 that are computed from a context.

    $z_{\mathrm{gated}} = \sigma(G \zeta + b) \odot z$ elementwise, with factors in $(0, 1)$: a
    saturated gate passes or blocks its coordinate (logits of $\pm 40$ to $10^{-15}$). Its
    derivative by the logits is $\sigma (1 - \sigma) \odot z$. Gates decide in LSTM and GRU cells
    what is kept, written and exposed.

    Checked for the forget gate of the library's LSTM, whose cell is the signal and whose input is
    the context, with nothing written to the cell; and for input and output gates by the traces.
    Derivatives are central differences, with an error of some $10^{-10}$.

    Knobs:
        squash: The function that makes a factor of a logit.
        slope: Which factor stands beside $1 - \sigma$ in the derivative.
    """
    d, m = 3, 4
    net, squashed = CourseLSTM(d, m, mixing=False), sigma if squash == "sigmoid" else tanh
    assert net.bias is not None
    net.bias.data[1] = -1000.0  # the input gate: nothing is written
    x, c = 2 * torch.rand(5, d) - 1, torch.randn(5, m)
    for scale in (1.0, 9.0):
        net.F.data = scale * (2 * torch.rand(m, d + m) - 1)
        logits = x @ net.F.data[:, :d].T + net.bias.data[0]  # at most 3 * 9 + 1/2
        factors = torch.tensor([[squashed(v) for v in row] for row in logits.tolist()])
        yield at_least("factors", factors, sigma(-28.0), tol=0.0, scale=scale)
        yield at_most("factors", factors, sigma(28.0), tol=0.0, scale=scale)
        yield equals("gated cell", kept_cell(net, x, c), factors * c, tol=1e-13, scale=scale)
        base = net.bias.data[0].clone()
        net.bias.data[0] = base + 1e-5
        above = kept_cell(net, x, c)
        net.bias.data[0] = base - 1e-5
        found = (above - kept_cell(net, x, c)) / 2e-5
        net.bias.data[0] = base
        first = factors if slope == "s" else 1 - factors
        yield equals("slope in the logit", found, first * (1 - factors) * c, tol=1e-8, scale=scale)
    net.F.data.zero_()
    for logit, stated in ((40.0, squashed(40.0)), (-40.0, squashed(-40.0))):
        net.bias.data[0] = logit
        yield equals("cell behind a saturated gate", kept_cell(net, x, c), stated * c, tol=1e-15,
                     logit=logit)  # fmt: skip
        passed = c if logit > 0 else 0 * c
        yield equals("what is passed", stated * c, passed, tol=1e-15, logit=logit)
    other = CourseLSTM(d, m)
    assert other.U is not None
    trace: LSTMTrace = traced(other, x[:, None])
    w = listed(other)
    for one in range(5):
        step = lstm_by_hand(w, [x[one].tolist()], [0.0] * m, [0.0] * m)[0]
        written = [i * g for i, g in zip(step["i"], step["g"], strict=True)]
        yield equals("what an input gate writes", trace.c[one, 0], written, tol=1e-14)
        shown = torch.tensor(step["o"]) * torch.tanh(other.U.detach() @ trace.c[one, 0])
        yield equals("what an output gate shows", trace.h[one, 0], shown, tol=1e-14)


gate.foil("tanh in place of the sigmoid", squash="tanh", refuted_by="factors")
gate.foil(r"the slope $(1 - \sigma)^2 z$", slope="1-s")


def entries(net: nn.Module, *, axes: int) -> list[int]:
    """The sizes of the parameters of a module that have so many axes."""
    return [p.numel() for p in net.parameters() if p.ndim == axes]


@claim(
    by="exhaustion",
    sources=("A-237", "A-239", "B-371", "D-283", "D-287"),
    short=r"\text{simple: } h (h + n),\qquad \text{GRU: } 3 h (h + n),\qquad \text{LSTM: }"
    r" 4 h (h + n)",
)
def gated_parameter_count(
    gates_of_gru: int = 2, lstm_weights: Literal["4h(h+n)", "4h^2+n"] = "4h(h+n)"
):
    r"""Gated layers have three and four times the weights of a simple one.

    For $n$ inputs and $h$ units without biases a simple network has $h (h + n)$ weights, a GRU
    $3 h (h + n)$ (two gates, one candidate) and an LSTM $4 h (h + n)$ (three gates, one candidate).
    One bias vector per block adds $h$, $3 h$, $4 h$ (torch keeps two per block). The sheets' LSTM
    variant has a further $h \times h$ matrix $U$ and, like the GRU, an output matrix $W$, six and
    four matrices in all.

    Checked for all $n, h \le 6$ by counting the entries of torch's layers and of the library's;
    numbers of entries are polynomials of degree at most 2 in $n$ and $h$, which these determine.

    Knobs:
        gates_of_gru: How many gates a GRU is said to have beside its candidate.
        lstm_weights: The formula for the LSTM.
    """
    kinds: Any = {"simple": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
    for n, h in product(range(1, 7), repeat=2):
        stated = {"simple": h * (h + n), "gru": (gates_of_gru + 1) * h * (h + n)}
        stated["lstm"] = 4 * h * (h + n) if lstm_weights == "4h(h+n)" else 4 * h**2 + n
        at = {"n": n, "h": h}
        for kind, make in kinds.items():
            layer, bare = make(n, h, device="meta"), make(n, h, bias=False, device="meta")
            weights, constants = sum(entries(layer, axes=2)), sum(entries(layer, axes=1))
            yield equals("weights of torch's layer", weights, stated[kind], kind=kind, **at)
            yield equals("the same without biases", sum(p.numel() for p in bare.parameters()),
                         stated[kind], kind=kind, **at)  # fmt: skip
            counted = count_recurrent_params(kind, n, h)
            yield equals("weights by the library", counted.weights, stated[kind], kind=kind, **at)
            blocks = {"simple": 1, "gru": 3, "lstm": 4}[kind]
            yield equals("constants of torch's layer", constants, 2 * blocks * h, kind=kind, **at)
            yield equals("constants by the library", counted.biases, constants, kind=kind, **at)
            yield equals("both", counted.total, weights + constants, kind=kind, **at)
        with torch.device("meta"):
            variants = {"lstm": CourseLSTM(n, h, 3), "gru": CourseGRU(n, h, 3)}
        for kind, net in variants.items():
            mixed = {"mixing": True} if kind == "lstm" else {}
            counted = count_recurrent_params(kind, n, h, biases=1, k=3, **mixed)  # type: ignore[arg-type]
            extra = 3 * h + (h * h if kind == "lstm" else 0)
            matrices = [p for name, p in net.named_parameters() if name != "bias"]
            weights = sum(p.numel() for p in matrices)
            yield equals("matrices of the sheets' cell", len(matrices), 6 if kind == "lstm" else 4,
                         kind=kind, **at)  # fmt: skip
            yield equals(
                "matrices by the library", counted.matrices, len(matrices), kind=kind, **at
            )
            yield equals("weights of the sheets' cell", weights, stated[kind] + extra, kind=kind,
                         **at)  # fmt: skip
            total = sum(p.numel() for p in net.parameters())
            yield equals("parameters by the library", counted.total, total, kind=kind, **at)


gated_parameter_count.foil("only one gate beside the candidate of a GRU", gates_of_gru=1)
gated_parameter_count.foil("$4 h^2 + n$ for an LSTM", lstm_weights="4h^2+n")
