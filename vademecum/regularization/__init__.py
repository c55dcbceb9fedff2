"""What makes networks train and generalise: initialisation, normalisation, noise, averages.

A signal that crosses many layers must neither vanish nor explode: *mean-field theory* predicts its
variance and correlation layer by layer. *Decay* and early stopping shrink the directions that the
data hardly see; *dropout*, bagging and augmentation average over many networks or inputs; pretext
tasks and distillation give targets that cost nothing.
"""

from vademecum.regularization.augmentation import (
    Augmented,
    Mixed,
    colour_jitter,
    cutmix,
    effective_sample_size,
    mixup,
    pca_jitter,
    random_affine,
    random_crop,
    random_erasing,
    random_flip,
    random_resized_crop,
)
from vademecum.regularization.averaging import EnsembleAverage, ensemble_average
from vademecum.regularization.bagged import Bagging
from vademecum.regularization.contrast import (
    ContrastivePredictiveCoding,
    PredictiveCoding,
    info_nce_loss,
)
from vademecum.regularization.critical_points import CriticalLine, critical_line
from vademecum.regularization.delta_kernels import delta_orthogonal_
from vademecum.regularization.distillation import distillation_loss
from vademecum.regularization.dropout_passes import (
    DropoutEnsemble,
    MCDropout,
    dropout_ensemble,
    mc_dropout,
)
from vademecum.regularization.effective_directions import WeightDecayEffect, weight_decay_effect
from vademecum.regularization.effective_steps import ScaleInvariance, TensorScale, scale_invariance
from vademecum.regularization.gaussian_mixtures import SemiSupervisedGMM
from vademecum.regularization.isometry import Isometry, dynamical_isometry
from vademecum.regularization.mean_field_theory import MeanField, mean_field
from vademecum.regularization.noise_penalties import (
    NoisePenalty,
    input_noise_penalty,
    weight_noise_penalty,
)
from vademecum.regularization.noisy_layers import input_noise, weight_noise
from vademecum.regularization.pretext import (
    Colourisation,
    MaskedImages,
    PretextTask,
    colourisation_task,
    mask_task,
    motion_task,
    patch_position_task,
    rotation_task,
)
from vademecum.regularization.quadratic_shrinkage import (
    Shrinkage,
    equivalent_stopping_time,
    gd_closed_form,
    optimal_weight_decay,
    spectral_shrinkage,
)
from vademecum.regularization.shared_directions import MultiTaskLinear
from vademecum.regularization.shortcuts import Residual
from vademecum.regularization.signal import (
    InitPlan,
    InitStep,
    SignalMoments,
    SignalPrediction,
    SignalPropagation,
    SignalRow,
    draw_signal,
    signal_propagation,
    suggest_init,
)
from vademecum.regularization.stopping import EarlyStopping
from vademecum.regularization.task_heads import MultiTask
from vademecum.regularization.unit_symmetries import UnitChange, permute_units, rescale_units

__all__ = [
    # signals in wide and deep networks
    "CriticalLine", "Isometry", "MeanField", "critical_line", "dynamical_isometry", "mean_field",
    "Residual", "delta_orthogonal_",
    # decay and early stopping
    "EarlyStopping", "Shrinkage", "WeightDecayEffect", "equivalent_stopping_time",
    "gd_closed_form", "optimal_weight_decay", "spectral_shrinkage", "weight_decay_effect",
    # noise
    "NoisePenalty", "input_noise", "input_noise_penalty", "weight_noise", "weight_noise_penalty",
    # scales and symmetries
    "ScaleInvariance", "TensorScale", "scale_invariance", "UnitChange", "permute_units",
    "rescale_units",
    # few labels, several tasks
    "MultiTask", "MultiTaskLinear", "SemiSupervisedGMM",
    # dropout and ensembles
    "Bagging", "DropoutEnsemble", "EnsembleAverage", "MCDropout", "dropout_ensemble",
    "ensemble_average", "mc_dropout",
    # objectives
    "distillation_loss",
    # augmentation
    "Augmented", "Mixed", "colour_jitter", "cutmix", "effective_sample_size", "mixup",
    "pca_jitter", "random_affine", "random_crop", "random_erasing", "random_flip",
    "random_resized_crop",
    # signals, layer by layer
    "InitPlan", "InitStep", "suggest_init", "SignalMoments", "SignalPrediction",
    "SignalPropagation", "SignalRow", "signal_propagation", "draw_signal",
    # targets that cost nothing
    "ContrastivePredictiveCoding", "PredictiveCoding", "info_nce_loss", "Colourisation",
    "MaskedImages", "PretextTask", "colourisation_task", "mask_task", "motion_task",
    "patch_position_task", "rotation_task",
]  # fmt: skip
