"""Boltzmann machines: laws of binary units that are known up to a constant."""

from vademecum.generative.boltzmann.partition import LogPartition
from vademecum.generative.boltzmann.restricted import RestrictedBoltzmannMachine

__all__ = ["LogPartition", "RestrictedBoltzmannMachine"]
