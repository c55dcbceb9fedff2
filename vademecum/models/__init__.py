"""Any `nn.Module` as it is: evaluation mode, inputs, outputs, places of tensors, its graph."""

from vademecum.models.failures import (
    SlowPathWarning,
    cannot_be_mapped,
    out_of_memory,
    warn_of_slow_path,
)
from vademecum.models.independence import insist_on_same_outputs, rows_are_separate
from vademecum.models.inputs import (
    Entangled,
    call_arguments,
    count_examples,
    map_tensors,
    named_tensors,
    refuse_nan,
)
from vademecum.models.losses import Loss, described, loss_for
from vademecum.models.modes import evaluation
from vademecum.models.outputs import chosen_output, differentiable_output
from vademecum.models.tensors import tensor_places

__all__ = [
    "Entangled", "Loss", "SlowPathWarning", "call_arguments", "cannot_be_mapped", "chosen_output",
    "count_examples", "described", "differentiable_output", "evaluation", "insist_on_same_outputs",
    "loss_for", "map_tensors", "named_tensors", "out_of_memory", "refuse_nan", "rows_are_separate",
    "tensor_places", "warn_of_slow_path",
]  # fmt: skip
