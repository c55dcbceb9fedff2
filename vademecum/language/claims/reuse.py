"""What a pre-trained network knows: probes of its layers, and small heads on top."""

import math
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism import separable
from vademecum.language import SpectralEmbedding, linear_probe, pmi
from vademecum.linear import LogisticRegression


def documents(laws: Tensor, topics: Tensor, words: int) -> Tensor:
    """How often each word occurs in documents of one topic each, (n, V)."""
    drawn = torch.multinomial(laws[topics], words, replacement=True)
    return torch.nn.functional.one_hot(drawn, laws.shape[1]).sum(1).double()


def mixed(counts: Tensor, words: int) -> Tensor:
    """The same words, dealt to documents at random."""
    n, V = counts.shape
    all_words = torch.arange(V).repeat_interleave(counts.sum(0).long())
    dealt = all_words[torch.randperm(len(all_words))].view(n, words)
    return torch.nn.functional.one_hot(dealt, V).sum(1).double()


def accuracy(x: Tensor, y: Tensor, fresh: Tensor, wanted: Tensor) -> float:
    """What a logistic head learns from a few labels."""
    scale = x.std(0).mean().clamp(min=1e-9)
    head = LogisticRegression(weight_decay=1e-2, tol=1e-4).fit(x / scale, y)
    return float((head.predict(fresh / scale) == wanted).double().mean())


def gained(base: str, V: int = 200, words: int = 10) -> float:
    """What word vectors from unlabelled text add to the accuracy of a head on ten labels."""
    laws = torch.distributions.Dirichlet(torch.ones(V)).sample((2,))
    topics = [torch.randint(2, (1500,)), torch.randint(2, (600,)), torch.arange(10) % 2]
    text, fresh, few = (documents(laws, t, words) for t in topics)
    text = text if base == "text" else mixed(text, words)
    together = text.T @ text - text.sum(0).diag()  # pairs of places in one document
    vectors = SpectralEmbedding(2, random_state=0).fit(pmi(together + 1)).embedding_
    own = accuracy(few @ vectors, topics[2], fresh @ vectors, topics[1])
    return own - accuracy(few, topics[2], fresh, topics[1])


@claim(by="training", sources=("A-270", "B-414", "D-307"), budget=2.0)
def fine_tuning(base: Literal["text", "shuffled text"] = "text", repeats: int = 12):
    r"""A base that is pre-trained on unlabelled text, and a small head, need few labels.

    The base is independent of the task; it is fine-tuned, or used as it is, with a small head. With
    few labels that beats training from scratch, because the representation was learned from the
    unlabelled text. Checked for documents of 10 words, of one of two topics whose words follow laws
    drawn from a Dirichlet law on 200 words: the base are two-dimensional `SpectralEmbedding` of the
    words, from the pointwise mutual information in 1500 unlabelled documents; a logistic head on
    10 labels is compared with logistic regression on the counts of words and the same 10 labels.
    Over 12 draws the gain on 600 fresh documents is positive by more than 5 standard errors (a
    prototype found 16). A head alone changes while the base is frozen, and without a step nothing
    does.

    Knobs:
        base: What the base is pre-trained on.
        repeats: How many pairs of topics are drawn.
    """
    gain = torch.tensor([gained(base) for _ in range(repeats)])
    errors = float(gain.mean() / (gain.std() / math.sqrt(repeats)))
    yield at_least("gain of accuracy, in standard errors", errors, 5.0, repeats=repeats)
    yield from frozen(torch.randn(200, 2), torch.randn(6, 200), torch.arange(6) % 2)


def frozen(vectors: Tensor, x: Tensor, y: Tensor):
    """A step of the head alone, and no step at all."""
    model = nn.Sequential(nn.Linear(*vectors.shape, bias=False), nn.Linear(2, 2))
    base, head = model[0].get_parameter("weight"), model[1].get_parameter("weight")
    base.data = vectors.T.clone()
    base.requires_grad_(False)
    before = [p.detach().clone() for p in (base, head)]
    for steps in (0, 3):
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
        for _ in range(steps):
            with torch.enable_grad():
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        changed = [not p.equal(old) for p, old in zip((base, head), before, strict=True)]
        yield equals("base and head that changed", changed, [False, steps > 0], steps=steps)


fine_tuning.foil("words dealt to documents at random", base="shuffled text",
                 refuted_by="gain of accuracy, in standard errors")  # fmt: skip


def information(h: Tensor, y: Tensor) -> float:
    """The mutual information of labels and rows, all rows alike probable, in nats."""
    _, group = torch.unique(h, dim=0, return_inverse=True)
    table = torch.zeros(int(group.max()) + 1, 2)
    table.index_put_((group, y.long()), torch.ones(len(y)), accumulate=True)
    p = table / len(y)
    rows, columns = p.sum(1, keepdim=True), p.sum(0, keepdim=True)
    return float(torch.where(p > 0, p * (p / (rows * columns)).log(), 0.0).sum())


