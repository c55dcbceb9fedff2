"""Models of the library transformers, small and with random weights."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bench.outside.cases import DIGITS, EXAMPLES, Case, Subject

__all__ = ["cases"]

N, T, V = 3, 5, 11  # examples, tokens of each, words
DOUBLE = torch.float64
SMALL: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT: dict[str, Any] = {
    **SMALL,
    "vocab_size": V,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}


def _model(name: str, dtype: torch.dtype = DOUBLE, /, **options: Any) -> Any:
    """A model by the name of its class, with the configuration that belongs to it."""
    library = importlib.import_module("transformers")
    kind = getattr(library, name)
    return kind(kind.config_class(**options)).to(dtype).train()


def _tokens(*, short: bool = True) -> Any:
    """Sequences of tokens with an attention mask, as tokenizers give them."""
    encoding = importlib.import_module("transformers").BatchEncoding
    mask = torch.ones(N, T, dtype=torch.long)
    if short:
        mask[1, -1:] = mask[2, -2:] = 0
    return encoding({"input_ids": torch.randint(2, V, (N, T)), "attention_mask": mask})


def _classifies(name: str, dtype: torch.dtype = DOUBLE, **options: Any) -> Callable[[], Subject]:
    def make() -> Subject:
        model = _model(name, dtype, num_labels=2, **options)
        return Subject(model, _tokens(), torch.tensor([0, 1, 1]), F.cross_entropy, wrt="")

    return make


def _next_token(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z[:, :-1].flatten(0, 1), y[:, 1:].flatten())


def _writes(name: str, dtype: torch.dtype = DOUBLE, tokens: int = T, **options: Any) -> Any:
    def make() -> Subject:
        x = {"input_ids": torch.randint(2, V, (N, tokens)), "use_cache": False}
        model = _model(name, dtype, pad_token_id=0, bos_token_id=1, eos_token_id=1, **options)
        return Subject(model, x, x["input_ids"], _next_token, wrt="")

    return make


def _embedded() -> Subject:
    model = _model("BertForSequenceClassification", **TEXT, num_labels=2)
    x = {"inputs_embeds": torch.randn(N, T, 8, dtype=DOUBLE),
         "attention_mask": _tokens()["attention_mask"]}  # fmt: skip
    return Subject(model, x, torch.tensor([0, 1, 1]), F.cross_entropy, wrt="inputs_embeds")


def _whole() -> Subject:
    """A loss that takes all that a model gives, for targets that are numbers."""

    def loss(z: Any, y: Tensor) -> Tensor:
        return (z.pooler_output - y).square().mean() + z.last_hidden_state.mean()

    model, y = _model("BertModel", **TEXT), torch.randn(N, 8, dtype=DOUBLE)
    return Subject(model, _tokens(), y, loss, output="pooler_output",
                   read=lambda z: z.pooler_output, wrt="", whole=None)  # fmt: skip


def _labelled() -> Subject:
    """The model computes its loss itself."""
    x = {**_tokens(), "labels": torch.tensor([0, 1, 1])}
    model = _model("BertForSequenceClassification", **TEXT, num_labels=2)
    return Subject(model, x, x["labels"], lambda z, y: z.loss, wrt="", whole=lambda z: z)


def _translates() -> Subject:
    model = _model("T5ForConditionalGeneration", vocab_size=V, d_model=8, d_kv=4, d_ff=12,
                   num_layers=1, num_heads=2, decoder_start_token_id=0)  # fmt: skip
    y = torch.randint(2, V, (N, 3))
    x = {**_tokens(), "decoder_input_ids": y, "use_cache": False}
    return Subject(model, x, y, _next_token, wrt="")


def _sees(name: str, size: int = 16, **options: Any) -> Callable[[], Subject]:
    def make() -> Subject:
        x = torch.randn(N, 3, size, size, dtype=DOUBLE)
        model = _model(name, num_labels=2, **options)
        return Subject(model, x, torch.tensor([0, 1, 1]), F.cross_entropy)

    return make


def _hears() -> Subject:
    model = _model(
        "Wav2Vec2ForSequenceClassification", **SMALL, vocab_size=V, intermediate_size=12,
        conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(6, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, classifier_proj_size=6,
        apply_spec_augment=False, num_labels=2,
    )  # fmt: skip
    x = torch.randn(N, 64, dtype=DOUBLE)
    return Subject(model, x, torch.tensor([0, 1, 1]), F.cross_entropy)


GPT: dict[str, Any] = {"vocab_size": V, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 16}
LLAMA: dict[str, Any] = {**TEXT, "num_key_value_heads": 1}
ROPE = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
OBJECT = {"backprop": "gives an object", "fit_readout": "gives an object",
          "tape": "gives an object"}  # fmt: skip


def cases() -> list[Case]:
    """Models of text, images and sound."""
    importlib.import_module("transformers")
    resnet = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]}
    return [
        Case("bert", _classifies("BertForSequenceClassification", **TEXT)),
        Case("bert in float32", _classifies("BertForSequenceClassification", torch.float32, **TEXT),
             coarse=torch.float32),
        Case("bert of embeddings", _embedded),
        Case("bert, a loss of all it gives", _whole),
        Case("bert, its own loss", _labelled,  # which is one for all examples
             refused=dict.fromkeys(EXAMPLES, "must give")),
        Case("distilbert", _classifies("DistilBertForSequenceClassification", vocab_size=V, dim=8,
                                       n_layers=2, n_heads=2, hidden_dim=12,
                                       max_position_embeddings=16)),
        Case("roberta", _classifies("RobertaForSequenceClassification", **TEXT)),
        Case("gpt2", _writes("GPT2LMHeadModel", **GPT)),
        Case("gpt2 in bfloat16", _writes("GPT2LMHeadModel", torch.bfloat16, **GPT),
             coarse=torch.bfloat16, refused=DIGITS),
        Case("llama", _writes("LlamaForCausalLM", **LLAMA), coarse=torch.float32),
        Case("llama, dynamic rope", coarse=torch.float32, make=_writes(
            "LlamaForCausalLM", tokens=24, **LLAMA, rope_parameters=ROPE)),
        Case("opt", _writes("OPTForCausalLM", **SMALL, vocab_size=V, ffn_dim=12,
                            max_position_embeddings=16, word_embed_proj_dim=8)),
        Case("t5", _translates, coarse=torch.float32),
        Case("vit", _sees("ViTForImageClassification", **SMALL, intermediate_size=12,
                          image_size=16, patch_size=8), skip=OBJECT),
        Case("resnet", _sees("ResNetForImageClassification", **resnet, layer_type="basic"),
             kinks=True, skip=OBJECT),
        Case("mobilenet_v2", _sees("MobileNetV2ForImageClassification", 32, depth_multiplier=0.1,
                                   min_depth=4, image_size=32,
                                   finegrained_output=False), kinks=True, skip=OBJECT),
        Case("regnet", _sees("RegNetForImageClassification", **resnet, layer_type="x",
                             groups_width=2), kinks=True, skip=OBJECT),
        Case("convnext", _sees("ConvNextForImageClassification", num_stages=2, hidden_sizes=[4, 8],
                               depths=[1, 1]), skip=OBJECT),
        Case("wav2vec2", _hears, skip=OBJECT, differences=True),
    ]  # fmt: skip
