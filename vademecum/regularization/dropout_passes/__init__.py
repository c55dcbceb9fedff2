"""The networks that dropout makes of one: some of them at random, or all."""

from vademecum.regularization.dropout_passes.enumerated import DropoutEnsemble, dropout_ensemble
from vademecum.regularization.dropout_passes.sampled import MCDropout, mc_dropout

__all__ = ["DropoutEnsemble", "MCDropout", "dropout_ensemble", "mc_dropout"]
