"""Networks that read and write text: GPT, BERT and ELMo."""

from vademecum.language.networks.gpt import GPT

__all__ = ["GPT"]
