"""Spectra of graphs: Laplacians, their modes, filters, and the energy of a signal."""

from vademecum.geometry.spectra.energies import dirichlet_energy
from vademecum.geometry.spectra.filters import polynomial_filter
from vademecum.geometry.spectra.fourier import GraphFourier, graph_fourier
from vademecum.geometry.spectra.laplacians import GraphLaplacian, graph_laplacian
from vademecum.geometry.spectra.polynomial_layers import PolynomialConv

__all__ = [
    "GraphFourier", "GraphLaplacian", "PolynomialConv", "dirichlet_energy", "graph_fourier",
    "graph_laplacian", "polynomial_filter",
]  # fmt: skip
