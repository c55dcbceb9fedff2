"""Pictures of this room: word vectors, next tokens, a model that learns."""

from vademecum.language.pictures.word_map import learned_words

__all__ = ["learned_words"]
