"""Latent points whose images are draws of a Gaussian process."""

from vademecum.generative.process_embeddings.gaussian_process_lvm import GPLVM

__all__ = ["GPLVM"]
