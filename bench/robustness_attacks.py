r"""Rows of the room `robustness`: attacks on a small convolutional network, Fashion-MNIST.

The network has two convolutions with pooling and two linear layers, and is trained for two passes.
Peers are the libraries as their documentation calls them, and plain torch: the loop that one would
write, with gradients of the inputs alone. An attack that leaves more images right than a peer does,
beyond one in a hundred, or whose perturbations are longer, does not agree.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped, in_turn
from vademecum.data import load
from vademecum.robustness import apgd, auto_attack, deepfool, fgsm, pgd

__all__ = ["rows"]

LINF, L2, STEPS = 0.1, 1.0, 40


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    """Attacks on 512 images (8,192 on a GPU, where ART, which goes through NumPy, has no part)."""
    yield from in_turn(_attacks(device))


def _network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def _trained(device: torch.device) -> nn.Module:
    data, net = load("fashion_mnist", split="train"), _network().to(device)
    x, y = data.x.to(device), data.y.to(device)
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(2):
        for some in torch.randperm(len(x)).split(256):
            adam.zero_grad()
            nn.functional.cross_entropy(net(x[some]), y[some]).backward()
            adam.step()
    return net.eval()


def _attacks(device: torch.device) -> Iterator[Row]:
    torch.manual_seed(0)
    net, data = _trained(device), load("fashion_mnist", split="test")
    n = 512 if device.type == "cpu" else 8192
    x, y = data.x[:n].to(device), data.y[:n].to(device)
    agree = partial(_agree, net, x, y)
    yield from _plain_rows(net, x, y, agree)
    peers = {
        "torchattacks": _torchattacks(net, "APGD", norm="Linf", eps=LINF, steps=STEPS, loss="ce")
    }
    peers = {key: partial(_told, net, call, x, y) for key, call in peers.items()}
    ours = partial(apgd, net, x, y, norm="linf", radius=LINF, steps=STEPS)
    yield Row(f"APGD, {STEPS} steps, linf, {n} images", ours, peers, agree, rounds=5)
    few, labels = (x[:64], y[:64]) if device.type == "cpu" else (x[:2048], y[:2048])
    peers = {"foolbox": _foolbox(net, "L2DeepFoolAttack", None, steps=50, candidates=10)}
    if device.type == "cpu":
        peers["ART"] = _art(net, "DeepFool", max_iter=50, nb_grads=10)
    peers = {key: partial(call, few, labels) for key, call in peers.items()}
    ours = partial(deepfool, net, few, labels, norm="l2")
    yield Row(f"DeepFool, l2, {len(few)} images", ours, peers, partial(_shorter, net, few, labels))
    if device.type == "cpu":
        yield _ensemble(net, x[:128], y[:128])


def _ensemble(net: nn.Module, few: Tensor, labels: Tensor) -> Row:
    peer = _torchattacks(net, "AutoAttack", norm="Linf", eps=LINF, version="standard", n_classes=10)
    ours = partial(auto_attack, net, few, labels, norm="linf", radius=LINF)
    peers = {"torchattacks": partial(peer, few, labels)}
    agree = partial(_agree, net, few, labels)
    return Row(f"AutoAttack, linf, {len(few)} images", ours, peers, agree, rounds=3)


def _plain_rows(net: nn.Module, x: Tensor, y: Tensor, agree: Any) -> Iterator[Row]:
    """FGSM and PGD, against everybody; peers also tell what they fooled, as our result does."""
    for norm, radius, alpha, names in (
        ("linf", LINF, None, ("FGSM", "LinfFastGradientAttack", "FastGradientMethod")),
        ("linf", LINF, LINF / 4, ("PGD", "LinfPGD", "ProjectedGradientDescent")),
        ("l2", L2, L2 / 10, ("PGDL2", "L2PGD", "ProjectedGradientDescent")),
    ):
        many: list[dict[str, Any]] = [{}, {}, {}, {}]
        if alpha is not None:
            many = [
                {"steps": STEPS, "step_size": alpha},
                {"steps": STEPS, "alpha": alpha, "random_start": True},
                {"steps": STEPS, "abs_stepsize": alpha},
                {"max_iter": STEPS, "eps_step": alpha, "num_random_init": 1},
            ]
        attack: Any = fgsm if alpha is None else pgd
        ours = partial(attack, net, x, y, norm=norm, radius=radius, **many[0])
        order = torch.inf if norm == "linf" else 2
        calls = {
            "plain torch": partial(_plain, net, norm=norm, radius=radius, alpha=alpha),
            "torchattacks": _torchattacks(net, names[0], eps=radius, **many[1]),
            "foolbox": _foolbox(net, names[1], radius, **many[2]),
        }
        if not x.is_cuda:
            calls["ART"] = _art(net, names[2], norm=order, eps=radius, **many[3])
        peers = {key: partial(_told, net, call, x, y) for key, call in calls.items()}
        title = "FGSM" if alpha is None else f"PGD, {STEPS} steps"
        yield Row(f"{title}, {norm}, {len(x)} images", ours, peers, agree, rounds=5)


def _told(net: nn.Module, call: Any, x: Tensor, y: Tensor) -> Tensor:
    """What a peer made, after one more question to the model: which of it fools."""
    made = call(x, y)
    with torch.no_grad():
        assert net(made.to(x)).argmax(1).ne(y).any()
    return made


def _plain(
    net: nn.Module, x: Tensor, y: Tensor, *, norm: str, radius: float, alpha: float | None
) -> Tensor:
    """The loop that one would write: one full step, or many from a random point."""
    z = x.clone()
    if alpha is not None:
        r = torch.empty_like(x).uniform_(-1, 1)
        z = (x + radius * (r if norm == "linf" else r / _length(r))).clamp(0, 1)
    for _ in range(1 if alpha is None else STEPS):
        z.requires_grad_()
        (g,) = torch.autograd.grad(nn.functional.cross_entropy(net(z), y), z)
        if norm == "linf":
            r = z.detach() + (alpha or radius) * g.sign() - x
            z = (x + r.clamp(-radius, radius)).clamp(0, 1)
        else:
            r = z.detach() + (alpha or radius) * g / _length(g).clamp(min=1e-30) - x
            z = (x + r * (radius / _length(r)).clamp(max=1)).clamp(0, 1)
    return z


def _length(r: Tensor) -> Tensor:
    return torch.linalg.vector_norm(r.flatten(1), dim=1).view(-1, 1, 1, 1)


def _torchattacks(net: nn.Module, name: str, **knobs: Any) -> Callable[[Tensor, Tensor], Tensor]:
    library: Any = importlib.import_module("torchattacks")
    attack = getattr(library, name)(net, **knobs)
    return lambda x, y: attack(x, y).detach()


def _foolbox(net: nn.Module, name: str, radius: float | None, **knobs: Any) -> Any:
    library: Any = importlib.import_module("foolbox")
    model = library.PyTorchModel(net, bounds=(0, 1), device=next(net.parameters()).device)
    attack = getattr(library.attacks, name)(**knobs)
    return lambda x, y: attack(model, x, y, epsilons=radius)[1]


def _art(net: nn.Module, name: str, **knobs: Any) -> Any:
    evasion: Any = importlib.import_module("art.attacks.evasion")
    estimators: Any = importlib.import_module("art.estimators.classification")
    model = estimators.PyTorchClassifier(
        net, loss=nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10,
        clip_values=(0, 1), device_type="cpu",
    )  # fmt: skip
    quiet = {} if name == "FastGradientMethod" else {"verbose": False}
    attack = getattr(evasion, name)(model, batch_size=512, **knobs, **quiet)
    return lambda x, y: torch.from_numpy(attack.generate(x.cpu().numpy(), y.cpu().numpy())).to(x)


def _right(net: nn.Module, x: Tensor, y: Tensor) -> int:
    with torch.no_grad():
        return int((net(x).argmax(1) == y).sum())


def _agree(net: nn.Module, x: Tensor, y: Tensor, ours: Any, theirs: Tensor) -> None:
    """Our attack leaves no more images right than theirs, but for one in a hundred."""
    mine, other = _right(net, ours.x, y), _right(net, theirs.to(x), y)
    print(f"      images right: ours {mine}, theirs {other} of {len(x)}", file=sys.stderr)
    assert mine <= other + max(1, len(x) // 100), (mine, other)
    near = int((~ours.fooled).sum()) - mine  # fooled by less than rounding may do: not counted
    assert 0 <= near <= len(x) // 1000, near


def _shorter(net: nn.Module, x: Tensor, y: Tensor, ours: Any, theirs: Tensor) -> None:
    """No more images are left right, but for one in a thousand, and the median is no longer."""
    clean = _right(net, x, y)
    other = _length(theirs.to(x) - x).flatten()
    mine, median = float(ours.distance.median()), float(other.median())
    kept, left = int((~ours.fooled).sum()), _right(net, theirs.to(x), y)
    print(f"      median length: ours {mine:.4f}, theirs {median:.4f};"
          f" right: {kept}, {left} of {clean}", file=sys.stderr)  # fmt: skip
    assert kept <= left + len(x) // 1000, (kept, left)
    assert mine <= 1.001 * median, (mine, median)
