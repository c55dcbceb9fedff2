"""The side of the bridge that runs where neural-tangents can be imported, and torch cannot.

Messages are a line of JSON with the shapes of arrays, then their bytes. A job is prepared once,
which compiles it, and run as often as asked; what it computed is sent when it is asked for.
"""

import json
import os
import sys
import time
import types
from importlib import import_module
from pathlib import Path
from typing import Any, cast

threads = int(sys.argv[2])
os.environ["XLA_FLAGS"] = (
    f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}"
    f" intra_op_parallelism_threads={threads}"
)
if hasattr(os, "sched_setaffinity"):  # what XLA counts
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
# it would import TensorFlow
sys.modules["neural_tangents.experimental"] = types.ModuleType("neural_tangents.experimental")

jax, jnp, nt, stax, np = (  # by name: our own environment has none of them, or others
    cast(Any, import_module(name))
    for name in ("jax", "jax.numpy", "neural_tangents", "neural_tangents.stax", "numpy")
)

jax.config.update("jax_enable_x64", sys.argv[1] == "float64")

POINTWISE = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "erf": jax.scipy.special.erf,
    "abs": jnp.abs,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "sigmoid": jax.nn.sigmoid,
}
LIMITS = {
    "relu": stax.Relu,
    "gelu": stax.Gelu,
    "erf": stax.Erf,
    "abs": stax.Abs,
    "sin": stax.Sin,
    "cos": stax.Cos,
}


def applied(layers: list, params: list, x: Any) -> Any:
    """A finite network, with torch's order of axes."""
    params = list(params)
    for kind, *knobs in layers:
        if kind in ("linear", "conv"):
            (weight, bias), *params = params
            x = x @ weight.T if kind == "linear" else _conv(x, weight, *knobs[:3])
            if bias is not None:
                x = x + (bias if kind == "linear" else bias[:, None, None])
        elif kind == "leaky_relu":
            x = jnp.where(x > 0, x, knobs[0] * x)
        elif kind in ("max_pool", "avg_pool"):
            x = _pool(x, kind, *knobs)
        elif kind == "global_avg_pool":
            x = x.mean((2, 3), keepdims=True)
        elif kind == "flatten":
            x = x.reshape(x.shape[0], -1)
        elif kind == "residual":
            inner = sum(layer[0] in ("linear", "conv") for layer in knobs[0])
            x = x + applied(knobs[0], params[:inner], x)
            params = params[inner:]
        else:
            x = POINTWISE[kind](x)
    return x


def _conv(x: Any, weight: Any, stride: list, padding: list, circular: bool) -> Any:
    pads = [(p, p) for p in padding]
    if circular:
        x, pads = jnp.pad(x, [(0, 0), (0, 0), *pads], mode="wrap"), [(0, 0)] * 2
    axes = ("NCHW", "OIHW", "NCHW")
    return jax.lax.conv_general_dilated(x, weight, stride, pads, dimension_numbers=axes)


def _pool(x: Any, kind: str, size: list, stride: list) -> Any:
    window, steps = (1, 1, *size), (1, 1, *stride)
    if kind == "max_pool":
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, steps, "VALID")
    total = jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, "VALID")
    return total / (size[0] * size[1])


def limit(layers: list, w_std: float, b_std: float) -> tuple:
    """The same architecture in stax, as (init, apply, kernel)."""
    found = []
    for kind, *knobs in layers:
        if kind == "linear":
            found.append(stax.Dense(1, w_std, b_std if knobs[0] else None))
        elif kind == "conv":
            stride, padding, circular, size, biased = knobs
            same = "CIRCULAR" if circular else "SAME" if any(padding) else "VALID"
            found.append(stax.Conv(1, size, stride, same, w_std, b_std if biased else None))
        elif kind == "leaky_relu":
            found.append(stax.LeakyRelu(knobs[0]))
        elif kind == "avg_pool":
            found.append(stax.AvgPool(*(tuple(k) for k in knobs)))
        elif kind == "global_avg_pool":
            found.append(stax.GlobalAvgPool())
        elif kind == "flatten":
            found.append(stax.Flatten())
        elif kind == "layer_norm":
            found.append(stax.LayerNorm(eps=knobs[0]))
        elif kind == "residual":
            branch = stax.parallel(limit(knobs[0], w_std, b_std), stax.Identity())
            found.append(stax.serial(stax.FanOut(2), branch, stax.FanInSum()))
        else:
            found.append(LIMITS[kind]())
    return stax.serial(*found)


