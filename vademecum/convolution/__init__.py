"""Convolutions as operators, the arithmetic of networks, and networks from LeNet to WaveNet.

A *convolution* slides one small kernel over a signal; it is the linear map that does the same
everywhere, and as a matrix it repeats its rows along the diagonals. Stacked, strided and dilated,
such layers look at growing parts of the input, their *receptive fields*. A few dozen of them, with
pooling, shortcuts and concatenation, are the networks that learned to see and to hear.
"""

from vademecum.convolution.call_table import CallRow, ShapeTrace, shape_trace
from vademecum.convolution.causal import CausalConv1d, CausalState, CausalStep
from vademecum.convolution.impulses import ImpulseResponse, impulse_response
from vademecum.convolution.layer_matrices import ConvMatrix, conv_matrix
from vademecum.convolution.local_layers import LocallyConnected2d
from vademecum.convolution.networks import (
    TCN,
    VGG,
    AlexNet,
    DenseBlock,
    DenseNet,
    GoogLeNet,
    GoogLeNetOutput,
    InceptionModule,
    LeNet5,
    ResidualBlock,
    ResNet,
    TextCNN,
    UNet,
    scaled_tanh,
)
from vademecum.convolution.output_sizes import conv_output_size
from vademecum.convolution.receptive import ReceptiveField, draw_receptive_field, receptive_field
from vademecum.convolution.singular_values import ConvSingularValues, conv_singular_values
from vademecum.convolution.sliding import convolve, correlate, rot180
from vademecum.convolution.soft_pooling import SoftmaxPool
from vademecum.convolution.wavenet import WaveNet

__all__ = [
    # operators
    "convolve", "correlate", "rot180", "ConvMatrix", "conv_matrix", "conv_output_size",
    "ConvSingularValues", "conv_singular_values", "ImpulseResponse", "impulse_response",
    # layers
    "CausalConv1d", "CausalState", "CausalStep", "LocallyConnected2d", "SoftmaxPool",
    # blocks and networks
    "DenseBlock", "InceptionModule", "ResidualBlock", "scaled_tanh", "AlexNet", "DenseNet",
    "GoogLeNet", "GoogLeNetOutput", "LeNet5", "ResNet", "UNet", "VGG", "TCN", "TextCNN", "WaveNet",
    # arithmetic of any module
    "CallRow", "ShapeTrace", "shape_trace", "ReceptiveField", "draw_receptive_field",
    "receptive_field",
]  # fmt: skip
