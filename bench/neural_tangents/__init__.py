r"""neural-tangents as a peer and an oracle, in an interpreter of its own.

It needs a JAX of 2023 and NumPy 1, so that it runs in another process, which gets networks with
their weights and sends arrays back. `make .venv-neural-tangents/ready` makes its environment;
another interpreter is named by the variable `NEURAL_TANGENTS_PYTHON`. Where there is none, both
functions raise `PeerNotFoundError`, which skips a row of the table with the line that installs it.

    peer = empirical_ntk(model, x, outputs="full")    # compiles; the weights are copied
    answer = peer()                                   # computes there, and sends nothing back
    answer.seconds                                    # by its own clock
    answer.ntk                                        # fetched when asked for, as a torch tensor

    peer = infinite_width(model, x1, x2, weight_variance=2.0, bias_variance=0.1)
    answer = peer()
    answer.nngp, answer.ntk                           # the limit of that architecture, by stax

A peer is a call without arguments, as rows take them: timed from here it costs a round trip of some
0.1 ms more than `seconds`. Its values must be fetched before it computes again. Models are
`nn.Sequential` of Linear, Conv2d, ReLU, LeakyReLU, GELU, Tanh, Sigmoid, MaxPool2d, AvgPool2d,
AdaptiveAvgPool2d(1), Flatten, LayerNorm without weights (limits only), and of `Pointwise` and
`Residual` from here. Both dtypes; only the CPU.
"""

import atexit
import json
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from bench.harness import PeerNotFoundError
from bench.neural_tangents._layers import Pointwise, Residual, described, parameters

__all__ = ["Answer", "Peer", "Pointwise", "Residual", "empirical_ntk", "infinite_width"]

_HERE = Path(__file__).parent
_NUMBERS = count()


def empirical_ntk(
    model: nn.Sequential,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    outputs: Literal["full", "diagonal", "trace"] = "full",
    implementation: int = 3,
) -> "Peer":
    """Its tangent kernel of a network with these weights, in the shapes of our `empirical_ntk`.

    Args:
        model: A network; its weights are copied.
        x1: Inputs in torch's order of axes.
        x2: Other inputs; None for x1.
        outputs: The part of the kernel; a trace is a sum over outputs, as ours.
        implementation: 1 contracts Jacobians, 2 has tangent products, 3 structured derivatives.
    """
    job = {"kind": "empirical", "layers": described(model), "outputs": outputs,
           "implementation": implementation}  # fmt: skip
    return Peer(_worker(x1), job, [x1, x2, *parameters(model)], ("ntk",))


def infinite_width(
    model: nn.Sequential,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    weight_variance: float = 2.0,
    bias_variance: float = 0.0,
    get: tuple[str, ...] = ("nngp", "ntk"),
    batch: int = 0,
) -> "Peer":
    """Its kernels of the network's infinite width.

    Args:
        model: An architecture; widths and weights are ignored.
        x1: Inputs in torch's order of axes.
        x2: Other inputs; None for x1.
        weight_variance: Of all weights, times the fan-in.
        bias_variance: Of all biases.
        get: Which kernels.
        batch: Inputs in a block, for kernels of images; 0 for one compiled call.
    """
    job = {"kind": "infinite", "layers": described(model), "w_std": weight_variance**0.5,
           "b_std": bias_variance**0.5, "get": get, "batch": batch}  # fmt: skip
    images = [None if x is None else x.movedim(1, -1) if x.ndim == 4 else x for x in (x1, x2)]
    return Peer(_worker(x1), job, images, get)


class Answer:
    """What a peer computed: its seconds, and arrays that are fetched when they are asked for."""

    def __init__(self, peer: "Peer", seconds: float) -> None:
        self.seconds = seconds
        self._peer, self._turn = peer, peer.turns

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._peer.names:
            raise AttributeError(name)
        if self._turn != self._peer.turns:
            raise RuntimeError(f"{name} is gone: the peer has computed again since")
        return self._peer.fetch(name)


class Peer:
    """A compiled call in the other process."""

    def __init__(
        self, worker: "_Worker", job: dict[str, Any], arrays: Sequence[Any], names: tuple[str, ...]
    ) -> None:
        self.names, self.turns = names, 0
        self._worker, self._number = worker, next(_NUMBERS)
        self._ask("prepare", arrays, **job)

    def __call__(self) -> Answer:
        """Compute."""
        self.turns += 1
        return Answer(self, self._ask("run")[0]["seconds"])

    def fetch(self, name: str) -> Tensor:
        """An array that was computed last."""
        return self._ask("fetch", names=[name])[1][0]

    def peak_megabytes(self) -> float:
        """The memory that a call takes in the other process."""
        return self._ask("peak")[0]["megabytes"]

    def close(self) -> None:
        """Forget the call and its arrays there."""
        self._ask("forget")

    def _ask(self, do: str, arrays: Sequence[Any] = (), **more: Any) -> tuple[dict, list[Tensor]]:
        return self._worker.ask({"do": do, "job": self._number, **more}, arrays)


class _Worker:
    """The other process, and messages to it."""

    def __init__(self, python: str, dtype: str, threads: int) -> None:
        command = [python, "-I", str(_HERE / "_worker.py"), dtype, str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.close)

    def ask(self, message: dict[str, Any], arrays: Sequence[Any]) -> tuple[dict, list[Tensor]]:
        """Send a message and wait for its answer."""
        source, sink = self.process.stdout, self.process.stdin
        assert source is not None
        assert sink is not None
        sent = [None if a is None else np.ascontiguousarray(a.detach().numpy()) for a in arrays]
        message["arrays"] = [None if a is None else (a.shape, str(a.dtype)) for a in sent]
        sink.write(json.dumps(message).encode() + b"\n")
        for array in sent:
            sink.write(b"" if array is None else array.data)
        sink.flush()
        line = source.readline()
        if not line:
            raise RuntimeError(f"neural-tangents' process ended with {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"neural-tangents: {reply['error']}")
        return reply, [self._array(source, *about) for about in reply["arrays"]]

    def _array(self, source: Any, shape: list[int], dtype: str) -> Tensor:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        content = bytearray(source.read(size))
        return torch.from_numpy(np.frombuffer(content, dtype).reshape(shape))

    def close(self) -> None:
        """End the process."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


def _worker(x: Tensor) -> _Worker:
    """One for each dtype and number of threads."""
    return _started(str(x.dtype).removeprefix("torch."), torch.get_num_threads())


@cache
def _started(dtype: str, threads: int) -> _Worker:
    own = _HERE.parents[1] / ".venv-neural-tangents/bin/python"
    python = os.environ.get("NEURAL_TANGENTS_PYTHON") or str(own)
    if not Path(python).exists():
        raise PeerNotFoundError(
            "neural-tangents was not found: make .venv-neural-tangents/ready, or set"
            " NEURAL_TANGENTS_PYTHON to an interpreter that has it"
        )
    return _Worker(python, dtype, threads)
