"""Augmented examples: what virtual examples teach, and how few independent ones they are worth."""

from itertools import permutations
from typing import Literal

import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals, in_mean
from vademecum.regularization import effective_sample_size, random_crop, random_flip
from vademecum.regularization import pca_jitter as jittered


def mirrored(x: Tensor) -> list[Tensor]:
    """An image and its three mirror images, by `random_flip` with coins that fall one way."""
    coins = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    return [random_flip(x, horizontal=a, vertical=b) for a, b in coins]


def least_norm(X: Tensor, y: Tensor) -> Tensor:
    """The least-squares solution of least norm."""
    return torch.linalg.pinv(X) @ y


@claim(
    by="identity",
    sources=("A-173", "B-347", "D-240"),
    budget=0.5,
    short=r"\{(g x_i, y_i)\}_{g \in G} \Rightarrow g w = w;\ "
    r"2 (256 - 224 + 1)^2 = 2178 \text{ mirrored crops}",
)
def data_augmentation(orbit: Literal["whole", "part"] = "whole", more: int = 1):
    r"""Virtual examples $(x, y) \mapsto (\tau(x), y)$ enlarge the training set.

    The map $\tau$ must preserve labels. If the labelled set is closed under a finite orthogonal
    group that acts on inputs and leaves labels alone, the least-norm least-squares solution is
    itself invariant, and is the one on inputs averaged over the group. AlexNet cut
    $224 \times 224$ crops from $256 \times 256$ images, with reflections: $2 \cdot 33^2 = 2178$
    variants of each image.

    *Proof.* If $w$ solves, so does $g w$, with the same norm, and the solution of least norm is
    unique. A window may begin at $256 - 224 + 1$ places along each side.

    Checked for all 24 permutations of 4 coordinates and for the mirror images of `random_flip`,
    with more examples than coordinates and with fewer. The variants of $256 \times 256$ are
    enumerated; those that `random_crop` and `random_flip` draw from smaller images are counted, and
    occur equally often. A reflection that does not preserve labels drives its coefficient to 0.

    Knobs:
        orbit: Whether all images of an example under the group are taken, or not quite all.
        more: By how much the places along a side exceed the difference of the sizes.
    """
    orders = [list(order) for order in permutations(range(4))]
    orders = orders if orbit == "whole" else orders[:5]
    for n in (3, 9):
        X, y = torch.randn(n, 4) + torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.randn(n) + 3
        w = least_norm(torch.cat([X[:, order] for order in orders]), y.repeat(len(orders)))
        yield equals("coefficients of permuted coordinates", w, w.mean(), tol=1e-10, n=n)
        mean = X.mean(1, keepdim=True)
        fit = (least_norm(mean.expand(n, 4), y)).expand(4)
        yield equals("fit on the mean coordinate", w, fit, tol=1e-10, n=n)
    slope = torch.linspace(-1, 1, 24).view(4, 6)
    for n in (3, 40):
        x, y = torch.randn(n, 1, 4, 6) + slope, torch.randn(n) + 1
        images = mirrored(x)
        kept = images if orbit == "whole" else images[:3]
        w = least_norm(torch.cat(kept).flatten(1), y.repeat(len(kept)))
        for name, turned in zip(("columns", "rows"), ((1,), (0,)), strict=True):
            grid = w.view(4, 6)
            yield equals(f"coefficients with {name} mirrored", grid.flip(turned), grid, tol=1e-9,
                         n=n)  # fmt: skip
        mean = torch.stack(images).mean(0).flatten(1)
        yield equals("fit on the mean mirror image", w, least_norm(mean, y), tol=1e-9, n=n)
    x = torch.randn(60, 3)
    plain = least_norm(x, x[:, 0].sign())[0]
    other = x * torch.tensor([-1.0, 1.0, 1.0])
    both = least_norm(torch.cat((x, other)), x[:, 0].sign().repeat(2))[0]
    yield at_least("coefficient of x_1 for its sign", plain, 0.1)
    yield equals("the same with reflections that change the label", both, 0.0, tol=1e-10)
    yield from _variants(more)