def empirical(job: dict, arrays: list) -> Any:
    """A compiled call without arguments."""
    layers, outputs = job["layers"], job["outputs"]
    x1, x2, *flat = [jnp.asarray(a) if a is not None else None for a in arrays]
    params = list(zip(flat[::2], flat[1::2], strict=True))
    axes = {"trace_axes": (-1,) if outputs == "trace" else ()}
    if outputs == "diagonal":
        axes["diagonal_axes"] = (-1,)
    kernel = nt.empirical_ntk_fn(
        lambda p, x: applied(layers, p, x),
        **axes,
        vmap_axes=0,
        implementation=job["implementation"],
    )
    k = jax.eval_shape(lambda p: applied(layers, p, x1), params).shape[-1]
    scale = k if outputs == "trace" else 1  # theirs is the mean over outputs
    call = jax.jit(lambda a, b, p: scale * kernel(a, b, p))
    return lambda: {"ntk": call(x1, x2, params)}


def infinite(job: dict, arrays: list) -> Any:
    """A compiled call without arguments, by blocks of `batch` inputs if that is not 0."""
    x1, x2 = [jnp.asarray(a) if a is not None else None for a in arrays]
    *_, kernel = limit(job["layers"], job["w_std"], job["b_std"])
    get = tuple(job["get"])
    if job["batch"]:
        batched = nt.batch(kernel, batch_size=job["batch"])
        return lambda: batched(x1, x1 if x2 is None else x2, get)._asdict()
    call = jax.jit(lambda a, b: tuple(getattr(kernel(a, b, get), name) for name in get))
    return lambda: dict(zip(get, call(x1, x2), strict=True))


def peak(call: Any) -> float:
    """The resident memory in MB that a call takes on top of what was there."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    jax.block_until_ready(call())
    return max(_resident("VmHWM") - before, 0.0)


def _resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


class Jobs:
    """The jobs that were prepared, and what each computed last."""

    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}
        self.found: dict[int, dict[str, Any]] = {}

    def answer(self, ask: dict, arrays: list) -> tuple[dict, list]:
        """One message."""
        job = ask.get("job", 0)
        if ask["do"] == "prepare":
            build = {"empirical": empirical, "infinite": infinite}[ask["kind"]]
            self.calls[job] = build(ask, arrays)
        elif ask["do"] == "run":
            start = time.perf_counter()
            self.found[job] = jax.block_until_ready(self.calls[job]())
            return {"seconds": time.perf_counter() - start}, []
        elif ask["do"] == "peak":
            return {"megabytes": peak(self.calls[job])}, []
        elif ask["do"] == "fetch":
            found = {k: np.asarray(v) for k, v in self.found[job].items() if k in ask["names"]}
            return {"names": list(found)}, list(found.values())
        elif ask["do"] == "forget":
            self.calls.pop(job, None)
            self.found.pop(job, None)
        return {}, []


def main() -> None:
    """Answer until the other side closes its end."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    jobs = Jobs()
    for line in source:
        ask = json.loads(line)
        arrays = [None if s is None else _read(source, *s) for s in ask.pop("arrays")]
        try:
            reply, found = jobs.answer(ask, arrays)
        except Exception as error:  # sent to the other side, which raises it
            reply, found = {"error": f"{type(error).__name__}: {error}"}, []
        about = {"arrays": [(list(a.shape), str(a.dtype)) for a in found]}
        sink.write(json.dumps(reply | about).encode() + b"\n")
        for array in found:
            sink.write(np.ascontiguousarray(array).tobytes())
        sink.flush()


def _read(source: Any, shape: list, dtype: str) -> Any:
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(source.read(count), dtype).reshape(shape)


if __name__ == "__main__":
    main()
