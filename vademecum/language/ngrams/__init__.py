"""Models that look a few tokens back: counted n-grams, and what to do about those never seen."""

from vademecum.language.ngrams.model import NGramModel

__all__ = ["NGramModel"]
