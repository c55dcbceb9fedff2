r"""A language model from nothing but Python: trained on the standard library, against gzip and xz.

A byte BPE and a GPT learn from the first nine tenths of the library's sources, tests left out; on
the last tenth the model's code is compared with `gzip -9` and `xz -9`, in bits a byte, and its
samples with those of a 5-gram on the same tokens: how many of them Python's own tokeniser takes.

    python -m bench.offline_text --seconds 900                        # two cores: beats gzip
    python -m bench.offline_text --device cuda --seconds 300 --d 768 --layers 8 --rows 64 --V 4096
"""

import argparse
import gzip
import io
import lzma
import math
import time
import tokenize
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.data import load
from vademecum.language import GPT, NGramModel, bits_per_byte, generate, train_tokenizer

__all__ = ["Corpus", "Sizes", "corpus", "share_that_tokenises", "tokenises", "train"]


class Corpus(NamedTuple):
    """Texts as tokens, and the bytes that are to be coded."""

    tokenizer: Any
    train: Tensor
    test: Tensor
    held_out: bytes


class Sizes(NamedTuple):
    """The model, and what a step of training reads."""

    d: int = 256
    layers: int = 4
    heads: int = 4
    context: int = 256
    rows: int = 16
    rate: float = 2e-3


def corpus(V: int, most: int | None = None) -> Corpus:
    """The standard library, or the first `most` characters of either part."""
    train, test = (load("stdlib_text", split=s).text[:most] for s in ("train", "test"))
    tokenizer = train_tokenizer(train.splitlines(keepends=True), V)
    seen, fresh = (torch.tensor(tokenizer.encode(text).ids) for text in (train, test))
    return Corpus(tokenizer, seen, fresh, test.encode())


def train(data: Corpus, sizes: Sizes, share: Callable[[int], float], device: str = "cpu") -> GPT:
    """Train a model until `share(step)`, how much of the budget is spent, comes to one."""
    d, layers, heads, context, rows, rate = sizes
    V = data.tokenizer.get_vocab_size()
    net = GPT(V=V, d=d, layers=layers, heads=heads, context=context).to(device)
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    descent = torch.optim.AdamW(groups, rate, betas=(0.9, 0.95), fused=True)
    tokens, step, start = data.train.to(device), 0, time.time()
    while (spent := share(step)) < 1:
        for group in descent.param_groups:  # a short rise, then half a cosine
            group["lr"] = (
                rate * min(1, spent / 0.02 + 0.01) * (0.02 + math.cos(spent * math.pi / 2))
            )
        places = torch.randint(len(tokens) - context - 1, (rows, 1), device=device)
        batch = tokens[places + torch.arange(context + 1, device=device)]
        with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
            logits = net(batch[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        descent.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        descent.step()
        if step % 100 == 0:
            print(f"step {step}, {time.time() - start:.0f} s, loss {loss.item():.3f}", flush=True)
        step += 1
    return net


def tokenises(text: str) -> bool:
    """Whether Python's tokeniser takes the whole lines of a text; it may end within brackets."""
    lines = text[: text.rfind("\n") + 1]
    try:
        found = list(tokenize.generate_tokens(io.StringIO(lines).readline))
    except (SyntaxError, tokenize.TokenError) as error:  # also of indentation
        return "EOF in multi-line" in str(error)
    return all(token.type != tokenize.ERRORTOKEN for token in found)


def share_that_tokenises(model: nn.Module, data: Corpus, *, n: int = 100, new: int = 128) -> float:
    """The share of n samples, each after an empty line, that Python's tokeniser takes."""
    prompt = torch.tensor(data.tokenizer.encode("\n\n").ids).expand(n, -1)
    generator = torch.Generator().manual_seed(0)
    found = generate(model, prompt, max_new_tokens=new, generator=generator).tokens
    return sum(map(tokenises, data.tokenizer.decode_batch(found.tolist()))) / n


def main() -> None:
    """Train for so many seconds, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--V", type=int, default=2048)
    for name, default in Sizes._field_defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    knobs = vars(parser.parse_args())
    seconds, device, V = (knobs.pop(name) for name in ("seconds", "device", "V"))
    torch.manual_seed(0)
    data, start = corpus(V), time.time()
    sizes = Sizes(**knobs)
    net = train(data, sizes, lambda step: (time.time() - start) / seconds, device).eval()
    n = len(data.held_out)
    found = bits_per_byte(net, data.test, n, stride=sizes.context // 2)
    packed = gzip.compress(data.held_out, 9), lzma.compress(data.held_out, preset=9)
    by_gzip, by_xz = (8 * len(each) / n for each in packed)
    print(f"GPT {found:.3f}, gzip -9 {by_gzip:.3f}, xz -9 {by_xz:.3f} bits a byte")
    counted = NGramModel(data.train, 5, V=data.tokenizer.get_vocab_size())
    shares = [share_that_tokenises(model, data) for model in (net, counted)]
    print(f"samples that tokenise as Python: GPT {shares[0]:.2f}, 5-gram {shares[1]:.2f}")


if __name__ == "__main__":
    main()
