"""Word vectors that are learnt by prediction, and the files in which they are kept."""

from vademecum.language.word2vec.prediction import SkipGram
from vademecum.language.word2vec.vector_files import read_word2vec, write_word2vec
from vademecum.language.word2vec.vocabularies import Neighbours, WordVectors

__all__ = ["Neighbours", "SkipGram", "WordVectors", "read_word2vec", "write_word2vec"]
