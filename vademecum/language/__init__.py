"""Word vectors, language models, tokenisers, and how to measure them.

A word is known by the company it keeps: counts of co-occurrence, their *pointwise mutual
information* and the vectors that factorise it. A *language model* gives every sequence a
probability, one token after the other (`GPT`), or fills gaps from both sides (`BERT`); *perplexity*
tells how surprised it is by a text.
"""

from vademecum.language.association import pmi
from vademecum.language.channels import NoisyChannel, noisy_channel
from vademecum.language.cloze import (
    MaskedTokens,
    NSPPairs,
    PairInput,
    PseudoLikelihood,
    mask_tokens,
    nsp_pairs,
    pair_input,
    pseudo_likelihood,
)
from vademecum.language.eigenvectors_of_words import SpectralEmbedding
from vademecum.language.generation import Generated, generate, stream_tokens
from vademecum.language.logarithmic_counts import GloVe
from vademecum.language.networks import (
    BERT,
    GPT,
    BERTOutput,
    BERTPretraining,
    ELMo,
    ELMoOutput,
    ELMoPredictions,
    ELMoWords,
)
from vademecum.language.ngrams import NGramModel
from vademecum.language.preferences import (
    BradleyTerry,
    KLRegularizedPolicy,
    bradley_terry,
    kl_regularized_policy,
)
from vademecum.language.probes import LinearProbe, linear_probe
from vademecum.language.scoring import FewShot, Perplexity, bits_per_byte, few_shot, perplexity
from vademecum.language.subwords import train_tokenizer, wordpiece
from vademecum.language.windows import Cooccurrence, cooccurrence
from vademecum.language.word2vec import (
    Neighbours,
    SkipGram,
    WordVectors,
    read_word2vec,
    write_word2vec,
)

__all__ = [
    # networks
    "GPT", "BERT", "BERTOutput", "BERTPretraining", "ELMo", "ELMoOutput", "ELMoPredictions",
    "ELMoWords",
    # texts with gaps
    "MaskedTokens", "NSPPairs", "PairInput", "PseudoLikelihood", "mask_tokens", "nsp_pairs",
    "pair_input", "pseudo_likelihood",
    # words by their company
    "Cooccurrence", "GloVe", "SpectralEmbedding", "cooccurrence", "pmi",
    # language models
    "NGramModel",
    # texts as tokens, and from tokens
    "train_tokenizer", "wordpiece", "Generated", "generate", "stream_tokens",
    # how probable a text is
    "FewShot", "Perplexity", "bits_per_byte", "few_shot", "perplexity",
    # what layers know
    "LinearProbe", "linear_probe",
    # channels and preferences
    "NoisyChannel", "noisy_channel", "BradleyTerry", "KLRegularizedPolicy", "bradley_terry",
    "kl_regularized_policy",
    # word vectors
    "Neighbours", "SkipGram", "WordVectors", "read_word2vec", "write_word2vec",
]  # fmt: skip
