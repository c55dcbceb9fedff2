"""Hölder's inequality: dual norms, and when it is an equality."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, integers
from vademecum.foundations import dual_norm

norm = torch.linalg.vector_norm


@claim(
    by="sampling",
    sources=("A-045", "B-013"),
    budget=0.5,
    full={"draws": 200},
    short=r"v^\top u \le \|v \odot u\|_1 \le \|v\|_p \|u\|_{p^*},\ \tfrac1p + \tfrac1{p^*} = 1",
)
def holder_inequality(
    powers: tuple[float, ...] = (1, 1.1, 1.5, 2, 3, 10, math.inf),
    dual: Callable[[Tensor, float], Tensor] = lambda u, p: dual_norm(u, p).value,
    draws: int = 3,
):
    r"""Hölder's inequality, and the dual norm.

    For conjugate exponents $\frac1p + \frac1{p^*} = 1$, $p \in [1, \infty]$:
    $v^\top u \le |v^\top u| \le \sum_i |v_i u_i| = \|v \odot u\|_1 \le \|v\|_p \|u\|_{p^*}$.
    The case $p = 2$ is Cauchy-Schwarz, and $\|u\|_{p^*} = \max_{\|v\|_p \le 1} v^\top u$.

    Knobs:
        powers: The exponents $p$.
        dual: The norm of $u$ that stands beside $\|v\|_p$.
        draws: How many pairs of vectors of each length are drawn.
    """
    pairs = [(torch.ones(8), torch.ones(8))]
    for n in (1, 2, 7, 20):
        for _ in range(draws):
            z = torch.randn(2, n).sign() * 10 ** (6 * torch.rand(2, n) - 3)
            pairs.append((z[0], z[1]))
    for u, v in pairs:
        for p in powers:
            at = {"p": p, "n": len(u)}
            conjugate = {1: math.inf, math.inf: 1.0}.get(p) or p / (p - 1)
            bound = dual(u, p) * float(np.linalg.norm(v.numpy(), p))
            chain = torch.stack([v @ u, (v @ u).abs(), (v * u).abs().sum(), bound]) / bound
            yield at_most("links of the chain, over its end", chain[:-1], chain[1:], **at)
            size, best = float(np.linalg.norm(u.numpy(), conjugate)), dual_norm(u, p).maximiser
            yield equals("dual norm, over the conjugate one", dual(u, p) / size, 1.0, **at)
            longest = float(np.linalg.norm(best.numpy(), p))
            yield at_most("norm of the maximiser", longest, 1.0, **at)
            yield equals(
                "product with the maximiser, over the dual norm", best @ u / size, 1.0, **at
            )
        whole = integers(len(u))
        sizes = [abs(int(x)) for x in whole.tolist()]
        yield equals("dual of the 1-norm", int(dual(whole, 1)), max(sizes), n=len(u))
        yield equals("dual of the maximum norm", int(dual(whole, math.inf)), sum(sizes), n=len(u))


holder_inequality.foil(
    r"equal exponents: for two vectors of eight ones and $p = 3$ the sum is 8, twice the bound 4",
    powers=(3.0,),
    dual=norm,
)


@claim(
    by="identity",
    sources=("B-014",),
    budget=0.5,
    full={"draws": 500},
    short=r"v^\top u = \|v\|_p \|u\|_{p^*} \iff |v_i|^p = \gamma"
    r" |u_i|^{p^*},\ v_i u_i \ge 0 \; (u \ne 0, 1 < p < \infty)",
)
def holder_equality(
    powers: tuple[float, ...] = (1.5, 2, 3),
    same_signs: bool = True,
    exponent: float | None = None,
    draws: int = 10,
):
    r"""Equality in Hölder's inequality: proportional powers, and for $v^\top u$ equal signs.

    For $1 < p < \infty$: $\sum_i |v_i u_i| = \|v\|_p \|u\|_{p^*}$ iff $|v_i|^p$ and $|u_i|^{p^*}$
    are proportional, with one constant for all $i$. The product $v^\top u$ attains the bound iff
    in addition $v_i u_i \ge 0$ for every $i$.

    For moduli in $[0.1, 2]$ and up to six entries, twice one $v_i$ costs more than $10^{-6}$ of the
    bound: at least 0.06 of the share $|u_i|^{p^*} / \sum_j |u_j|^{p^*}$ or of what it lacks to one,
    both more than $2 \cdot 10^{-5}$.

    Knobs:
        powers: The exponents $p$, above 1.
        same_signs: Whether $v$ has the signs of $u$, or none.
        exponent: The power of $|u_i|$ that $|v_i|$ is; that of equality, $p^* - 1$, if not given.
        draws: How many vectors $u$ are drawn for each exponent.
    """
    cases = [(2.0, torch.tensor([1.0, -1.0]))]
    for p in powers:
        for draw in range(draws):
            u = torch.randn(2 + draw % 5).sign() * (0.1 + 1.9 * torch.rand(2 + draw % 5))
            u[:2] *= u[:2].sign() * torch.tensor([1, -1])
            cases.append((p, u))
    for draw, (p, u) in enumerate(cases):
        q, n = p / (p - 1), len(u)
        best = dual_norm(u, p).maximiser * norm(u, q) ** (q - 1)
        v = best if exponent is None else u.sign() * u.abs() ** exponent
        v = v if same_signs else v.abs()
        bound, at = norm(v, p) * norm(u, q), {"p": p, "n": n}
        # The bounds are at least 2e-3, so that this is a relative error of 1e-9.
        yield equals(r"$v^\top u$, against the bound", v @ u, bound, tol=1e-12, **at)
        sizes = (v * u).abs()
        yield equals(r"$\sum_i |v_i u_i|$, against the bound", sizes.sum(), bound, tol=1e-12, **at)
        share = v.abs() ** p / u.abs() ** q
        yield equals(r"ratios $|v_i|^p / |u_i|^{p^*}$, over the first", share / share[0], 1.0, **at)
        flip = torch.ones(n)
        flip[draw % n] = -1
        loss = v @ u - (flip * v) @ u
        yield equals("loss from one wrong sign", loss, 2 * sizes[draw % n], tol=1e-12, **at)
        longer = v * (1.5 - flip / 2)
        ratio = (longer * u).abs().sum() / (norm(longer, p) * norm(u, q))
        yield at_most("share of the bound with one entry doubled", ratio, 1 - 1e-6, tol=0.0, **at)


holder_equality.erratum(
    "B-014",
    printed=r"equality if $|v|^p = \gamma |u|^{p^*}$, for the chain that starts with $v^T u$",
    right=r"in addition $v_i u_i \ge 0$ for every $i$",
    why=r"A condition on the signs is missing: with $p = 2$, $v = (1, 1)$, $u = (1, -1)$ the "
    r"printed condition holds with $\gamma = 1$, but $v^\top u = 0 < 2 = \|v\|_2 \|u\|_2$.",
    weight="soft",
    same_signs=False,
)
holder_equality.foil("proportional moduli, without the powers", exponent=1.0)
