"""Layers and letters: words out of characters, and layers mixed for a task."""

import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.language import ELMo
from vademecum.language.claims._networks import drawn
from vademecum.language.claims._spelling import pooled_by_hand, strings, without_end


class Table(nn.Module):
    """Vectors of known words, and one for all others."""

    def __init__(self, d: int):
        super().__init__()
        self.unknown = nn.Parameter(torch.randn(d))

    def forward(self, characters: Tensor) -> Tensor:
        """None of these strings is known."""
        return self.unknown.expand(*characters.shape[:-1], -1)


@claim(
    by="identity",
    sources=("B-407", "D-312"),
    budget=0.9,
    short=r"f_j(w) = \max_t \langle W_j, (c_t, \dots, c_{t+k-1}) \rangle + b_j:"
    r"\ \text{any string has a vector}",
)
def elmo_characters(
    words: Literal["characters", "table"] = "characters", strings_drawn: int = 1000
):
    r"""As ELMo builds words from characters, every string has an embedding.

    There are no words out of vocabulary, and words that share windows of characters share features:
    the largest answers of filters over all windows of a word between its marks. Strings with other
    windows get other vectors. Windows are complete, so if the mark at the end is left out, those of
    a stem of three letters or more are among those of the stem with a suffix, and no feature of
    filters up to width 3 ever falls when a suffix is appended.

    Random strings of 1 to 15 letters, two of them beyond ASCII; features of some are computed
    window by window. With 120 filters of each width, a window that two short strings do not share
    is the largest for no filter with a probability below $10^{-9}$.

    Knobs:
        words: What a word's vector is made from: its characters, or a table of known words.
        strings_drawn: How many random strings there are.
    """
    net = drawn(ELMo(d=5, hidden=5, d_characters=4, filters={1: 3, 2: 4, 3: 5, 5: 2}), 1.0)
    net.words.embedding.weight[0] = 0  # as it stays in training
    drawn_strings = strings(strings_drawn, 1, 15)
    vectors = net(ELMo.encode([drawn_strings]).characters).layers[0, 0, :, :5]
    finite = int(vectors.isfinite().all(1).sum())
    yield equals("strings with a finite vector", finite, strings_drawn)
    characters = ELMo.encode([drawn_strings[:12]]).characters
    by_hand = torch.tensor([pooled_by_hand(net, word) for word in drawn_strings[:12]])
    yield equals("features", net.words.features(characters)[0], by_hand, tol=1e-11)
    wide = drawn(ELMo(d=6, hidden=6, d_characters=5, filters={2: 120, 3: 120}), 1.0)
    network = wide.words if words == "characters" else Table(6)
    unseen = sorted(set(strings(60, 3, 6)))
    found = network(ELMo.encode([unseen]).characters)[0]
    apart = (found[:, None] - found).abs().amax(2) > 1e-9
    yield equals("pairs of strings with different vectors", int(apart.sum()),
                 len(unseen) * (len(unseen) - 1))  # fmt: skip
    stems = strings(40, 3, 8)
    longer = [stem + suffix for stem, suffix in zip(stems, strings(40, 1, 4), strict=True)]
    both = wide.words.features(without_end([*stems, *longer]))[0]
    yield at_least("features with a suffix", both[40:], both[:40], tol=1e-12)
    kept = int((both[40:] == both[:40]).sum()) / both[:40].numel()
    yield at_least("share of features that a suffix keeps", kept, 0.2)


elmo_characters.foil("one vector for all unknown words", words="table")


def mixed_by_hand(net: ELMo, layers: Tensor) -> Tensor:
    """Exponentials over their sum as weights, layer by layer; layers (n, L + 1, T, 2 d)."""
    powers = [math.exp(w) for w in net.weights.tolist()]
    found = torch.zeros_like(layers[:, 0])
    for power, layer in zip(powers, layers.unbind(1), strict=True):
        found = found + float(net.gamma) * power / math.fsum(powers) * layer
    return found


