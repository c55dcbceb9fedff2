"""Causal models: a transformer that predicts each token from those before it."""

from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import claim, equals
from vademecum.language import GPT
from vademecum.language.claims._networks import changes, drawn, torch_stack

SIZES = {
    "gpt2": (768, 12, 124_439_808),
    "gpt2-medium": (1024, 24, 354_823_168),
    "gpt2-large": (1280, 36, 774_030_080),
    "gpt2-xl": (1600, 48, 1_557_611_200),
}
"""Width, blocks, and parameters as published."""


def by_torch(net: GPT, tokens: Tensor, heads: int, hidden: int) -> Tensor:
    """The logits by torch's layers: the same weights, a mask and normalisation before sublayers."""
    w = {name.removeprefix("transformer."): p for name, p in net.state_dict().items()}
    ours = {"qkv": "attn.c_attn", "out": "attn.c_proj", "inner": "mlp.c_fc",
            "outer": "mlp.c_proj", "norm1": "ln_1", "norm2": "ln_2"}  # fmt: skip
    blocks = [
        {f"{k}.{kind}": w[f"h.{i}.{name}.{kind}"].T if kind == "weight" and "c_" in name
         else w[f"h.{i}.{name}.{kind}"] for k, name in ours.items() for kind in ("weight", "bias")}
        for i in range(len(net.transformer.h))
    ]  # fmt: skip
    T, d = tokens.shape[1], w["wte.weight"].shape[1]
    bent = {"activation": lambda x: F.gelu(x, approximate="tanh"), "norm_first": True}
    stack = torch_stack(blocks, d, heads, hidden, **bent)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:T]
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    x = F.layer_norm(stack(x, mask=later), (d,), w["ln_f.weight"], w["ln_f.bias"])
    return x @ w["wte.weight"].T


def log_probs(logits: Tensor, tokens: Tensor, *, shift: bool) -> Tensor:
    """Log-probabilities of all tokens but the first, from logits of those before them or not."""
    said = logits[:, :-1] if shift else logits[:, 1:]
    return said.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]


@claim(
    by="identity",
    sources=("A-271", "D-317", "D-318"),
    budget=0.9,
    short=r"-\log p(x) = -\sum_t \log p(x_t \mid x_{<t}):"
    r"\ \text{a causal transformer, all terms in one pass}",
)
def gpt(shift: bool = True, tied: bool = True):
    r"""GPT is a transformer without an encoder, trained on $-\sum_t \log p(x_t \mid x_{<t})$.

    Masked self-attention and networks of single positions, no attention to a source. The mask
    makes all predictions of next tokens one parallel pass: logits at $t$ depend on tokens up to
    $t$, so the distribution of $x_t$, read off at $t - 1$, never sees $x_t$; the parallel loss is
    the sum of the losses prefix by prefix, and by the chain rule the products of next-token
    probabilities sum to one over all continuations of a length.

    Random models with 2 and 3 blocks, all $3^4$ and $4^3$ continuations of a token. Logits are
    those of torch's layers with the same weights and positions, also piece by piece with a cache.
    A block has $12 d^2 + 13 d$ parameters, and with $V d$ for tokens, which the head
    shares, $C d$ for positions and $2 d$ for the last normalisation that makes the published sizes.

    Knobs:
        shift: Whether $x_t$ is predicted at $t - 1$, or at $t$.
        tied: Whether the head shares the table of tokens.
    """
    for V, length, layers, heads in ((3, 4, 2, 2), (4, 3, 3, 3)):
        net = drawn(GPT(V=V, d=6, layers=layers, heads=heads, context=7, hidden=10))
        x, at = torch.randint(V, (2, 6)), {"V": V}
        logits = net(x)
        yield equals("logits of torch's layers", logits, by_torch(net, x, heads, 10), tol=1e-10,
                     **at)  # fmt: skip
        said = slice(0, 5) if shift else slice(1, 6)
        seen = changes(lambda row, net=net, said=said: net(row[None])[0, said], x[0], V)
        before = torch.ones(6, 6, dtype=torch.bool).triu(1)[:, 1:]
        yield equals("predictions of a token that change with another", seen, before, **at)
        one_by_one = torch.stack([net(x[:, :t])[:, -1].log_softmax(-1) for t in range(1, 6)], 1)
        wanted = one_by_one.gather(-1, x[:, 1:, None])[..., 0]
        yield equals("log-probabilities prefix by prefix", log_probs(logits, x, shift=shift),
                     wanted, tol=1e-10, **at)  # fmt: skip
        strings = torch.tensor([[1, *rest] for rest in product(range(V), repeat=length)])
        total = log_probs(net(strings), strings, shift=shift).sum(1).exp().sum()
        yield equals("probabilities of all continuations", total, 1.0, tol=1e-10, **at)
        for sizes in ([1] * 6, [2, 3, 1]):
            cache = net.make_cache(2, 7, all_slots=V == 4)
            pieces = torch.cat([net(part, cache=cache) for part in x.split(sizes, 1)], 1)
            yield equals(
                "logits piece by piece", pieces, logits, tol=1e-10, pieces=len(sizes), **at
            )
    for name, (d, layers, published) in SIZES.items():
        with torch.device("meta"):
            size = sum(p.numel() for p in GPT.named(name).parameters())
        by_sum = layers * (12 * d * d + 13 * d) + (50257 * (2 - tied) + 1024 + 2) * d
        yield equals("parameters", size, by_sum, d=d)
        yield equals("parameters, as published", size, published, d=d)


gpt.foil("a token is predicted from itself", shift=False,
         refuted_by="predictions of a token that change with another")  # fmt: skip
gpt.foil("probabilities of tokens that are seen", shift=False,
         refuted_by="probabilities of all continuations")  # fmt: skip
gpt.foil("a head of its own", tied=False)
