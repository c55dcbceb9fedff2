"""The tangent kernel of wide networks: coordinates in which it has a limit, and that limit."""

import copy
import math
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import claim, equals, in_mean, slope
from vademecum.kernels import ArcCosineKernel, empirical_ntk, infinite_width, ntk_parametrize
from vademecum.kernels.claims.wide_layers import Erf, Function, at_lengths, pair_means, relu
from vademecum.models import mlp


def drawn(layer: nn.Module) -> nn.Module:
    """The same layer, all its coordinates standard normal."""
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()
    return layer


@claim(
    by="sampling",
    sources=("A-299", "C-243", "C-244"),
    budget=0.8,
    short=r"w_{ij} = \tfrac{\sigma_w}{\sqrt m} \omega_{ij},\quad b_i = \sigma_b \beta_i,\quad"
    r" \omega, \beta \sim \mathcal N(0, 1)",
)
def ntk_parametrisation(bias_power: float = 0.0, width_power: float = 1.0, units: int = 3000):
    r"""The NTK parametrisation.

    $w_{ij}^l = \frac{\sigma_w}{\sqrt{m_{l-1}}}\, \omega_{ij}^l$ and $b_i^l = \sigma_b\, \beta_i^l$
    with trainable $\omega, \beta$ that begin i.i.d. $\mathcal N(0, 1)$, $m_{l-1}$ the width of the
    incoming layer. Each pre-activation has the variance $\sigma_w^2 q + \sigma_b^2$ at every width,
    $q$ the mean square of incoming activations; a bias has no width factor. The function is that
    of the weights, and the gradient in $\omega$ is $\sigma_w / \sqrt{m_{l-1}}$ times that in $w$.

    *Proof.* A sum of $m_{l-1}$ independent terms of variance $\sigma_w^2 a_j^2 / m_{l-1}$, and one
    more. Checked for `ntk_parametrize` over the units of a layer with coordinates drawn, within
    six standard errors, for three widths, with a convolution; gradients by autograd, and the way
    back.

    Knobs:
        bias_power: The power of $1 / m$ in the variance of a bias.
        width_power: The power of $1 / m$ in the variance of a weight.
        units: How many units are drawn.
    """
    for m, w, b, q in ((1000, 1.0, 1.0, 1.0), (100, 1.6, 0.3, 2.5), (10, 0.4, 2.0, 0.7)):
        at, a = {"m": m}, torch.randn(m)
        a = a * (q / a.square().mean()).sqrt()
        layer, wanted = nn.Linear(m, units), w * q + b
        ntk_parametrize(layer, weight_variance=w, bias_variance=b / m**bias_power)
        z = drawn(layer)(torch.stack([a, 0 * a])).detach()
        yield in_mean("variance of pre-activations", z[0].square(), wanted, sigmas=6.0, **at)
        yield in_mean("variance that the bias adds", z[1].square(), b, sigmas=6.0, **at)
        omega = next(p for p in layer.parameters() if p.ndim == 2)
        ratio = (layer.weight / omega)[:4]
        yield equals("weights over their coordinates", ratio, math.sqrt(w / m**width_power), **at)
    conv = nn.Conv1d(4, units, 5)
    ntk_parametrize(conv, weight_variance=1.6, bias_variance=0.3 / 20**bias_power)
    a = torch.randn(1, 4, 5)
    z = drawn(conv)(a).detach()
    wanted = 1.6 * float(a.square().mean()) + 0.3
    yield in_mean("variance of pre-activations", z.square(), wanted, sigmas=6.0, m=20, layer="conv")
    plain, x = mlp([3, 5, 2]), torch.randn(4, 3)
    for p in plain.parameters():
        nn.init.normal_(p)
    model = copy.deepcopy(plain)
    ntk_parametrize(model, weight_variance=1.6, bias_variance=0.3)
    yield equals("the function, in NTK coordinates", model(x), plain(x), tol=1e-12)
    for net in (plain, model):
        net(x).square().sum().backward()
    for before, after in zip(plain.parameters(), sorted_as(plain, model), strict=True):
        fan = before.shape[1] if before.ndim == 2 else 0
        factor = math.sqrt(1.6 / fan**width_power) if fan else math.sqrt(0.3)
        slope_of = torch.as_tensor(before.grad)
        yield equals("gradient in a coordinate", after.grad, factor * slope_of, fan_in=fan)
    ntk_parametrize(model, remove=True)
    for before, after in zip(plain.parameters(), model.parameters(), strict=True):
        yield equals("parameters after the way back", after, before, tol=1e-12)


def sorted_as(plain: nn.Module, model: nn.Module) -> list[nn.Parameter]:
    """The coordinates of a model in the order of the parameters that they stand for."""
    found = dict(model.named_parameters())
    names = [name.rpartition(".") for name, _ in plain.named_parameters()]
    return [found[f"{layer}.parametrizations.{key}.original"] for layer, _, key in names]


