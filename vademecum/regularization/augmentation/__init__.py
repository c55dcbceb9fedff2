"""More examples from those at hand: images changed at random, each in its own way.

All of them can be compiled, `torch.compile(fullgraph=True)`, with torch's global generator: its
compiler cannot trace calls with a `torch.Generator` of one's own, and breaks the graph there or,
with `fullgraph=True`, refuses. Seed by `torch.manual_seed` then.
"""

from vademecum.regularization.augmentation._batches import Augmented
from vademecum.regularization.augmentation.affine_maps import random_affine
from vademecum.regularization.augmentation.colours import colour_jitter, pca_jitter
from vademecum.regularization.augmentation.dependence import effective_sample_size
from vademecum.regularization.augmentation.erasures import random_erasing
from vademecum.regularization.augmentation.mixtures import Mixed, cutmix, mixup
from vademecum.regularization.augmentation.reflections import random_flip
from vademecum.regularization.augmentation.resizing import random_resized_crop
from vademecum.regularization.augmentation.windows import random_crop

__all__ = [
    "Augmented",
    "Mixed",
    "colour_jitter",
    "cutmix",
    "effective_sample_size",
    "mixup",
    "pca_jitter",
    "random_affine",
    "random_crop",
    "random_erasing",
    "random_flip",
    "random_resized_crop",
]
