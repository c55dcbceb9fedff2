"""`python -m bench.outside.examined`: twenty models that nobody here wrote, examined.

One row a model, one column a section: + measured, ~ partly, - not applicable, ! failed, t out of
time, X the model was changed. Below, why: each reason once. The exit code is 1 if something failed
without a sentence, or a model was changed.
"""

import argparse
import fnmatch
import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bench.outside.cases import Case, Subject
from bench.outside.state import differences, state_of
from vademecum.examine import Dossier, examine
from vademecum.examine.sections import PLANS
from vademecum.models import map_tensors

TWENTY = {
    "transformers": ("bert", "gpt2", "gpt2 in bfloat16", "llama", "vit", "resnet", "wav2vec2"),
    "timm": ("resnet18", "vit_tiny", "convnext_femto"),
    "geometric": ("GCN of (x, edges)",),
    "torch": ("lstm", "mlp in float16", "tied, frozen", "encoder, padded", "compiled"),
    "odd": ("keeps what it saw",),
}
SIGNS = {"measured": "+", "partly": "~", "not applicable": "-", "failed": "!", "out of time": "t"}
_TIMES = 8  # as many examples, so that there is something to measure


class Examined(NamedTuple):
    """A model and its dossier."""

    name: str
    dossier: Dossier
    changed: list[str]
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.outside.examined", description=__doc__)
    parser.add_argument("--models", default="*", help="names of models, such as '*gpt2*'")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds for each model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for i, name in enumerate(PLANS):
        print(f"{'':34}{' |' * i}  {name}")
    found = []
    for name, make in _models():
        if fnmatch.fnmatch(name, arguments.models):
            found.append(looked_at(name, make, arguments.budget))
            print(_line(found[-1]), flush=True)
    _reasons(found)
    bad = [each.name for each in found if each.changed or any(map(_silent, each.dossier.sections))]
    return int(bool(bad))


def looked_at(name: str, make: Callable[[], Subject], budget: float) -> Examined:
    """The dossier of a model, and what of it is not as it was."""
    subject = _enlarged(make())
    before = state_of(subject)
    start = time.perf_counter()
    targets = subject.y if isinstance(subject.y, Tensor) else None
    draw = torch.Generator().manual_seed(0)
    dossier = examine(subject.model, subject.x, targets, budget=budget, generator=draw)
    seconds = time.perf_counter() - start
    return Examined(name, dossier, list(differences(before, state_of(subject))), seconds)


def _models() -> Iterator[tuple[str, Callable[[], Subject]]]:
    for library, names in TWENTY.items():
        module = importlib.import_module(f"bench.outside.{library}_cases")
        try:
            cases: list[Case] = module.CASES if hasattr(module, "CASES") else module.cases()
        except ModuleNotFoundError as error:
            print(f"{library}: {error.name} is not installed; `make outside` installs it")
            continue
        by_name = {case.name: case for case in cases}
        yield from ((f"{library}: {name}", by_name[name].subject) for name in names)
    for name, make in (
        ("zuko: flow", _flow),
        ("diffusers: VAE", _vae),
        ("diffusers: U-Net", _unet),
    ):
        try:
            importlib.import_module(name.partition(":")[0])
            yield name, make
        except ModuleNotFoundError as error:
            print(f"{name}: {error.name} is not installed; `make outside` installs it")


def _enlarged(subject: Subject) -> Subject:
    """Some times as many examples: numbers with noise, tokens in other orders."""
    n = len(subject.y) if isinstance(subject.y, Tensor) and subject.y.ndim else 0
    if subject.graph is not None or n > 8 or not _rows(subject.x, n):
        return subject
    draw = torch.Generator().manual_seed(1)

    def more(t: Tensor) -> Tensor:
        copies = t.repeat_interleave(_TIMES, 0)
        if t.is_floating_point():
            noise = torch.randn(copies.shape, generator=draw).to(copies)
            return copies + (noise if t.std() > 0 else 0)
        if t.ndim < 2 or t.unique().numel() <= 2:  # targets, masks
            return copies
        return torch.stack([row.roll(i % _TIMES, 0) for i, row in enumerate(copies)])

    x, y = map_tensors((subject.x, subject.y), more)
    tokens = subject.y is subject.x
    return subject._replace(x=x, y=x if tokens else y)


def _rows(x: Any, n: int) -> bool:
    found = []
    map_tensors(x, lambda t: found.append(t.shape[:1]) or t)
    return bool(n) and set(found) == {torch.Size([n])}


class _Density(nn.Module):
    """The log-density of a flow, as a module gives it."""

    def __init__(self, flow: nn.Module):
        super().__init__()
        self.flow = flow

    def forward(self, x: Tensor) -> Tensor:
        return self.flow().log_prob(x)


def _flow() -> Subject:
    zuko: Any = importlib.import_module("zuko")
    torch.manual_seed(0)
    return Subject(_Density(zuko.flows.NSF(3, transforms=2, hidden_features=(8, 8))), _numbers(3))


def _vae() -> Subject:
    diffusers: Any = importlib.import_module("diffusers")
    torch.manual_seed(0)
    model = diffusers.AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2)
    return Subject(model, _numbers(3, 8, 8), _numbers(3, 8, 8))


def _unet() -> Subject:
    diffusers: Any = importlib.import_module("diffusers")
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, block_out_channels=(8, 8), layers_per_block=1,
        down_block_types=("DownBlock2D",) * 2, up_block_types=("UpBlock2D",) * 2, norm_num_groups=4,
    )  # fmt: skip
    x = {"sample": _numbers(1, 8, 8), "timestep": torch.arange(24) % 10}
    return Subject(model, x, _numbers(1, 8, 8))


def _numbers(*shape: int) -> Tensor:
    return torch.randn(24, *shape)


def _line(each: Examined) -> str:
    signs = " ".join(SIGNS[each.dossier[name].status] for name in PLANS)
    changed = f"  X {each.changed[0]}" if each.changed else ""
    return f"{each.name:34}  {signs}  {each.seconds:5.1f} s{changed}"


def _silent(section: Any) -> bool:
    """Whether a section has neither numbers nor words that say why."""
    return section.status != "measured" and not section.reason


def _reasons(found: list[Examined]) -> None:
    reasons = Counter(
        (s.status, s.name, s.reason) for each in found for s in each.dossier.sections if s.reason
    )
    for (status, name, reason), count in sorted(reasons.items()):
        print(f"{count:3} x {name} {status}: {reason}")
    cells = Counter(s.status for each in found for s in each.dossier.sections)
    print("\n" + ", ".join(f"{cells[status]} {status}" for status in SIGNS))


if __name__ == "__main__":
    raise SystemExit(main())
