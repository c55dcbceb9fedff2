"""A user's own network: its modules, parameters and shapes, and the laws of parts that it keeps.

The network is named on the command line as `FILE.py:OBJECT`, a module or a function that makes one;
it is never sent through a page. The file is run in a worker process, so that whatever it does
leaves the atlas up.
"""

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum import scripts
from vademecum.errors import UsageError
from vademecum.models import evaluation
from vademecum.testing import check_part, parts
from vademecum.testing.laws import BrokenLaw
from vademecum.testing.parts import PART_LAWS

__all__ = ["Dossier", "Law", "Row", "dossier", "load_network", "parse_shape", "split_name"]

BATCH = 4


class Row(NamedTuple):
    """A module of the network's tree."""

    depth: int
    name: str
    kind: str
    about: str
    shape: str
    parameters: int
    frozen: int
    tied: bool


class Law(NamedTuple):
    """A law of parts: kept, broken (and how), or not tried; and what it asks."""

    name: str
    verdict: str
    why: str = ""
    means: str = ""


class Dossier(NamedTuple):
    """All that the page shows."""

    name: str
    kind: str = ""
    rows: tuple[Row, ...] = ()
    parameters: int = 0
    frozen: int = 0
    buffers: int = 0
    megabytes: float = 0.0
    given: str = ""
    answer: str = ""
    laws: tuple[Law, ...] = ()
    error: str = ""


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape of one example, as in `3,32,32`.

    Raises:
        UsageError: If it is anything else.

    Example:
        >>> parse_shape("3,32,32")
        (3, 32, 32)
    """
    if not re.fullmatch(r"\s*[1-9]\d*(\s*,\s*[1-9]\d*)*\s*", text):
        raise UsageError(f"--input must be the shape of one example, as in 3,32,32, got {text!r}")
    return tuple(int(size) for size in text.split(","))


def split_name(name: str) -> tuple[Path, str]:
    """The file and the object in `FILE.py:OBJECT`.

    Raises:
        UsageError: If there is no such file, or no object is named.
    """
    return scripts.split_name("--network", name)


def load_network(name: str) -> nn.Module:
    """Run the file and return its module, or what its function makes.

    Raises:
        UsageError: If the file has no such object, or it is not a module.
    """
    made = scripts.object_in("--network", name)
    if not isinstance(made, nn.Module) and callable(made):
        made = made()
    if not isinstance(made, nn.Module):
        raise UsageError(f"--network {name} is a {type(made).__name__}, no nn.Module")
    return made


def dossier(name: str, shape: tuple[int, ...] | None) -> Dossier:
    """Look at a network: called in a worker process, answers with plain data, never raises."""
    try:
        model = load_network(name)
    except UsageError as error:
        return Dossier(name, error=str(error))
    except Exception:
        return Dossier(name, error=traceback.format_exc())
    parameters = list(model.parameters())
    frozen = sum(p.numel() for p in parameters if not p.requires_grad)
    known = Dossier(
        name,
        type(model).__name__,
        parameters=sum(p.numel() for p in parameters),
        frozen=frozen,
        buffers=sum(b.numel() for b in model.buffers()),
        megabytes=sum(t.numel() * t.element_size() for t in _tensors(model)) / 1e6,
        rows=tuple(_tree(model, {})),
    )
    inputs = _inputs(model, shape)
    if inputs is None:
        return known._replace(error="Give the shape of one example with --input, as in 3,32,32.")
    given = f"{tuple(inputs.shape)} {str(inputs.dtype).removeprefix('torch.')}"
    known = known._replace(given=given + ("" if shape else ", guessed from the first layer"))
    try:
        shapes, answer = _shapes(model, inputs)
    except Exception as error:
        return known._replace(error=f"It does not take this input: {error}")
    rows = tuple(_tree(model, shapes))
    means = dict(re.findall(r"^\| (\w+) \| (.+) \|$", parts.__doc__ or "", re.MULTILINE))
    laws = (law._replace(means=means.get(law.name, "")) for law in _laws(model, inputs))
    return known._replace(rows=rows, answer=answer, laws=tuple(laws))


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _tree(model: nn.Module, shapes: dict[str, str]) -> Iterator[Row]:
    seen: set[int] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        own = list(module.parameters(recurse=False))
        tied = any(id(p) in seen for p in own)
        seen |= {id(p) for p in own}
        yield Row(
            path.count(".") + bool(path),
            path.rpartition(".")[2] or "(the network)",
            type(module).__name__,
            module.extra_repr(),
            shapes.get(path, ""),
            sum(p.numel() for p in own),
            sum(p.numel() for p in own if not p.requires_grad),
            tied,
        )


def _inputs(model: nn.Module, shape: tuple[int, ...] | None) -> Tensor | None:
    """A batch of random examples: of the shape given, or of one that the first layer takes."""
    first = next(
        (m for m in model.modules() if next(m.parameters(recurse=False), None) is not None), None
    )
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    draw = torch.Generator().manual_seed(0)
    if isinstance(first, nn.Embedding):
        return torch.randint(first.num_embeddings, (BATCH, *(shape or (8,))), generator=draw)
    if shape is None:
        shape = _guess(first)
    return None if shape is None else torch.randn((BATCH, *shape), generator=draw).to(dtype)


def _guess(first: nn.Module | None) -> tuple[int, ...] | None:
    if isinstance(first, nn.Linear):
        return (first.in_features,)
    if isinstance(first, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return (first.in_channels, *[32] * len(first.kernel_size))
    return None


def _shapes(model: nn.Module, inputs: Tensor) -> tuple[dict[str, str], str]:
    """The shape that each module answers with, in evaluation."""
    shapes: dict[str, str] = {}

    def note(path: str):
        def hook(_module, _inputs, output) -> None:
            shapes[path] = str(tuple(output.shape)) if isinstance(output, Tensor) else "…"

        return hook

    hooks = [m.register_forward_hook(note(path)) for path, m in model.named_modules()]
    try:
        with evaluation(model), torch.no_grad():
            answer = model(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return shapes, str(tuple(answer.shape)) if isinstance(answer, Tensor) else type(answer).__name__


def _laws(model: nn.Module, inputs: Tensor) -> Iterator[Law]:
    for name in PART_LAWS:
        others = {other: "another law's turn" for other in PART_LAWS if other != name}
        try:
            kept = name in check_part(model, inputs, skip=others)
            yield Law(name, "kept" if kept else "not tried")
        except BrokenLaw as error:
            yield Law(name, "broken", str(error).partition(": ")[2] or str(error))
        except Exception as error:
            yield Law(name, "broken", f"{type(error).__name__}: {error}")
