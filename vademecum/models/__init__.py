"""Any `nn.Module` as it is: evaluation mode, inputs, outputs, places of tensors, its graph."""

from vademecum.models._cross_entropy import softmax_product
from vademecum.models._fingerprints import fingerprint
from vademecum.models._modules import Modules, named_modules
from vademecum.models._recording import following
from vademecum.models.example_losses import cotangents, example_loss, summed, targets_of
from vademecum.models.failures import (
    FAILURES,
    SlowPathWarning,
    cannot_be_mapped,
    out_of_memory,
    warn_of_slow_path,
)
from vademecum.models.flags import constant, resting
from vademecum.models.independence import (
    Moves,
    insist_on_same_outputs,
    row_is_alone,
    rows_are_separate,
)
from vademecum.models.inputs import (
    Entangled,
    call_arguments,
    count_examples,
    map_leaves,
    map_tensors,
    named_leaves,
    named_tensors,
    refuse_nan,
    replaced,
    variable,
)
from vademecum.models.live_bytes import bytes_each, peak_bytes
from vademecum.models.loaders import batches, next_pair
from vademecum.models.loss_calls import LossCall, LossCalls
from vademecum.models.losses import Loss, described, loss_for
from vademecum.models.mapped import mapped_derivatives
from vademecum.models.mean_products import Block, MeanProducts
from vademecum.models.memory_limits import Portions
from vademecum.models.modes import evaluation, refuse_batch_statistics, untouched
from vademecum.models.multilayer import mlp
from vademecum.models.outputs import Output, chosen_output, differentiable_output
from vademecum.models.passes import Passes, mean_over_batches, weighted
from vademecum.models.replay import Replay
from vademecum.models.second_derivatives import bilinear_convolutions, twice_differentiable
from vademecum.models.stacked import StackedMembers
from vademecum.models.tensors import (
    ModelState,
    aliases,
    call_with,
    insist_on_place,
    run_with,
    tensor_homes,
    tensor_places,
    unwrapped,
)
from vademecum.models.tracing import (
    Call,
    Recording,
    Rows,
    Size,
    Trace,
    Value,
    recorded,
    trace_of_rows,
)
from vademecum.models.units import UnitGraph, UnitGroup, UnitMember, reordered, unit_graph
from vademecum.models.weights import load_weights, save_weights

__all__ = [
    # a model to begin with, and weights from elsewhere
    "mlp", "load_weights", "save_weights",
    # modes and tensors
    "ModelState", "Modules", "aliases", "call_with", "bilinear_convolutions", "constant",
    "evaluation", "insist_on_place", "named_modules", "resting", "run_with", "tensor_homes",
    "tensor_places", "twice_differentiable", "untouched", "unwrapped",
    # inputs, outputs, losses
    "Loss", "LossCall", "LossCalls", "Output", "call_arguments", "chosen_output", "cotangents",
    "count_examples", "described", "differentiable_output", "example_loss", "loss_for",
    "map_leaves", "map_tensors", "named_leaves", "named_tensors", "refuse_nan", "replaced",
    "softmax_product", "summed", "targets_of", "variable",
    # passes over data
    "Block", "MeanProducts", "Passes", "Portions", "batches", "bytes_each", "fingerprint",
    "mapped_derivatives", "mean_over_batches", "next_pair", "peak_bytes", "weighted",
    # independence of examples
    "Entangled", "Moves", "insist_on_same_outputs", "refuse_batch_statistics",
    "row_is_alone", "rows_are_separate",
    # graphs
    "Call", "Recording", "Rows", "Size", "Trace", "UnitGraph", "UnitGroup", "UnitMember",
    "Value", "following", "recorded", "trace_of_rows", "reordered", "unit_graph",
    # many equal steps, many equal networks
    "Replay", "StackedMembers",
    # failures
    "FAILURES", "SlowPathWarning", "cannot_be_mapped", "out_of_memory", "warn_of_slow_path",
]  # fmt: skip