ntk_parametrisation.erratum(
    "A-299",
    printed=r"$b_i^l \sim \mathcal N(0, \tfrac{\sigma_b^2}{m_l})$",
    right=r"$b_i^l \sim \mathcal N(0, \sigma_b^2)$",
    why=r"legal, but a bias is one term and no sum over the fan-in: it vanishes as $m_l \to"
    r" \infty$, and $\sigma_b$ with it from the limit kernel",
    weight="soft",
    refuted_by="variance that the bias adds",
    bias_power=1.0,
)
ntk_parametrisation.erratum(
    "C-244",
    printed=r"$b_i^l = \tfrac{\sigma_b}{\sqrt m} \beta_i^l$",
    right=r"$b_i^l = \sigma_b \beta_i^l$",
    why=r"legal as a definition, but not the usual one: the variance $\sigma_b^2 / m$ tends to 0;"
    r" with $\sigma_w = \sigma_b = q = 1$ and $m = 1000$ that of a pre-activation is 1.001, not 2",
    weight="soft",
    refuted_by="variance of pre-activations",
    bias_power=1.0,
)
ntk_parametrisation.foil("weights divided by the width itself", width_power=2.0)

SLOPES: dict[str, tuple[nn.Module, Function, Function]] = {
    "ReLU": (nn.ReLU(), relu, lambda z: (z > 0).double()),
    "erf": (Erf(), torch.erf, lambda z: 2 / math.sqrt(math.pi) * (-z.square()).exp()),
    "tanh": (nn.Tanh(), torch.tanh, lambda z: z.cosh() ** -2),
}


def shallow(layer: nn.Module, w: Tensor, v: Tensor, *, ntk: bool) -> nn.Module:
    """A network with one hidden layer of weights w and v over the root of the fan-in."""
    m, d = w.shape
    net = nn.Sequential(nn.Linear(d, m, bias=False), layer, nn.Linear(m, 1, bias=False))
    with torch.no_grad():
        for p, omega in zip(net.parameters(), (w, v[None]), strict=True):
            p.copy_(omega / math.sqrt(p.shape[1]))
    return ntk_parametrize(net, weight_variance=1.0) if ntk else net


def unit_terms(phi: Function, slope_of: Function, w: Tensor, v: Tensor, x: Tensor) -> Tensor:
    r"""$\phi(h) \phi(h') + v^2 \phi'(h) \phi'(h') \frac{x^\top x'}d$ for each unit and two inputs.

    Derivatives by hand: w and v are standard normal, $h = w^\top x / \sqrt d$.
    """
    h = w @ x.T / math.sqrt(x.shape[1])
    one, other = phi(h), v[..., None] * slope_of(h)
    return one[..., 0] * one[..., 1] + other[..., 0] * other[..., 1] * (x[0] @ x[1]) / x.shape[1]


def by_quadrature(names: list[str], x: Tensor, w: float, b: float, order0: float) -> Tensor:
    """The limit by its recursion, one hidden layer for each name."""
    K = w * x @ x.T / x.shape[1] + b
    Theta = K
    for name in names:
        _, phi, slope_of = SLOPES[name]
        dot = pair_means(slope_of, K)
        K = w * pair_means(phi, K) + b
        Theta = K + order0 * w * dot * Theta
    return Theta


@claim(
    by="sampling",
    sources=("A-300", "C-245", "D-366"),
    budget=1.0,
    short=r"K_{\theta_0} \to K_\infty;\ \text{one ReLU layer: } K_\infty = \kappa_1(x, x') +"
    r" \tfrac{x^\top x'}n \kappa_0(x, x')",
)
def ntk_limit(
    coordinates: Literal["ntk", "weights"] = "ntk",
    rate: float = -0.5,
    order0: float = 1.0,
    nets: int = 600,
):
    r"""The tangent kernel converges at infinite width.

    In the NTK parametrisation the random initial kernel converges in probability, as all widths
    grow, to a kernel $K_\infty$ that depends only on architecture, nonlinearity and initial
    variances, with fluctuations of order $1 / \sqrt m$. For one hidden ReLU layer, both layers
    trained, $\sigma_w = 1$ and no bias, $K_\infty(x, x') = \kappa_1(x, x') + \frac{x^\top x'}n
    \kappa_0(x, x')$ with the arc-cosine kernels of order 1, at inputs $x / \sqrt n$, and 0.

    *Proof.* For one hidden layer the kernel is a mean of $m$ i.i.d. terms; deeper, layer by layer:
    $\Theta^{l+1} = K^{l+1} + \sigma_w^2\, \mathbb E[\phi'(a) \phi'(b)]\, \Theta^l$. Checked:
    `empirical_ntk` of drawn networks against terms with derivatives by hand, and within six of
    their standard errors of `infinite_width`; this against quadrature, for three depths; the rate
    of fluctuations over two decades of widths; networks with two hidden layers.

    Knobs:
        coordinates: What is trained: NTK coordinates, or the weights of small variance themselves.
        rate: The power of $m$ in the fluctuations.
        order0: The factor of the term with slopes.
        nets: How many networks are drawn at each width.
    """
    x, y = torch.tensor([[1.0, 0.2], [-0.3, 0.9]]), at_lengths(4, 3, 1.4)
    yield from _shallow_networks(x, ntk=coordinates == "ntk")
    yield from _recursion(y, order0)
    closed = ArcCosineKernel(order=1)(y / math.sqrt(3))
    closed = closed + order0 * y @ y.T / 3 * ArcCosineKernel(order=0)(y)
    wanted = by_quadrature(["ReLU"], y, 1.0, 0.0, 1.0)
    yield equals("sum of arc-cosine kernels", closed, wanted, tol=1e-9)
    widths, spread = torch.logspace(0.9, 2.95, 8).round(), []
    for m in widths.int().tolist():
        w, v = torch.randn(nets, m, 2), torch.randn(nets, m)
        spread.append(unit_terms(*SLOPES["tanh"][1:], w, v, x).mean(1).std())
    yield slope("spread of the kernel with the width", widths, torch.stack(spread), rate)
    yield from _deep_networks(y)


