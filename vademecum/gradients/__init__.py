"""A network as a function of parameters and inputs, and differentiation laid bare."""

from vademecum.gradients.backprop import Backprop, LayerNorms, LayerTrace, backprop
from vademecum.gradients.backprop_drawing import draw_backprop
from vademecum.gradients.convolution_gradients import conv_input_grad, conv_weight_grad
from vademecum.gradients.functional import Functional, functional
from vademecum.gradients.gradient_norms import gradient_norms
from vademecum.gradients.jacobian import Jacobian, jacobian
from vademecum.gradients.layouts import (
    TensorChain,
    denominator_layout,
    numerator_layout,
    tensor_chain,
)
from vademecum.gradients.per_example import per_example_gradients
from vademecum.gradients.products import hessian, hvp, jvp, vjp
from vademecum.gradients.subdifferential import Subdifferential, subdifferential
from vademecum.gradients.tape import Pull, Push, Tape, TapeJacobian
from vademecum.gradients.tape_cost import Cost
from vademecum.gradients.tape_drawing import draw_tape

__all__ = [
    # a model as a function
    "Functional", "functional",
    "Jacobian", "jacobian",
    "hessian", "hvp", "jvp", "vjp",
    "gradient_norms", "per_example_gradients",
    # backpropagation laid bare
    "Backprop", "LayerNorms", "LayerTrace", "backprop", "draw_backprop",
    # an engine of our own
    "Cost", "Pull", "Push", "Tape", "TapeJacobian", "draw_tape",
    # rules
    "TensorChain", "denominator_layout", "numerator_layout", "tensor_chain",
    "Subdifferential", "subdifferential",
    "conv_input_grad", "conv_weight_grad",
]  # fmt: skip
