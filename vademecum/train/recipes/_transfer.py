"""Pre-train, then fine-tune: weights of another run, a new head, and who learns how fast, and when.

The *head* is the last linear layer of an objective. Weights are taken over by name. Layers are
counted from the bottom: what comes before the longest list of blocks, its blocks, what comes after.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from torch import Tensor, nn

from vademecum.errors import UsageError
from vademecum.train._names import Named
from vademecum.train.recipes._optimizers import Pace

__all__ = ["head_of", "levels_of", "paces", "take_over"]


def head_of(objective: nn.Module) -> list[str]:
    """The names of the parameters of the last linear layer that learns.

    Raises:
        UsageError: If there is none, or its weights are those of another layer as well.
    """
    linear = [
        (path, m)
        for path, m in objective.named_modules()
        if isinstance(m, nn.Linear) and m.weight.requires_grad
    ]
    if not linear:
        raise UsageError("--head new and --probe-steps need a linear layer, and there is none")
    path, module = linear[-1]
    names = [f"{path}.{name}" for name, _ in module.named_parameters()]
    for pair in Named(objective).ties.items():
        if tied := next((name for name in names if name in pair), None):
            other = pair[1] if pair[0] == tied else pair[0]
            raise UsageError(
                "--head new and --probe-steps need a last layer with weights of its own, got"
                f" {tied}, which {other} is, too"
            )
    return names


def take_over(objective: nn.Module, path: Path, *, new_head: bool) -> list[str]:
    """Load the weights of another run into an objective, but for a new head.

    Args:
        objective: What goes on from there.
        path: A run's folder, one of its checkpoints, or a file of safetensors.
        new_head: Whether the head keeps its own weights.

    Returns:
        The names in the file that were not needed.

    Raises:
        UsageError: If something else does not fit; it names the first difference.
    """
    given, named = _weights(path), Named(objective)
    own = named.parameters | named.buffers  # tied ones once, as checkpoints have them
    given = {named.ties.get(name, name): tensor for name, tensor in given.items()}
    head = set(head_of(objective)) if new_head else set()
    for name, tensor in own.items():
        if name in head:
            continue
        if name not in given:
            hint = "" if new_head else "; --head new leaves the last layer as it is"
            raise UsageError(f"--from {path} does not fit: it has no {name}{hint}")
        if given[name].shape != tensor.shape:
            shapes = f"{tuple(given[name].shape)}, and here {tuple(tensor.shape)}"
            raise UsageError(f"--from {path} does not fit: {name} has the shape {shapes}")
    for name, tensor in own.items():
        if name not in head:
            tensor.detach().copy_(given[name])
    return [name for name in given if name not in own or name in head]


def _weights(path: Path) -> dict[str, Tensor]:
    import safetensors
    import safetensors.torch

    from vademecum.train.checkpoints import find_checkpoint

    best, file = path / "checkpoints" / "best", path / "model.safetensors"
    if best.is_dir() or (path / "checkpoints").is_dir() or (path / "manifest.json").is_file():
        return find_checkpoint(best if best.is_dir() else path)[0].tensors["model"]
    file = path if path.is_file() else file
    if not file.is_file():
        raise UsageError(f"--from must be a run's folder or a file of safetensors, got {path}")
    try:
        return safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise UsageError(f"--from {file} is no file of safetensors: {error}") from error


def levels_of(objective: nn.Module) -> dict[str, int]:
    """The layer of each parameter, from the bottom."""
    lists = [
        (path, [i for i, block in enumerate(m) if any(True for _ in block.parameters())])
        for path, m in objective.named_modules()
        if isinstance(m, nn.ModuleList | nn.Sequential)
    ]
    path, blocks = max(lists, key=lambda entry: len(entry[1]), default=("", []))
    blocks = blocks if len(blocks) > 1 else []  # one block alone is no list of layers
    names = [name for name, _ in objective.named_parameters()]
    inside = {
        name: 1 + level
        for level, i in enumerate(blocks)
        for name in names
        if name.startswith(f"{path}.{i}.".lstrip("."))
    }
    if not inside:  # each layer is a level
        layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        return {name: layers.index(name.rpartition(".")[0]) for name in names}
    first = min(names.index(name) for name in inside)
    top = 1 + max(inside.values())
    return {name: inside.get(name, 0 if i < first else top) for i, name in enumerate(names)}


def paces(
    objective: nn.Module,
    *,
    freeze: Sequence[str] = (),
    unfreeze_after: int | None = None,
    layer_decay: float = 1.0,
    probe_steps: int = 0,
) -> dict[str, Pace]:
    """How each parameter learns.

    What is frozen for good no longer asks for gradients.

    Args:
        objective: What is trained.
        freeze: Patterns of names of parameters that keep their values.
        unfreeze_after: After how many steps they learn after all; never by default.
        layer_decay: The factor of the learning rate from a layer to the one below.
        probe_steps: For how many steps only the head learns at first.
    """
    names = [name for name, _ in objective.named_parameters()]
    for pattern in freeze:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"--freeze {pattern} matches no parameter, such as {names[0]}")
    levels = levels_of(objective) if layer_decay != 1 else dict.fromkeys(names, 0)
    top, head = max(levels.values()), set(head_of(objective)) if probe_steps else set(names)
    found: dict[str, Pace] = {}
    for name, p in objective.named_parameters():
        frozen = any(fnmatchcase(name, pattern) for pattern in freeze)
        if frozen and unfreeze_after is None:
            p.requires_grad_(False)
            continue
        late = unfreeze_after or 0 if frozen else 0
        probing = 0 if name in head else probe_steps
        found[name] = Pace(layer_decay ** (top - levels[name]), max(late, probing))
    if not any(p.requires_grad for p in objective.parameters()):
        raise UsageError("--freeze must leave something to learn, got patterns that match all")
    return found
