"""What the course claims of word vectors and language models."""

from vademecum.language.claims import (
    company,
    costs,
    counted_models,
    distances,
    information,
    spectra,
    vectors,
)

__all__ = [
    "information", "distances", "company", "vectors", "spectra", "costs", "counted_models",
]  # fmt: skip
    noise_optima,
    noise_words,
    pair_losses,
    predicted_words,
    word_windows,
)

__all__ = ["predicted_words", "word_windows", "pair_losses", "noise_words", "noise_optima"]
from vademecum.language.claims import channels, in_context, pieces, reuse, surprise

__all__ = ["channels", "surprise", "pieces", "reuse", "in_context"]
