"""Where all global generators of random numbers are: torch's, CUDA's, NumPy's and Python's.

Their states are tensors of the same shapes in every process, so that processes can hand them to
each other as they are.
"""

import hashlib
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.randomness import reseed

__all__ = ["fresh_generators", "generator_states", "set_generators"]

_WORDS = 624  # of the Mersenne twister, NumPy's and Python's


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that a process on some device draws from."""
    name, words, place, cached, gauss = np.random.get_state()  # noqa: NPY002
    if name != "MT19937":
        raise ValueError(f"NumPy's global generator must be the Mersenne twister, got {name}")
    _, python, gauss_next = random.getstate()
    states = {
        "torch": torch.get_rng_state(),
        "numpy": torch.tensor([*map(int, words), place, cached]),
        "numpy_normal": torch.tensor([gauss], dtype=torch.float64),
        "python": torch.tensor(python),
        "python_normal": torch.tensor(
            [gauss_next is not None, gauss_next or 0.0], dtype=torch.float64
        ),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generators(states: dict[str, Any], device: torch.device) -> None:
    """Put the generators where they were.

    Raises:
        ValueError: If a state is missing or is none.
    """
    own = generator_states(device)
    for name, state in own.items():
        if name == "cuda" and name not in states:  # of a run on the CPU: it has none to give
            continue
        given = states.get(name)
        if not isinstance(given, Tensor) or (given.shape, given.dtype) != (
            state.shape,
            state.dtype,
        ):
            raise ValueError(f"the state of the generator {name!r} is missing or is none")
    numpy, python = states["numpy"].tolist(), states["python"].tolist()
    known, value = states["python_normal"].tolist()
    for name, words, place in (("numpy", numpy[:_WORDS], numpy[_WORDS]), ("python", *_cut(python))):
        if not all(0 <= word < 2**32 for word in words) or not 0 <= place <= _WORDS:
            raise ValueError(f"the state of the generator {name!r} is none")
    torch.set_rng_state(states["torch"])
    words = np.array(numpy[:_WORDS], dtype=np.uint32)
    gauss = states["numpy_normal"].item()
    np.random.set_state(("MT19937", words, *numpy[_WORDS:], gauss))  # noqa: NPY002
    random.setstate((3, tuple(python), value if known else None))
    if "cuda" in own and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def _cut(state: list[int]) -> tuple[list[int], int]:
    return state[:_WORDS], state[_WORDS]


def fresh_generators(states: dict[str, Any], rank: int) -> None:
    """Seed the generators of a process that was not there when states were saved."""
    words = states["torch"].numpy().tobytes() + str(rank).encode()
    reseed(int.from_bytes(hashlib.sha256(words).digest()[:8], "little") >> 1)
