"""Text from a language model, token by token."""

from vademecum.language.generation.continuations import Generated, generate, stream_tokens

__all__ = ["Generated", "generate", "stream_tokens"]
