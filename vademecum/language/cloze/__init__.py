"""Texts with gaps: hiding tokens, pairs of sentences, and how well gaps are filled."""

from vademecum.language.cloze.hidden_tokens import MaskedTokens, mask_tokens
from vademecum.language.cloze.masked_scores import PseudoLikelihood, pseudo_likelihood
from vademecum.language.cloze.sentence_pairs import NSPPairs, PairInput, nsp_pairs, pair_input

__all__ = [
    "MaskedTokens", "NSPPairs", "PairInput", "PseudoLikelihood", "mask_tokens", "nsp_pairs",
    "pair_input", "pseudo_likelihood",
]  # fmt: skip
