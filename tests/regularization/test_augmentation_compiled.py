"""Augmentations in one compiled graph, and on a GPU: what they are in eager mode on a CPU."""

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from vademecum.regularization import (
    colour_jitter,
    colourisation_task,
    cutmix,
    info_nce_loss,
    mask_task,
    mixup,
    motion_task,
    patch_position_task,
    pca_jitter,
    random_affine,
    random_crop,
    random_erasing,
    random_flip,
    random_resized_crop,
    rotation_task,
)

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def masks(x: Tensor) -> Tensor:
    return x[:, 0] > 0.5


def labels(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


CHANGES: dict[str, Any] = {
    "random_crop": lambda x, **g: random_crop(x, 8, padding=2, masks=masks(x), **g),
    "random_flip": lambda x, **g: random_flip(x, vertical=0.5, masks=masks(x), **g),
    "random_resized_crop": lambda x, **g: random_resized_crop(x, (8, 10), masks=masks(x), **g),
    "random_affine": lambda x, **g: random_affine(
        x, degrees=20, translate=0.1, scale=(0.8, 1.2), shear=5, fill=1, masks=masks(x), **g
    ),
    "random_erasing": lambda x, **g: random_erasing(x, masks=masks(x), **g),
    "colour_jitter": lambda x, **g: colour_jitter(
        x, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, **g
    ),
    "pca_jitter": lambda x, **g: pca_jitter(x, 0.5, covariance=None, **g),
    "pca_jitter of a covariance": lambda x, **g: pca_jitter(
        x, 0.5, covariance=torch.eye(3, device=x.device) + 1, **g
    ),
    "mixup": lambda x, **g: mixup(x, labels(x), classes=6, **g),
    "cutmix": lambda x, **g: cutmix(x, labels(x), classes=6, **g),
    "patch_position_task": lambda x, **g: patch_position_task(x, 3, **g),
    "motion_task": lambda x, **g: motion_task(x, **g),
    "mask_task": lambda x, **g: mask_task(x, 4, **g),
    "colourisation_task": lambda x, **_: colourisation_task(x),
    "rotation_task": lambda x, **_: rotation_task(x),
}


def batch(dtype: torch.dtype) -> Tensor:
    x = torch.rand(6, 3, 12, 12)
    return (255 * x).to(dtype) if dtype == torch.uint8 else x.to(dtype)


def close(found: Any, wanted: Any, tol: float) -> None:
    found, wanted = (a if isinstance(a, tuple) else (a,) for a in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a.cpu().double(), b.double(), rtol=0, atol=tol)


@pytest.mark.usefixtures("unchecked")  # the run-time checks of types cannot be compiled
@pytest.mark.parametrize("name", CHANGES)
def test_one_graph_without_breaks(name):
    x, change = batch(torch.float32), CHANGES[name]
    torch.compiler.reset()
    torch.manual_seed(0)
    wanted = change(x)
    torch.manual_seed(0)
    close(torch.compile(change, fullgraph=True, backend="eager")(x), wanted, 0.0)


@pytest.mark.skipif(not shutil.which("c++"), reason="needs a compiler of C++")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # Inductor's import
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("name", CHANGES)
def test_code_that_the_compiler_made(name, dtype):
    """Its random numbers are its own unless told otherwise."""
    x, change = batch(dtype), CHANGES[name]
    torch.compiler.reset()
    torch.manual_seed(0)
    wanted = change(x)
    torch.manual_seed(0)
    options: Any = {"fallback_random": True}
    found = torch.compile(change, fullgraph=True, options=options)(x)
    close(found, wanted, 1.0 if dtype == torch.uint8 else 1e-5)


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_gpu_gives_what_a_cpu_does(name, last, dtype):
    x, change = batch(dtype), CHANGES[name]
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    wanted = change(x, generator=torch.Generator().manual_seed(0))
    found = change(x.cuda(), generator=torch.Generator().manual_seed(0))
    close(found, wanted, 1.0 if dtype == torch.uint8 else 1e-5)


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("name", CHANGES)
def test_a_gpu_draws_from_its_own_generator(name):
    x = batch(torch.float32).cuda()
    first, again = (
        CHANGES[name](x, generator=torch.Generator("cuda").manual_seed(3)) for _ in range(2)
    )
    for a, b in zip(first, again, strict=True):
        assert a.is_cuda
        assert a.equal(b)


@CUDA
@pytest.mark.gpu
def test_info_nce_of_many_pairs_keeps_to_its_memory():
    N, d = 65_536, 512
    q, k = torch.randn(2, N, d, device="cuda").requires_grad_()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    info_nce_loss(q, k, temperature=10.0).backward()
    assert torch.cuda.max_memory_allocated() - before < 2 * 2**30
    few = slice(0, 4096)
    small = info_nce_loss(q[few], k[few], temperature=10.0)
    scores = q[few].double() @ k[few].double().T / 10
    wanted = (scores.logsumexp(1) - scores.diagonal()).mean()
    torch.testing.assert_close(small.double(), wanted, rtol=1e-4, atol=1e-4)
