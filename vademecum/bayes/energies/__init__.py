"""Posteriors over weights as energies, of many weights at once."""

from vademecum.bayes.energies.weight_posteriors import posterior

__all__ = ["posterior"]
