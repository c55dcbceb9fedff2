"""Networks that read and write text: GPT, BERT and ELMo."""

from vademecum.language.networks.bert import BERT, BERTOutput, BERTPretraining
from vademecum.language.networks.elmo import ELMo, ELMoOutput, ELMoPredictions, ELMoWords
from vademecum.language.networks.gpt import GPT

__all__ = [
    "BERT", "GPT", "BERTOutput", "BERTPretraining", "ELMo", "ELMoOutput", "ELMoPredictions",
    "ELMoWords",
]  # fmt: skip
