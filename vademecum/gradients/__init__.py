"""A network as a function of parameters and inputs, and differentiation laid bare."""

from vademecum.gradients.backpropagation import Backprop, LayerTrace, backprop
from vademecum.gradients.backpropagation_drawing import draw_backprop
from vademecum.gradients.convolution_gradients import conv_input_grad, conv_weight_grad
from vademecum.gradients.example_norms import gradient_norms
from vademecum.gradients.jacobian_operator import jacobian
from vademecum.gradients.layouts import (
    TensorChain,
    denominator_layout,
    numerator_layout,
    tensor_chain,
)
from vademecum.gradients.loss_gradient import gradient
from vademecum.gradients.network_function import functional
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian, hvp, jvp, vjp
from vademecum.gradients.subgradients import Subdifferential, subdifferential
from vademecum.gradients.tape import Tape, draw_tape

__all__ = [
    # a model as a function
    "functional", "gradient",
    "jacobian", "jvp", "vjp",
    "hessian", "hvp",
    "gradient_norms", "per_example_gradients",
    # backpropagation laid bare
    "Backprop", "LayerTrace", "backprop", "draw_backprop",
    # an engine of our own
    "Tape", "draw_tape",
    # rules
    "TensorChain", "denominator_layout", "numerator_layout", "tensor_chain",
    "Subdifferential", "subdifferential",
    "conv_input_grad", "conv_weight_grad",
]  # fmt: skip
