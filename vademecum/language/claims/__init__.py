"""What the course claims of word vectors and language models."""

from vademecum.language.claims import (
    channels,
    company,
    costs,
    counted_models,
    distances,
    in_context,
    information,
    noise_optima,
    noise_words,
    pair_losses,
    pieces,
    predicted_words,
    reuse,
    spectra,
    surprise,
    gaps,
    information,
    letters,
    one_sided,
    sentences,
    spectra,
    two_sided,
    vectors,
    word_windows,
)

__all__ = [
    "information", "distances", "company", "vectors", "spectra", "costs", "counted_models",
    "predicted_words", "word_windows", "pair_losses", "noise_words", "noise_optima", "channels",
    "surprise", "pieces", "reuse", "in_context",
    "sentences", "letters", "two_sided", "gaps", "one_sided",
]  # fmt: skip
