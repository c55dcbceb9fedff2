"""Pictures of this room: densities that bend, diffuse, compete and are sampled."""

from vademecum.generative.pictures.backwards import a_diffusion_runs_backwards
from vademecum.generative.pictures.bent_grid import a_flow_bends_the_plane
from vademecum.generative.pictures.code_plane import latent_plane
from vademecum.generative.pictures.collapsing_modes import modes_collapse_and_recover
from vademecum.generative.pictures.few_steps import ddim_steps_against_quality

__all__ = [
    "a_diffusion_runs_backwards",
    "a_flow_bends_the_plane",
    "ddim_steps_against_quality",
    "latent_plane",
    "modes_collapse_and_recover",
]
