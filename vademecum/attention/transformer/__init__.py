"""Transformers: encoders, decoders, and the two together."""

from vademecum.attention.transformer.decoder import TransformerDecoder
from vademecum.attention.transformer.encoder import TransformerEncoder
from vademecum.attention.transformer.sequence_pair import Transformer

__all__ = ["Transformer", "TransformerDecoder", "TransformerEncoder"]
