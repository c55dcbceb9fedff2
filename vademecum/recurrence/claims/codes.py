"""Codes of a source: what an encoder hands to a decoder, and how much it can hold."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.recurrence import CaptionModel, Seq2Seq, sequence_log_prob
from vademecum.recurrence.claims._strings import all_strings, ended_strings, scattered


@claim(
    by="training",
    sources=("A-250", "A-251", "B-382", "D-297", "D-298"),
    budget=5.0,
    full={"length": 5, "steps": 1000},
    short=r"z = z^T(x^1, \dots, x^T),\quad"
    r" p(y \mid x) = \textstyle\prod_s p(y^s \mid z, y^{1:s-1})",
)
def encoder_decoder(
    read: Literal["last", "first"] = "last",
    attention: Literal["none", "dot", "additive"] = "none",
    length: int = 4,
    steps: int = 150,
):
    r"""An encoder hands its last state to a decoder, which writes an answer of any length.

    An encoder maps $x^1, \dots, x^T$ to its last state $z = z^T$; a decoder started from $z$ and
    fed with its own outputs expands it to $y^1, \dots, y^S$ until an end symbol, where $S$ may
    differ from $T$. The likelihood of the answer depends on the source through $z$ only.

    For random models: the code has one size for all lengths; a symbol is set by hand to overwrite
    the state, and sources of two lengths that end with it have the same code though the states
    before differ: they have the same likelihood, bit by bit, and others do not; the probabilities
    of all answers of at most six symbols and those without an end add up to one. A small one learns
    to reverse all strings of four symbols out of three: it is trained until each answer has a
    probability above one half, for which the most probable symbol at each step must be the right
    one.

    Knobs:
        read: Which state of the encoder is handed over: the last one, or that after the first
            symbol, which cannot tell more than three strings apart.
        attention: How the decoder of the random models looks at the states before the last one.
        length: The length of the strings to be reversed.
        steps: The most steps of training.
    """
    for cell in ("gru", "lstm"):
        model = Seq2Seq(6, 3, dimension=3, width=4, cell=cell, attention=attention)
        yield from random_models(scattered(model))
    x = all_strings(3, length)
    y = torch.cat((x.flip(1) + 1, torch.zeros(len(x), 1, dtype=torch.long)), 1)
    source = x if read == "last" else x[:, :1]
    model = Seq2Seq(3, 4, dimension=8, width=32)
    worst = trained(model, source, y, steps, lr=0.02, enough=math.log(2))
    written = model.generate(source, length + 3)
    right = int((nn.functional.pad(written, (0, 9))[:, : length + 1] == y).all(1).sum())
    yield equals("strings that are reversed", right, len(x), length=length)
    yield at_most("largest negative log-likelihood after training", worst, math.log(2))


def random_models(model: Seq2Seq) -> Iterator[Evidence]:
    """Sizes of codes, sources with the same code, and the sum over all answers."""
    sources = [torch.randint(6, (2, T)) for T in (1, 5, 50)]
    numbers = (1 + isinstance(model.encoder, nn.LSTM)) * 4
    with torch.no_grad():
        for x in sources:
            size = model.code(x).shape[1]
            yield equals("numbers in the code", size, numbers, T=x.shape[1])
        y = ended_strings(3, 6)
        x = sources[1][:1].expand(len(y), 5)
        own = sequence_log_prob(model, x, y)
        yield equals("probabilities of all answers", own.exp().sum(), 1.0, tol=1e-12)
        overwrite(model, 5)
        pair = [torch.tensor([[0, 1, 5]]), torch.tensor([[2, 0, 3, 4, 5]])]
        before = [model.code(source[:, :-1]) for source in pair]
        yield at_least("difference of the states before the last one",
                       (before[0] - before[1]).abs().max(), 1e-3)  # fmt: skip
        codes = [model.code(source) for source in pair]
        yield equals("difference of the two codes", codes[0] - codes[1], 0.0, tol=0.0)
        answers = [sequence_log_prob(model, source.expand(len(y), -1), y) for source in pair]
        yield equals("difference of the answers", answers[0] - answers[1], 0.0, tol=0.0)
        other = torch.tensor([[0, 1, 3]]).expand(len(y), -1)
        moved = (sequence_log_prob(model, other, y) - answers[0]).abs().max()
        yield at_least("change with another code", moved, 1e-9, tol=0.0)


def overwrite(model: Seq2Seq, symbol: int) -> None:
    """Let a symbol close or open all gates of the encoder, so that nothing before it is left."""
    weight, words = model.encoder.get_parameter("weight_ih_l0"), model.embedding.weight
    words[:, -1] = 0
    words[symbol] = 0
    words[symbol, -1] = 1e4
    if isinstance(model.encoder, nn.LSTM):
        gates = torch.tensor([1.0, -1.0, 1.0, 1.0])  # in, kept, candidate, out
        weight[:, -1] = gates.repeat_interleave(len(weight) // 4)
    else:
        reset_kept = 2 * len(weight) // 3
        weight[:reset_kept, -1] = -1
        weight[reset_kept:, -1] *= 1e-4


def trained(model: Any, x: Tensor, y: Tensor, steps: int, *, lr: float, enough: float) -> float:
    """Adam until the largest negative log-likelihood is below some value; that value."""
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    worst = math.inf
    for _ in range(steps):
        losses = -sequence_log_prob(model, x, y)
        worst = float(losses.detach().max())
        if worst < enough:
            break
        adam.zero_grad()
        losses.mean().backward()
        adam.step()
    return worst


encoder_decoder.foil(
    "a decoder that looks at all states", attention="dot", steps=0,
    refuted_by="difference of the answers",
)  # fmt: skip
encoder_decoder.foil(
    "the encoder's first state is handed over", read="first", refuted_by="strings that are reversed"
)


@claim(
    by="sampling",
    sources=("A-250", "D-297"),
    short=r"b\ \text{bits of code}:\ \text{at most}\ 2^b\ \text{of}\ k^T"
    r"\ \text{sources can be copied},\ T > b / \log_2 k",
)
def encoder_bottleneck(answers: int = 1, spare: int = 0, b: int = 6):
    r"""A code of $b$ bits tells at most $2^b$ sources apart.

    So for any encoder and decoder at most $2^b$ of the $k^T$ sequences over $k$ symbols can be
    reproduced: exact copying is impossible once $T > b / \log_2 k$, however the network is trained
    and however long its decoder is.

    *Proof.* A decoder gives one answer for each code, and there are $2^b$ codes.

    The codes of random encoders are cut to the signs of six units. All sources are enumerated, two
    and three symbols, up to 1024 of them, and decoded by the best of all decoders, a table; its
    rate is the number of codes that occur over that of sources. The bound is attained by an encoder
    that is set by hand to hold the last six bits, each unit taking over from the one before.

    Knobs:
        answers: How many answers a decoder may give for a code.
        spare: How many bits fewer are said to suffice.
        b: The number of bits.
    """
    for k, longest in ((2, 10), (3, 6)):
        model = scattered(Seq2Seq(k, 2, dimension=3, width=b))
        for T in range(3, longest + 1):
            x = all_strings(k, T)
            codes = signs(model, x)
            copied = copies(codes, answers)
            yield at_most(
                "sources that the best decoder copies", copied, 2 ** (b - spare), k=k, T=T
            )
            yield equals(
                "copies of the best decoder, against codes that occur",
                copied,
                len(codes.unique()),
                k=k,
                T=T,
            )
    register = shift_register(b)
    for T in range(3, b + 4):
        copied = copies(signs(register, all_strings(2, T)), answers)
        yield at_most("sources copied from their last bits", copied, 2 ** (b - spare), T=T)
        yield equals("copies from last bits, against the bound", copied, min(2**b, 2**T), T=T)


def signs(model: Seq2Seq, x: Tensor) -> Tensor:
    """The code of each source, cut to the signs of its units, as an integer."""
    with torch.no_grad():
        bits = model.code(x) > 0
    return (bits * 2 ** torch.arange(bits.shape[1])).sum(1)


def shift_register(b: int) -> Seq2Seq:
    """An encoder that forgets nothing for b steps: each unit takes over the sign of another."""
    model = Seq2Seq(2, 2, dimension=1, width=b)
    with torch.no_grad():
        for p in model.encoder.parameters():
            p.zero_()
        model.embedding.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        bias = model.encoder.get_parameter("bias_ih_l0").view(3, b)
        bias[0], bias[1] = 40, -40  # what is reset, and what is kept: nothing
        model.encoder.get_parameter("weight_ih_l0").view(3, b)[2, 0] = 3
        onward = 3 * torch.eye(b).roll(1, 0)
        onward[0] = 0
        model.encoder.get_parameter("weight_hh_l0").view(3, b, b)[2] = onward
    return model


def copies(codes: Tensor, answers: int) -> int:
    """How many sources come out right if each code is answered by sources that have it."""
    table: dict[int, list[int]] = {}
    for source, code in enumerate(codes.tolist()):
        table.setdefault(code, []).append(source)
    return sum(source in table[code][:answers] for source, code in enumerate(codes.tolist()))


encoder_bottleneck.foil(
    "two answers for each code", answers=2, refuted_by="sources copied from their last bits"
)
encoder_bottleneck.foil(
    "half of the codes", spare=1, refuted_by="sources copied from their last bits"
)


@claim(
    by="training",
    sources=("B-383",),
    budget=5.0,
    full={"steps": 1000, "images": 8},
    short=r"z = \mathrm{CNN}(\text{image}),\quad p(y^{1:S} \mid \text{image}) ="
    r" \textstyle\prod_t p(y^t \mid z, y^{1:t-1})",
)
def image_captioning(
    feature: Literal["own", "constant"] = "own", steps: int = 300, images: int = 4
):
    r"""With a convolutional network as encoder the same scheme models captions.

    $p(y^{1:S} \mid \text{image}) = \prod_t p(y^t \mid z, y^{1:t-1})$ with $z$ the features of the
    image; images with the same features have the same law of captions.

    For random models: probabilities of all captions of at most four symbols and of those without
    an end add up to one; an image that is shifted has the same law under circular convolutions and
    a global mean. A small model, the best of four starts at most, learns different captions of
    random images until none has a negative log-likelihood above 0.01; with the features replaced by
    a constant the mean over the images could not fall below the logarithm of their number.

    Knobs:
        feature: What the decoder gets of an image: its own features, or the mean of all images.
        steps: The most steps of training.
        images: How many images there are.
    """
    layers = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), nn.ReLU()
    knobs: dict[str, Any] = {"features": 4, "dimension": 3, "width": 4}
    model = scattered(CaptionModel(3, encoder=nn.Sequential(*layers), **knobs))
    y = ended_strings(3, 4)
    with torch.no_grad():
        image = torch.randn(1, 2, 6, 5).expand(len(y), 2, 6, 5)
        own = sequence_log_prob(model, image, y)
        moved = sequence_log_prob(model, image.roll((2, 3), (2, 3)), y)
        another = sequence_log_prob(model, image.flip(1), y)
    yield equals("probabilities of all captions", own.exp().sum(), 1.0, tol=1e-12)
    yield equals("log-probabilities with a shifted image", moved, own, tol=1e-10)
    yield at_least("change with another image", (another - own).abs().max(), 1e-9, tol=0.0)
    x = torch.randn(images, 1, 8, 8)
    captions = all_strings(2, 3)[:images] + 1
    captions = torch.cat((captions, torch.zeros(images, 1, dtype=torch.long)), 1)
    if feature == "constant":
        x = x.mean(0, keepdim=True).expand_as(x)
    pupil, worst = taught(x, captions, steps)
    yield at_most("largest negative log-likelihood after training", worst, 0.01)
    written = pupil.generate(x, 6)
    right = int((nn.functional.pad(written, (0, 9))[:, :4] == captions).all(1).sum())
    yield equals("captions that are written", right, images)


def taught(x: Tensor, captions: Tensor, steps: int) -> tuple[CaptionModel, float]:
    """A model after training, and its largest loss; another if it takes two images for one."""
    left = 4
    while True:  # one start in a hundred stays at ln 2; without features all stay at ln 4
        left -= 1
        pupil = CaptionModel(3, channels=1, features=16, dimension=8, width=24)
        worst = trained(pupil, x, captions, steps, lr=0.008, enough=0.01)
        if not left or not 0.01 < worst < 1.2:
            return pupil, worst


image_captioning.foil(
    "one feature for all images", feature="constant",
    refuted_by="largest negative log-likelihood after training",
)  # fmt: skip
