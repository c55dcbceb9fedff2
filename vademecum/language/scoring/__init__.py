"""How probable a language model finds texts: perplexity, bits a byte, answers in context."""

from vademecum.language.scoring.perplexities import Perplexity, bits_per_byte, perplexity
from vademecum.language.scoring.shots import FewShot, few_shot

__all__ = ["FewShot", "Perplexity", "bits_per_byte", "few_shot", "perplexity"]
