"""Labels that cost nothing: contrast with other examples, and tasks made from the data."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.foundations import mutual_information
from vademecum.regularization import (
    ContrastivePredictiveCoding,
    colourisation_task,
    info_nce_loss,
    mask_task,
    motion_task,
    patch_position_task,
    rotation_task,
)


def by_enumeration(joint: Tensor, f: Tensor, N: int, *, own: bool = True) -> Tensor:
    """The expected loss: over context and true sample, and over all tuples of negatives."""
    k = len(joint)
    marginal = joint.sum(1)
    draws = torch.cartesian_prod(*[torch.arange(k)] * (N - 1)).view(-1, N - 1)
    weights = marginal[draws].prod(1)
    others = f[draws].sum(1)  # (draws, contexts)
    total = f[:, None] + others if own else others.expand(k, *others.shape)
    losses = total.log() - f.log()[:, None]  # (true sample, draws, context)
    return torch.einsum("xc,d,xdc->", joint, weights, losses)


def by_the_part(joint: Tensor, f: Tensor, N: int, temperature: float) -> Tensor:
    """The expectation of `info_nce_loss` over all batches of N pairs drawn independently."""
    k, m = joint.shape
    key, query = torch.eye(k), temperature * f.log().T  # scores are the logarithms of f
    total = torch.zeros(())
    for batch in product(product(range(k), range(m)), repeat=N):
        x, c = map(list, zip(*batch, strict=True))
        loss = info_nce_loss(query[c], key[x], temperature=temperature)
        total = total + joint[x, c].prod() * loss
    return total


def skewed_law(k: int, m: int) -> Tensor:
    """A joint law of k samples and m contexts that are dependent, the samples far from uniform."""
    given = torch.rand(k, m) + 0.2 + 2 * torch.eye(max(k, m))[:k, :m]
    joint = given / given.sum() * torch.linspace(4, 1, k)[:, None]
    return joint / joint.sum()


@claim(
    by="identity",
    sources=("A-179",),
    budget=1.0,
    short=r"\ell = -\mathbb E \log \frac{f(x, c)}{\sum_{x'} f(x', c)},\ \log N - \ell \le I(x; c),"
    r"\ f^* \propto \frac{p(x|c)}{p(x)}",
)
def infonce(
    score: Literal["ratio", "conditional"] = "ratio",
    denominator: Literal["all", "negatives"] = "all",
):
    r"""InfoNCE finds the ratio of densities, and bounds the mutual information.

    From a context $c$ the true future $x$ is scored against $N - 1$ negatives drawn from the
    marginal: $\ell = -\mathbb E \log \frac{f(x, c)}{\sum_{x'} f(x', c)}$, the sum over the true and
    the negative samples. The optimal score is $f^* \propto p(x \mid c) / p(x)$, up to any positive
    factor that depends on $c$, and $\log N - \ell \le I(x; c)$ for every $f > 0$.

    *Proof.* $\ell$ is the cross-entropy of finding the true one among $N$; its posterior given
    all of them is proportional to $p(x \mid c) / p(x)$. The bound is the chain rule for this place.

    Expectations are exact, over all outcomes of laws on 3 x 2, 3 x 3 and 2 x 4 points: of
    `info_nce_loss` over all batches of 2 or 3 pairs, and of the formula for $N$ up to 4. Where $x$
    and $c$ are one of $k$ points, all alike, the loss is $\mathbb E \log(1 + B)$ with a binomial
    $B$ of $N - 1$ trials of probability $1/k$.

    Knobs:
        score: Whether the best score is said to be $p(x | c) / p(x)$ or $p(x | c)$.
        denominator: Whether the sum is over all samples or over the negatives only.
    """
    own = denominator == "all"
    for k, m in ((3, 2), (3, 3), (2, 4)):
        joint, at = skewed_law(k, m), {"k": k, "m": m}
        given = joint / joint.sum(0)
        ratio = given / joint.sum(1, keepdim=True)
        best = ratio if score == "ratio" else given
        others = [ratio, given, joint, torch.ones(k, m)]
        others += [ratio * (0.3 * torch.randn(k, m)).exp() for _ in range(20)]
        information, bounds = mutual_information(joint), []
        for N in (2, 3, 4):
            least = by_enumeration(joint, best, N, own=own)
            losses = torch.stack([by_enumeration(joint, f, N, own=own) for f in others])
            bounds.append(math.log(N) - least)
            yield at_most("log N - loss", math.log(N) - losses, information, N=N, **at)
            yield at_least("loss of other scores", losses, least, N=N, **at)
            yield equals("loss of a score without information", losses[3], math.log(N), N=N)
            scaled = by_enumeration(joint, best * (torch.rand(m) + 0.1), N, own=own)
            yield equals("loss with a factor for each context", scaled, least, tol=1e-12, N=N)
        yield at_least("growth of log N - loss with N", torch.stack(bounds).diff(), 0.0, **at)
        for N, temperature in ((2, 0.5),) if k * m > 6 else ((2, 0.5), (3, 2.0)):
            exact = by_enumeration(joint, others[-1], N, own=own)
            yield equals("expectation of info_nce_loss", by_the_part(joint, others[-1], N,
                         temperature), exact, tol=1e-11, N=N, **at)  # fmt: skip
    yield from _same_point(own)


def _same_point(own: bool) -> Iterator[Evidence]:
    for k, N in ((3, 2), (2, 3), (4, 2)):
        f = torch.eye(k) * 60.0  # e^60 against 1
        found = by_enumeration(torch.eye(k) / k, f.exp(), N, own=own)
        law = [math.comb(N - 1, b) * (k - 1) ** (N - 1 - b) / k ** (N - 1) for b in range(N)]
        exact = sum(p * math.log(1 + b) for b, p in enumerate(law))
        yield equals("loss for one of k equal points", found, exact, tol=1e-12, k=k, N=N)
        yield equals("the same by info_nce_loss", by_the_part(torch.eye(k) / k, f.exp(), N, 1.0),
                     exact, tol=1e-12, k=k, N=N)  # fmt: skip


infonce.foil("p(x | c) as the best score", score="conditional", refuted_by="loss of other scores")
infonce.foil("a sum over the negatives only", denominator="negatives", refuted_by="log N - loss")


AROUND = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]


def correlation(pair: Tensor) -> Tensor:
    """The circular cross-correlation of two frames, summed over channels, for all displacements."""
    a, b = torch.fft.fft2(pair[:, 0]), torch.fft.fft2(pair[:, 1])
    return torch.fft.ifft2(a.conj() * b).real.sum(1)


@claim(
    by="identity",
    sources=("A-178", "B-352"),
    budget=0.8,
    short=r"\delta = \arg\max_d \sum_i x_i x'_{i + d} \text{ for } x'_i = x_{i - \delta};"
    r"\ (Y, C_b, C_r) \leftrightarrow (R, G, B)",
)
def pretext_tasks(
    chroma: Literal["both", "one"] = "both", sign: int = 1, period: Literal[0, 8] = 0
):
    r"""Self-supervised labels cost nothing and are exact.

    Patch location: which of the 8 neighbours in a $3 \times 3$ grid a second patch is.
    Colourisation: the two chroma channels from the luminance; the map from red, green and blue to
    luminance and chroma is linear and invertible, of condition number 1.75, so that input and label
    together are the image, and the input does not depend on the label. Motion: the displacement
    between two frames, for a circular shift the unique maximum of their cross-correlation unless
    the frame is periodic. Turns: by how many quarters an image was turned. Masks: what was hidden.
    Predictive coding takes future latent states.

    *Proof* of the maximum. $\sum_i x_i x'_{i + d} \le \sum_i x_i^2$ by Cauchy and Schwarz, with
    equality if and only if $x$ and the shifted $x'$ are the same.

    Knobs:
        chroma: Whether both chroma channels are kept, or one is dropped.
        sign: The sign of the displacement.
        period: A period of the frames along their rows, or 0 for none.
    """
    yield from _patches()
    yield from _colours(chroma)
    for h, w in ((16, 16), (9, 16)):
        x = torch.rand(100, 2, h, w)
        x = x[:, :, :, :period].repeat(1, 1, 1, 2) if period else x
        inputs, labels = motion_task(x)
        scores = correlation(inputs).flatten(1)
        most = scores.amax(1, keepdim=True)
        near = scores >= most - 1e-9 * most
        yield equals("displacements of largest correlation", near.sum(1), 1, h=h, w=w)
        place = scores.argmax(1)
        found = torch.stack((place // w, place % w), 1)
        size = torch.tensor([h, w])
        yield equals("displacement of the largest", found, (sign * labels) % size, h=h, w=w)
        spread = labels.amax(0) - labels.amin(0)
        yield at_least("spread of the displacements", spread, size // 2, h=h, w=w)
    x = torch.rand(3, 2, 5, 5)
    inputs, labels = rotation_task(x)
    back = torch.stack([z.rot90(-int(k), (1, 2)) for z, k in zip(inputs, labels, strict=True)])
    yield equals("images turned back", back, x.repeat_interleave(4, 0))
    yield equals("labels of turns", labels.view(3, 4), torch.arange(4).expand(3, 4))
    yield from _hidden()
    yield from _futures()


def _patches() -> Iterator[Evidence]:
    for H, W, patch, gap in ((14, 17, 3, 2), (12, 12, 4, 0)):
        x = torch.arange(H * W).view(1, 1, H, W).double().repeat(300, 1, 1, 1)
        inputs, labels = patch_position_task(x, patch, gap=gap)
        first, second = inputs[:, 0, 0, 0, 0].long(), inputs[:, 1, 0, 0, 0].long()
        moved = torch.stack((second // W - first // W, second % W - first % W), 1)
        wanted = torch.tensor(AROUND)[labels] * (patch + gap)
        yield equals("place of the second patch", moved, wanted, patch=patch, gap=gap)
        kinds = len(labels.unique())
        yield equals("neighbours that occur", kinds, 8, patch=patch)
        within = torch.arange(patch)[:, None] * W + torch.arange(patch)
        yield equals("pixels of patches", inputs[:, :, 0],
                     inputs[:, :, 0, :1, :1] + within, patch=patch)  # fmt: skip


def _colours(chroma: str) -> Iterator[Evidence]:
    x = torch.rand(5, 3, 4, 6)
    task = colourisation_task(x)
    blue, red = task.labels.unbind(1)
    red = red if chroma == "both" else torch.zeros_like(red)
    Y = task.inputs[:, 0]
    R, B = Y + 1.402 * red, Y + 1.772 * blue
    back = torch.stack((R, (Y - 0.299 * R - 0.114 * B) / 0.587, B), 1)
    yield equals("image from luminance and chroma", back, x, tol=1e-12)
    yield equals("the same by its method", task.images(), x, tol=1e-12)
    unit = colourisation_task(torch.eye(3)[:, :, None, None])
    M = torch.cat((unit.inputs, unit.labels), 1)[:, :, 0, 0].T
    yield equals("condition number", torch.linalg.cond(M), 1.75, tol=2e-3)
    recoloured = colourisation_task(x + torch.tensor([0.587, -0.299, 0.0]).view(3, 1, 1))
    yield equals("luminance of a recoloured image", recoloured.inputs, task.inputs, tol=1e-12)
    yield at_least("change of its chroma", (recoloured.labels - task.labels).abs().amax(), 0.1)


def _hidden() -> Iterator[Evidence]:
    for share, count in ((0.75, 9), (0.4, 5)):
        x = torch.rand(20, 3, 6, 8) + 1
        inputs, labels, hidden = mask_task(x, 2, share=share)
        cells = hidden.double().unfold(2, 2, 2).unfold(3, 2, 2).sum((-2, -1))
        yield equals(
            "whole patches that are hidden", (cells == 4).sum((1, 2, 3)), count, share=share
        )
        yield equals("patches that are hidden or not", ((cells == 4) | (cells == 0)).all(), True)
        yield equals("inputs", inputs, torch.where(hidden, 0.0, x), share=share)
        yield equals("labels", labels, x, share=share)


def _futures() -> Iterator[Evidence]:
    n, T, d = 2, 5, 3
    net = ContrastivePredictiveCoding(nn.Identity(), nn.Identity(), d, ahead=2)
    net.requires_grad_(False)
    x = torch.randn(n, T, d)
    for r, (predict, loss) in enumerate(zip(net.predictions, net(x).losses, strict=True), 1):
        pairs = [(predict(x[k, t]), x[k, t + r]) for k in range(n) for t in range(T - r)]
        scores = torch.tensor([[float(q @ z) for _, z in pairs] for q, _ in pairs])
        by_hand = (scores.logsumexp(1) - scores.diagonal()).mean()
        yield equals("loss of predictive coding", loss, by_hand, tol=1e-12, ahead=r)


pretext_tasks.foil("one chroma channel dropped", chroma="one")
pretext_tasks.foil("the displacement with its sign reversed", sign=-1)
pretext_tasks.foil("frames of period 8", period=8)
