"""What the course claims of word vectors and language models."""

from vademecum.language.claims import (
    channels,
    company,
    costs,
    counted_models,
    distances,
    gaps,
    in_context,
    information,
    letters,
    noise_optima,
    noise_words,
    one_sided,
    pair_losses,
    pieces,
    predicted_words,
    reuse,
    sentences,
    spectra,
    surprise,
    two_sided,
    vectors,
    word_windows,
)

__all__ = [
    "information", "distances", "company", "vectors", "spectra", "costs", "counted_models",
    "predicted_words", "word_windows", "pair_losses", "noise_words", "noise_optima", "channels",
    "surprise", "pieces", "reuse", "in_context", "sentences", "letters", "two_sided", "gaps",
    "one_sided",
]  # fmt: skip