def _variants(more: int):
    index = torch.arange(256 * 256).view(256, 256)
    first = index.unfold(0, 224, 1).unfold(1, 224, 1)[:, :, 0].flatten(0, 1)  # first rows
    ends = torch.stack((first[:, 0], first[:, -1]), 1)
    found = len(torch.unique(torch.cat((ends, ends.flip(1))), dim=0))
    yield equals("mirrored crops of 224 from 256", found, 2 * (256 - 224 + more) ** 2)
    for H, W, h, w in ((7, 6, 4, 3), (5, 5, 3, 2)):
        draws = 60 * 2 * (H - h + 1) * (W - w + 1)  # one is missed with probability 1e-24
        x = torch.arange(1.0, H * W + 1).view(1, 1, H, W).expand(draws, 1, H, W)
        y = random_flip(random_crop(x, (h, w)))
        kinds, counts = torch.unique(y.flatten(1), dim=0, return_counts=True)
        yield equals("mirrored crops that are drawn", len(kinds),
                     2 * (H - h + more) * (W - w + more), H=H, h=h, W=W, w=w)  # fmt: skip
        p = float(stats.chisquare(counts.double().numpy()).pvalue)
        yield consistent("p-value of all equally often", p, H=H, h=h, W=W, w=w)


data_augmentation.foil("orbits that are not whole", orbit="part")
data_augmentation.foil("2 x 32^2 = 2048 variants", more=0)


@claim(
    by="identity",
    sources=("A-174",),
    budget=0.5,
    short=r"\mathrm{Var}\, \bar x = \frac{\sigma^2}{nk}(1 + (k-1)\rho),\ n_{\mathrm{eff}} ="
    r" \frac{nk}{1+(k-1)\rho} \le \frac n\rho",
)
def augmented_dependence(copies: Literal["dependent", "independent"] = "dependent"):
    r"""Augmentation multiplies examples, but the copies are not independent.

    With $k$ copies of each of $n$ examples, of variance $\sigma^2$ and correlation $\rho$ within an
    example, the mean has variance $\frac{\sigma^2}{n k} (1 + (k - 1) \rho)$: the copies are worth
    $n k / (1 + (k - 1) \rho)$ independent examples, at most $n / \rho$ for $\rho > 0$, which is
    what infinitely many would be worth.

    *Proof.* Of the $(n k)^2$ covariances of pairs, $n k$ are $\sigma^2$, $n k (k - 1)$ are
    $\rho \sigma^2$, and the others are 0.

    Compared with the quadratic form of the whole covariance matrix, and with the means of crops
    that `random_crop` cuts from images of independent pixels, within five standard errors.

    Knobs:
        copies: Whether the copies of an example count as dependent.
    """
    for n, k, rho in (
        (4, 3, 0.5),
        (7, 10, 0.5),
        (5, 6, 0.0),
        (3, 8, 1.0),
        (6, 5, -0.1),
        (2, 1, 0.3),
    ):
        sigma2, at = 1.7, {"n": n, "k": k, "rho": rho}
        block = (1 - rho) * torch.eye(k) + rho * torch.ones(k, k)
        Sigma = sigma2 * torch.block_diag(*[block] * n)
        variance = Sigma.sum() / (n * k) ** 2
        worth = float(n * k) if copies == "independent" else _worth(n, k, rho)
        yield equals("variance of the mean", variance, sigma2 / worth, tol=1e-12, **at)
        if rho > 0:
            yield at_most("worth of the copies", worth, n / rho, **at)
            yield equals("worth of a million copies", _worth(n, 10**6, rho), n / rho,
                         tol=2e-5, **at)  # fmt: skip
    yield equals("worth of copies that cancel", 1 / _worth(4, 3, -0.5), 0.0)
    n, k, h = 6, 5, 4
    share = [max(0, h - abs(a - b)) / h for a in range(3) for b in range(3)]  # of two windows' rows
    rho = (sum(share) / 9) ** 2
    x = torch.randn(1500 * n, 1, h + 2, h + 2).repeat_interleave(k, 0)
    means = random_crop(x, h).mean((1, 2, 3)).view(1500, n * k).mean(1)
    worth = float(n * k) if copies == "independent" else _worth(n, k, rho)
    yield in_mean("squared mean of crops", means.square(), 1 / h**2 / worth, n=n, k=k)


def _worth(n: int, k: int, rho: float) -> float:
    return effective_sample_size(n, k, correlation=rho)


augmented_dependence.foil("copies as if independent", copies="independent")