@claim(
    by="identity",
    sources=("A-266", "B-406", "B-408", "D-316"),
    budget=0.6,
    short=r"\gamma \sum_{j=0}^{L} s_j h_j,\quad s = \mathrm{softmax}(w):"
    r"\ L + 2 \text{ numbers for a task}",
)
def elmo_mixing(weights: Literal["softmax", "free"] = "softmax", frozen: bool = True):
    r"""What a task sees of a token is $\gamma \sum_{j=0}^L s_j h_j$ with softmax weights $s$.

    A convex combination of the layers times a learned scale: the $2L + 1$ representations (the
    token's, $L$ from the left, $L$ from the right) are concatenated layer by layer, the token's
    with itself, and mixed by $L + 1$ weights. The large model is trained once as a language model
    and kept; what is trained for a task are these $L + 2$ numbers and the task's own network.

    $L = 2$ and $3$, random networks: mixed vectors lie between the layers in every coordinate, the
    weights are found again from them by least squares, and slopes with respect to $w$ and $\gamma$
    are those of central differences ($h = 10^{-5}$; their error is of the order $h^2$ and
    $10^{-16} / h$, and $10^{-7}$ is allowed).

    Knobs:
        weights: What multiplies layers: softmax weights, or free ones.
        frozen: Whether the network stays as it is while a task is learned.
    """
    for L, d in ((2, 3), (3, 4)):
        sizes = {"layers": L, "d": d, "hidden": d + 1, "d_characters": 3, "filters": {1: 3, 2: 4}}
        net, at = drawn(ELMo(**sizes)), {"L": L}
        net.gamma.fill_(1.5)
        characters = ELMo.encode([["we", "saw", "her", "duck"], ["they", "can", "fish", "it"]])[0]
        mixed, layers = net(characters)
        yield equals("layers", layers.shape[1], L + 1, **at)
        yield equals(
            "a token's vector, twice", layers[:, 0, :, :d], layers[:, 0, :, d:], tol=0.0, **at
        )
        if weights == "free":
            mixed = net.gamma * torch.einsum("l,nltd->ntd", net.weights, layers)
        yield equals("mixed vectors", mixed, mixed_by_hand(net, layers), tol=1e-12, **at)
        yield at_most("a coordinate", mixed / 1.5, layers.amax(1), tol=1e-12, **at)
        yield at_least("a coordinate", mixed / 1.5, layers.amin(1), tol=1e-12, **at)
        columns = layers.transpose(0, 1).flatten(1).T
        shares = torch.linalg.lstsq(columns, mixed.flatten()[:, None] / 1.5).solution[:, 0]
        yield equals("sum of the weights", shares.sum(), 1.0, tol=1e-9, **at)
        yield at_least("a weight", shares, 0.0, tol=1e-9, **at)
        net.requires_grad_()
        head = nn.Linear(2 * d, 3)
        if frozen:
            net.freeze()

        def loss(
            net: ELMo = net, head: nn.Linear = head, characters: Tensor = characters
        ) -> Tensor:
            return head(net(characters).mixed).square().mean()

        loss().backward()
        learned = sum(p.numel() for p in net.parameters() if p.grad is not None and p.grad.any())
        yield equals("numbers of the network that learn", learned, L + 2, **at)
        yield from slopes(net, loss, L)


def slopes(net: ELMo, loss: Callable[[], Tensor], L: int) -> Iterator[Evidence]:
    """Slopes in the weights and the scale, against central differences."""
    for name, p in (("w", net.weights), ("gamma", net.gamma)):
        assert p.grad is not None
        flat, found = p.data.view(-1), []
        for i in range(flat.numel()):
            values = []
            for h in (1e-5, -2e-5):
                flat[i] += h
                values.append(float(loss().detach()))
            flat[i] += 1e-5
            found.append((values[0] - values[1]) / 2e-5)
        yield equals(f"slope in {name}", torch.tensor(found), p.grad.view(-1), tol=1e-7, L=L)


elmo_mixing.foil("weights without a softmax", weights="free", refuted_by="sum of the weights")
elmo_mixing.erratum(
    "B-408",
    printed="ELMo is trained in a task-specific manner",
    right="it is trained once as a language model; a task learns L + 2 numbers and its own network",
    why="were the network trained for the task, all of its 1,629 numbers would learn, not L + 2",
    weight="soft",
    frozen=False,
    refuted_by="numbers of the network that learn",
)
