"""Kernels of networks: their tangent kernel, their infinite width, Gaussian processes.

The *tangent kernel* of any network says how learning one example moves the others. At infinite
width it stays as it was, and *training becomes kernel regression*, whose predictions follow from
the architecture alone; before training the network is a *Gaussian process*.
"""

from vademecum.kernels._kernel import Kernel
from vademecum.kernels.dot_products import ArcCosineKernel, LinearKernel
from vademecum.kernels.filters import spectral_filter
from vademecum.kernels.flow_predictions import NTKPrediction, ntk_predict
from vademecum.kernels.gaussian_process import GaussianProcess
from vademecum.kernels.hilbert_space import rkhs_inner, rkhs_norm
from vademecum.kernels.kernel_motion import NTKDrift, ntk_drift
from vademecum.kernels.kernel_ridge import KernelRidge
from vademecum.kernels.laziness import LazyRatio, lazy_ratio
from vademecum.kernels.matrices import gram
from vademecum.kernels.ntk_coordinates import ntk_parametrize
from vademecum.kernels.radial import MaternKernel, RBFKernel
from vademecum.kernels.ridgeless import KernelRegression, kernel_regression
from vademecum.kernels.tangent_kernel import empirical_ntk
from vademecum.kernels.tangent_model import LinearizedNetwork
from vademecum.kernels.tangent_operator import ntk_operator
from vademecum.kernels.tangent_spectrum import NTKSpectrum, ntk_spectrum
from vademecum.kernels.target_alignment import kernel_alignment
from vademecum.kernels.wide import InfiniteWidth, WidthDiagonals, infinite_width

__all__ = [
    # kernels
    "ArcCosineKernel", "Kernel", "LinearKernel", "MaternKernel", "RBFKernel",
    "gram", "rkhs_inner", "rkhs_norm",
    # regression with a kernel
    "GaussianProcess", "KernelRegression", "KernelRidge", "kernel_regression", "spectral_filter",
    # tangent kernels
    "NTKSpectrum", "empirical_ntk", "kernel_alignment", "ntk_operator", "ntk_spectrum",
    # networks of infinite width
    "InfiniteWidth", "WidthDiagonals", "infinite_width",
    # networks that train as their kernel says
    "LinearizedNetwork", "NTKPrediction", "ntk_parametrize", "ntk_predict",
    "LazyRatio", "NTKDrift", "lazy_ratio", "ntk_drift",
]  # fmt: skip
