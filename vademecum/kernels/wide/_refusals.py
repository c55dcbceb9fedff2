"""Why a layer has no limit of infinite width, or none that is known."""

from vademecum.models import Call

__all__ = ["refused", "why_not"]

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
    "detach": "it cuts off the gradient of one branch",
    "cat": "signals side by side would be weighed by their widths, which are ignored",
    "concat": "signals side by side would be weighed by their widths, which are ignored",
    "matmul": "it multiplies signals with one another",
    "bmm": "it multiplies signals with one another",
    "einsum": "it multiplies signals with one another",
}


def why_not(call: Call) -> str | None:
    """Why a call is refused whatever it meets, if it is."""
    if "max_pool" in call.name:
        return _MAXIMUM
    return _REASONS.get(call.name)


def refused(call: Call, reason: str) -> ValueError:
    """The error that names a layer and says why it has no limit."""
    return ValueError(
        "model must be made of layers whose limit of infinite width is known, got"
        f" {call.place}: {reason}"
    )
