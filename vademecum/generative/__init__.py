"""Models that draw new examples: latent variables, flows, games, diffusion, one pixel at a time.

Every method also runs where the truth is known in closed form (Gaussians, mixtures, linear models),
so that its error is a number. Densities agree: `log_prob(x, context=None)` and
`sample(n, context=None, *, generator=None)`.
"""

from vademecum.generative._bound_terms import ELBO
from vademecum.generative._code_moments import ActiveUnits
from vademecum.generative._importance_weights import LogEvidence
from vademecum.generative.adversarial import GAN, optimal_discriminator
from vademecum.generative.autoencoders import Autoencoder, AutoencoderTerms
from vademecum.generative.binary_factors import BernoulliNMF
from vademecum.generative.boltzmann import LogPartition, RestrictedBoltzmannMachine
from vademecum.generative.continuous import (
    VESDE,
    VPSDE,
    DiffusionSDE,
    FlowResult,
    LogLikelihood,
    annealed_langevin,
    log_likelihood,
    probability_flow,
    reverse_sde_sample,
)
from vademecum.generative.diffusion import (
    DDPM,
    ConditionalMLP,
    ConditionalUNet,
    DiffusionBound,
    NoiseSchedule,
    StepPosterior,
    ddim_sample,
    ddpm_sample,
    diffusion_bound,
)
from vademecum.generative.estimator_variance import (
    GradientMoments,
    GradientVariance,
    gradient_variance,
)
from vademecum.generative.exact_mixtures import MixtureScore
from vademecum.generative.factors import FactorAnalysis, ProbabilisticPCA
from vademecum.generative.feature_matrices import sample_ibp
from vademecum.generative.flows import (
    IAF,
    MADE,
    MAF,
    Compose,
    FlowSample,
    LinearFlow,
    PlanarFlow,
    RealNVP,
    SplineFlow,
    Transformed,
)
from vademecum.generative.measures import (
    FeatureMoments,
    FrechetDistance,
    InceptionScore,
    KernelDistance,
    PrecisionRecall,
    SlicedWasserstein,
    feature_moments,
    frechet_distance,
    inception_score,
    kernel_distance,
    precision_recall,
    sliced_wasserstein,
)
from vademecum.generative.mixture_coverage import ModeCoverage, mode_coverage
from vademecum.generative.pixels import MaskedConv2d, PixelCNN
from vademecum.generative.process_embeddings import GPLVM
from vademecum.generative.random_partitions import crp_log_prob, sample_crp
from vademecum.generative.reparameterisation import reparameterize
from vademecum.generative.score_fitting import (
    FisherDivergence,
    fisher_divergence,
    score_matching_loss,
)
from vademecum.generative.transport import Transport, wasserstein_1
from vademecum.generative.variational_autoencoder import VAE

__all__ = [
    # binary units and factors, latent points of processes, partitions and features without end
    "BernoulliNMF", "GPLVM", "LogPartition", "RestrictedBoltzmannMachine",
    "crp_log_prob", "sample_crp", "sample_ibp",
    # latent factors in closed form
    "FactorAnalysis", "ProbabilisticPCA",
    # autoencoders with and without a law
    "ActiveUnits", "Autoencoder", "AutoencoderTerms", "ELBO", "LogEvidence", "VAE",
    "GradientMoments", "GradientVariance", "gradient_variance", "reparameterize",
    # diffusion in steps
    "DDPM", "ConditionalMLP", "ConditionalUNet", "DiffusionBound", "NoiseSchedule", "StepPosterior",
    "ddim_sample", "ddpm_sample", "diffusion_bound",
    # flows and autoregressive densities
    "Compose", "FlowSample", "IAF", "LinearFlow", "MADE", "MAF", "PlanarFlow", "RealNVP",
    "SplineFlow", "Transformed",
    # diffusion in continuous time, and scores
    "DiffusionSDE", "MixtureScore", "VESDE", "VPSDE",
    "FlowResult", "LogLikelihood", "annealed_langevin", "log_likelihood", "probability_flow",
    "reverse_sde_sample",
    "FisherDivergence", "fisher_divergence", "score_matching_loss",
    # games, and exact transport
    "GAN", "ModeCoverage", "Transport", "mode_coverage", "optimal_discriminator", "wasserstein_1",
    # images, pixel by pixel
    "MaskedConv2d", "PixelCNN",
    # how far samples are from data
    "FeatureMoments", "FrechetDistance", "InceptionScore", "KernelDistance", "PrecisionRecall",
    "SlicedWasserstein", "feature_moments", "frechet_distance", "inception_score",
    "kernel_distance", "precision_recall", "sliced_wasserstein",
]  # fmt: skip