def readable() -> float:
    """The best accuracy of a linear threshold for the parity of two bits, over all dichotomies."""
    x = torch.tensor(list(product((0.0, 1.0), repeat=2)))
    parity = 2 * (x.sum(1) == 1).double() - 1
    best = 0.0
    for signs in product((-1.0, 1.0), repeat=4):
        y = torch.tensor(signs)
        if separable(x, y).separable:
            best = max(best, float((y == parity).double().mean()))
    return best


@claim(by="sampling", sources=("B-415",), budget=1.0)
def layer_probe(
    probe: Literal["linear", "hidden"] = "linear",
    fresh: bool = True,
    direction: Literal["deeper", "shallower"] = "deeper",
):
    r"""A linear probe tells what is linearly readable in a layer, not what is known there.

    A linear map is fitted from the frozen representation $h_l$ of a layer to a property $y$ of the
    input. By data processing $I(y; h_{l+1}) \le I(y; h_l)$ for every deterministic layer, yet what
    is linearly readable may rise with depth: the parity of two bits is at most 3/4 readable from
    them, and wholly from one layer, $h = ((x_1 + x_2)_+, (x_1 + x_2 - 1)_+)$. A probe that has
    labels drawn at random for each token is no better than chance on tokens it has not seen. (That
    BERT has syntax in lower layers and meaning in higher ones, and is weak with negation, is
    quoted.)

    All inputs of 4 bits go through random networks of 4 ReLU layers with small integers for
    weights, so that inputs fall together exactly; 16 properties. Dichotomies of the four inputs are
    all looked at, by linear programming. Probes are those of `linear_probe`.

    Knobs:
        probe: Whether the probe has a hidden layer of 16 units of its own.
        fresh: Whether the control task is scored on tokens that the probe has not seen.
        direction: Which of two neighbouring layers is said to know less.
    """
    bits = torch.tensor(list(product((0.0, 1.0), repeat=4)))
    for _ in range(3):
        h, layers = bits, [bits]
        for width in (5, 4, 4, 3):
            h = (h @ torch.randint(-1, 2, (h.shape[1], width)).double()
                 + torch.randint(-1, 2, (width,))).relu()  # fmt: skip
            layers.append(h)
        layers.append(torch.zeros(16, 1))  # a layer that has forgotten everything
        for y in torch.rand(16, 16) < 0.5:
            known = [information(h, y) for h in layers]
            pair = (known[1:], known[:-1]) if direction == "deeper" else (known[:-1], known[1:])
            yield at_most("information of neighbouring layers", *pair, tol=1e-12)
    hidden = nn.Linear(2, 2)
    hidden.weight.data, hidden.bias.data = torch.ones(2, 2), torch.tensor([0.0, -1.0])
    own = nn.Sequential(nn.Linear(2, 16), nn.ReLU()) if probe == "hidden" else nn.Identity()
    if isinstance(own, nn.Sequential):
        own[0].get_parameter("weight").data[:2] = 1.0  # two units that read parity, by the side
        own[0].get_parameter("bias").data[:2] = torch.tensor([0.0, -1.0])  # of 14 random ones
    model = nn.ModuleDict({"input": own, "layer": nn.Sequential(hidden, nn.ReLU())})
    reader = _Both(model)
    before = [p.detach().clone() for p in reader.parameters()]
    x, test = bits[:, :2].repeat(4, 1), torch.arange(64) < 32
    found = linear_probe(reader, x, x.sum(1) == 1, layers=["parts.input", "parts.layer"],
                         held_out=test, weight_decay=1e-4)  # fmt: skip
    yield equals("best accuracy of a threshold on two bits", readable(), 0.75)
    yield at_most("accuracy of the probe on two bits", float(found.scores[0]), readable())
    yield equals("accuracy of the probe after a layer", float(found.scores[1]), 1.0)
    same = [p.equal(old) for p, old in zip(reader.parameters(), before, strict=True)]
    yield equals("parameters that are what they were", same, [True] * len(same))
    tokens, labels = torch.arange(400), torch.rand(400) < 0.5
    held_out = torch.arange(400) < 200
    if not fresh:
        tokens, labels = tokens[:200].repeat(2), labels[:200].repeat(2)
    table = nn.Sequential(nn.Embedding(400, 256), nn.Identity())
    control = linear_probe(table, tokens, labels, held_out=held_out)
    chance = 0.5 + 5 * 0.5 / math.sqrt(200)  # five standard errors of 200 fair coins
    yield at_most("accuracy on random labels", control.scores, chance)


class _Both(nn.Module):
    """Runs its parts side by side."""

    def __init__(self, parts: nn.ModuleDict):
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts.values()], 1)


layer_probe.foil("a probe with a hidden layer reads parity off the bits", probe="hidden",
                 refuted_by="accuracy of the probe on two bits")  # fmt: skip
layer_probe.foil("labels by heart, scored on tokens already seen", fresh=False,
                 refuted_by="accuracy on random labels")  # fmt: skip
layer_probe.foil("later layers know more", direction="shallower",
                 refuted_by="information of neighbouring layers")  # fmt: skip
