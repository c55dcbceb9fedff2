"""Chains that sample an energy, many at once."""

from vademecum.bayes.sampling.chain_results import Chains
from vademecum.bayes.sampling.sampler import sample

__all__ = ["Chains", "sample"]
