"""A network as a function of parameters and inputs, and differentiation laid bare.

*Backpropagation* carries the error from the loss back through the layers, each of which multiplies
it by its own derivative. Where these factors are mostly below one the error *vanishes* on its way,
where they are above one it *explodes*, and a good initialisation holds the balance. The same chain
rule can be evaluated from the inputs on or from the outputs back: *forward mode* pays for every
input, *reverse mode* for every output, and with memory.
"""

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
