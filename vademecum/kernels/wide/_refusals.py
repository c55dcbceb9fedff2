"""Why a layer has no limit of infinite width, or none that is known."""

from collections.abc import Iterator
from contextlib import contextmanager

from vademecum.models import Call

__all__ = ["naming", "refused", "why_not"]

_ATTENTION = (
    "attention multiplies signals with one another, and with few heads its outputs stay"
    " non-Gaussian at any width"
)
_MAXIMUM = (
    "the maximum of correlated Gaussian signals has no covariance in closed form; average pooling"
    " has"
)
_RECURRENT = "a recurrent layer shares its weights between all steps"
_BATCH = (
    "batch normalisation makes an example depend on the others of its batch, so that no kernel of"
    " two inputs is its limit; LayerNorm has one"
)
_REASONS = {
    "batch_norm": _BATCH,
    "sync_batch_norm": _BATCH,
    "multi_head_attention_forward": _ATTENTION,
    "scaled_dot_product_attention": _ATTENTION,
    "softmax": _ATTENTION,
    "amax": _MAXIMUM,
    "max": _MAXIMUM,
    "lstm": _RECURRENT,
    "gru": _RECURRENT,
    "rnn_tanh": _RECURRENT,
    "rnn_relu": _RECURRENT,
    "instance_norm": "each channel is divided by its own random deviation, which stays random at"
    " any width; LayerNorm has a limit",
    "group_norm": "its groups of channels have no width of their own here; LayerNorm has a limit",
    "embedding": "an embedding's inputs are whole numbers, not vectors with a covariance",
    "cat": "signals side by side would be weighed by their widths, which are ignored",
    "concat": "signals side by side would be weighed by their widths, which are ignored",
    "matmul": "it multiplies signals with one another",
    "bmm": "it multiplies signals with one another",
    "einsum": "it multiplies signals with one another",
}


_LEARNS = {"batch_norm", "sync_batch_norm", "multi_head_attention_forward", "lstm", "gru",
           "rnn_tanh", "rnn_relu", "embedding"}  # fmt: skip


def why_not(call: Call, *, before: bool) -> str | None:
    """Why a call is refused, if it is.

    Args:
        call: The call.
        before: Whether it comes before the first layer, where all is computed that learns nothing.
    """
    if before and call.name not in _LEARNS:
        return None
    if "max_pool" in call.name:
        return _MAXIMUM
    return _REASONS.get(call.name)


@contextmanager
def naming(call: Call | None) -> Iterator[None]:
    """Errors within it name the call: an activation whose integrals do not exist."""
    try:
        yield
    except ValueError as error:
        raise (error if call is None else refused(call, str(error))) from None


def refused(call: Call, reason: str) -> ValueError:
    """The error that names a layer and says why it has no limit."""
    return ValueError(
        "model must be made of layers whose limit of infinite width is known, got"
        f" {call.place}: {reason}"
    )