def _shallow_networks(x: Tensor, *, ntk: bool):
    """The kernel of single networks, against its terms and the limit."""
    layer, phi, slope_of = SLOPES["tanh"]
    plain = shallow(layer, torch.ones(3, 2), torch.ones(3), ntk=False)
    limit = infinite_width(plain, weight_variance=1.0).ntk(x)
    for m in (100, 1000, 10_000):
        w, v = torch.randn(m, 2), torch.randn(m)
        K = empirical_ntk(shallow(layer, w, v, ntk=ntk), x, outputs="trace")
        for i, name in ((0, "tangent kernel at x = (1, 0.2)"), (1, "tangent kernel at two inputs")):
            terms = unit_terms(phi, slope_of, w, v, x[[0, i]])
            room = 6 * float(terms.std()) / math.sqrt(m) / (1 + abs(float(limit[0, i])))
            yield equals(name, K[0, i], limit[0, i], tol=room, m=m)
            yield equals("tangent kernel, by terms with slopes by hand", K[0, i], terms.mean(), m=m)


def _recursion(x: Tensor, order0: float):
    """The limit of three architectures by quadrature."""
    cases = (["ReLU"], 1.0, 0.0), (["erf", "ReLU"], 1.5, 0.3), (["tanh", "erf", "erf"], 1.3, 0.1)
    for names, w, b in cases:
        layers: list[nn.Module] = [nn.Linear(3, 2, bias=b > 0)]
        for name in names:
            layers += [SLOPES[name][0], nn.Linear(2, 2, bias=b > 0)]
        limit = infinite_width(nn.Sequential(*layers), weight_variance=w, bias_variance=b)
        wanted, layer = by_quadrature(names, x, w, b, order0), " ".join(names)
        yield equals("kernel of infinite_width", limit.ntk(x), wanted, tol=1e-7, phi=layer)


def _deep_networks(x: Tensor):
    """Networks with two hidden layers, whose bias of order 1 / m is within the standard errors."""
    found = []
    for _ in range(20):
        net = mlp([3, 150, 200, 1], bias=False)
        for p in net.parameters():
            nn.init.normal_(p, std=math.sqrt(2 / p.shape[1]))
        found.append(empirical_ntk(ntk_parametrize(net), x[:2], outputs="trace"))
    limit = infinite_width(mlp([3, 2, 2, 1], bias=False)).ntk(x[:2])
    for i, j in ((0, 0), (0, 1)):
        K = torch.stack(found)[:, i, j]
        # Student's law with 19 degrees of freedom exceeds 9 once in 10^7 draws
        target = float(limit[i, j])
        yield in_mean("mean kernel of networks with two hidden layers", K, target, sigmas=9.0)


ntk_limit.erratum(
    "A-300",
    printed=r"$w_{ij}^l \sim \mathcal N(0, \sigma_w^2 / m_l)$; $K_{\theta_0} \to K$"
    " in probability",
    right=r"$w_{ij}^l = \tfrac{\sigma_w}{\sqrt{m_{l-1}}} \omega_{ij}^l$, with $\omega$ trained",
    why=r"as written the weights of small variance are trained themselves, and then the kernel"
    r" diverges: $K(x, x) \ge \|\phi(W x)\|^2 \approx m\, \mathbb E \phi^2$, for tanh and $x = (1,"
    r" 0.2)$ about 28 at $m = 100$",
    refuted_by="tangent kernel at x = (1, 0.2)",
    close="the tolerance is six standard errors of a mean over 100 units",
    coordinates="weights",
)
ntk_limit.foil("fluctuations of order $m^{-0.7}$", rate=-0.7)
ntk_limit.foil("the output layer alone is trained", order0=0.0)