def _moved(x: Tensor, C: Tensor, s: float, form, jitter: str) -> Tensor:
    """Images with colours moved: by the part, or in two wrong ways."""
    if jitter == "axes":
        return jittered(x, s, covariance=C if form == "root" else None, form=form)
    if jitter == "pixels":
        n, c, h, w = x.shape
        pixels = x.permute(0, 2, 3, 1).reshape(-1, c, 1, 1)
        moved = jittered(pixels, s, covariance=C, form=form)
        return moved.view(n, h, w, c).permute(0, 3, 1, 2)
    power = C if form == "root" else C @ C
    return x + s * power.diagonal().sqrt().view(-1, 1, 1) * torch.randn(*x.shape[:2], 1, 1)


@claim(
    by="sampling",
    sources=("A-173", "B-347"),
    budget=0.6,
    short=r"\mathrm{Cov} \sum_i \alpha_i \sqrt{\lambda_i}\, p_i = s^2 C,"
    r"\ \mathrm{Cov} \sum_i \alpha_i \lambda_i p_i = s^2 C^2",
)
def pca_jitter(
    jitter: Literal["axes", "channels", "pixels"] = "axes",
    root_power: int = 1,
    alexnet_power: int = 2,
):
    r"""Colours move along their own principal axes.

    Let $C = \sum_i \lambda_i p_i p_i^\top$ be the covariance of the pixels' colours and
    $\alpha_i \sim \mathcal N(0, s^2)$ independent. Adding $\sum_i \alpha_i \sqrt{\lambda_i}\, p_i$
    to all pixels of an image moves it along the data's own axes of colour, with covariance
    $s^2 C$; AlexNet's form, with $\lambda_i$ in place of the root, has the covariance $s^2 C^2$.
    Differences between pixels of one image, hence edges, do not change.

    *Proof.* $\mathbb E \sum_{ij} \alpha_i \alpha_j \sqrt{\lambda_i \lambda_j}\, p_i p_j^\top =
    s^2 \sum_i \lambda_i p_i p_i^\top$.

    All moments of second order of what `pca_jitter` draws, for 3 and for 2 channels, are compared
    within five standard errors; that a quadratic form of it has the law $\chi^2$ of as many degrees
    of freedom as there are channels, and that images move independently. By default $C$ is that of
    the batch itself.

    Knobs:
        jitter: Whether images move along the axes, in each channel on its own, or pixel by pixel.
        root_power: The power of $C$ for roots of eigenvalues.
        alexnet_power: The power of $C$ for eigenvalues.
    """
    for c, s, draws in ((3, 0.5, 6000), (2, 1.3, 3000)):
        A = 0.5 * torch.eye(c) + 0.5 + 0.1 * torch.rand(c, c)  # far from singular
        x = torch.einsum("ij,njhw->nihw", A, torch.randn(draws, c, 2, 3))
        own = torch.cov(x.transpose(0, 1).flatten(1), correction=0)
        for form, power in (("root", root_power), ("alexnet", alexnet_power)):
            move = _moved(x, own, s, form, jitter) - x
            at = {"c": c, "form": form}
            yield equals("changes of differences of pixels", move - move[:, :, :1, :1], 0.0,
                         tol=1e-12, **at)  # fmt: skip
            m, target = move[:, :, 0, 0], s**2 * torch.linalg.matrix_power(own, power)
            for i in range(c):
                for j in range(i, c):
                    yield in_mean("products of two channels' moves", m[:, i] * m[:, j],
                                  float(target[i, j]), i=i, j=j, **at)  # fmt: skip
            yield in_mean("products of two images' moves", m[1:, 0] * m[:-1, 0], 0.0, **at)
            form_of = (torch.linalg.solve(target, m.T) * m.T).sum(0)
            p = float(stats.kstest(form_of.numpy(), stats.chi2(c).cdf).pvalue)
            yield consistent("p-value of the quadratic form's law", p, **at)


SAMPLED = "a covariance is estimated from draws, with its standard errors"
pca_jitter.foil("one offset for each pixel", jitter="pixels",
                refuted_by="changes of differences of pixels")  # fmt: skip
pca_jitter.foil("each channel on its own", jitter="channels", close=SAMPLED,
                refuted_by="products of two channels' moves")  # fmt: skip
pca_jitter.foil("covariance C for AlexNet's form", alexnet_power=1, close=SAMPLED)
pca_jitter.foil("covariance C^2 for the roots", root_power=2, close=SAMPLED)
