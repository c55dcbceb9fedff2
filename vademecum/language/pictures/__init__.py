"""Pictures of this room: word vectors, next tokens, a model that learns."""

from vademecum.language.pictures.learning import perplexity_while_learning
from vademecum.language.pictures.next_tokens import next_tokens
from vademecum.language.pictures.word_map import learned_words

__all__ = ["learned_words", "next_tokens", "perplexity_while_learning"]
