"""Files of GPT-2 and BERT in every spelling, and damaged ones, which leave a model as it was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vademecum.language import BERT, GPT
from vademecum.models import load_weights, save_weights

V, D, H, T = 13, 8, 20, 6
State = dict[str, Tensor]


def gpt() -> GPT:
    return GPT(V=V, d=D, layers=2, heads=2, context=T, hidden=H).eval()


def bert(*, pretraining: bool = False) -> BERT:
    sizes: dict[str, Any] = {"V": V, "d": D, "layers": 2, "heads": 2, "context": T, "hidden": H}
    return BERT(**sizes, pretraining=pretraining).eval()


def affine(name: str, inputs: int, outputs: int, *, turned: bool = False) -> State:
    shape = (inputs, outputs) if turned else (outputs, inputs)
    return {f"{name}.weight": torch.randn(shape), f"{name}.bias": torch.randn(outputs)}


def norm(name: str) -> State:
    return {f"{name}.weight": torch.randn(D), f"{name}.bias": torch.randn(D)}


def gpt_file() -> State:
    """What is published as "gpt2": no prefix, no head, matrices (in, out), masks."""
    file = {"wte.weight": torch.randn(V, D), "wpe.weight": torch.randn(T, D)}
    for i in range(2):
        at = f"h.{i}"
        file |= norm(f"{at}.ln_1") | norm(f"{at}.ln_2")
        file[f"{at}.attn.bias"] = torch.ones(T, T).tril()[None, None]
        file |= affine(f"{at}.attn.c_attn", D, 3 * D, turned=True)
        file |= affine(f"{at}.attn.c_proj", D, D, turned=True)
        file |= affine(f"{at}.mlp.c_fc", D, H, turned=True)
        file |= affine(f"{at}.mlp.c_proj", H, D, turned=True)
    return file | norm("ln_f")


def bert_file() -> State:
    """What is published as "bert-base-uncased": `bert.`, gamma and beta, both heads."""
    file = {
        "bert.embeddings.word_embeddings.weight": torch.randn(V, D),
        "bert.embeddings.position_embeddings.weight": torch.randn(T, D),
        "bert.embeddings.token_type_embeddings.weight": torch.randn(2, D),
    }
    file |= norm("bert.embeddings.LayerNorm")
    for i in range(2):
        at = f"bert.encoder.layer.{i}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            file |= affine(f"{at}.attention.{name}", D, D)
        file |= norm(f"{at}.attention.output.LayerNorm") | norm(f"{at}.output.LayerNorm")
        file |= affine(f"{at}.intermediate.dense", D, H) | affine(f"{at}.output.dense", H, D)
    file |= affine("bert.pooler.dense", D, D)
    file["cls.predictions.bias"] = torch.randn(V)
    file |= affine("cls.predictions.transform.dense", D, D)
    file |= norm("cls.predictions.transform.LayerNorm")
    file["cls.predictions.decoder.weight"] = file["bert.embeddings.word_embeddings.weight"].clone()
    file |= affine("cls.seq_relationship", D, 2)
    return renamed(
        file, (r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta")
    )


def renamed(file: State, *rules: tuple[str, str]) -> State:
    for rule, new in rules:
        file = {re.sub(rule, new, name): tensor for name, tensor in file.items()}
    return file


def without(file: State, *names: str) -> State:
    return {name: x for name, x in file.items() if not any(re.search(rule, name) for rule in names)}


def plain(file: State) -> State:
    return renamed(file, (r"\.gamma$", ".weight"), (r"\.beta$", ".bias"))


GPT_SPELLINGS: dict[str, Callable[[State], State]] = {
    "as published": lambda file: file,
    "with a prefix": lambda file: renamed(file, ("^", "transformer.")),
    "without masks": lambda file: without(file, r"\.attn\.bias$"),
    "with a head": lambda file: (
        renamed(file, ("^", "transformer.")) | {"lm_head.weight": file["wte.weight"].clone()}
    ),
    "with two masks": lambda file: file | {"h.1.attn.masked_bias": torch.tensor(-1e4)},
    "in double precision": lambda file: {name: x.double() for name, x in file.items()},
}
BERT_SPELLINGS: dict[str, Callable[[State], State]] = {
    "as published": lambda file: file,
    "weight and bias": plain,
    "with positions": lambda file: file | {"bert.embeddings.position_ids": torch.arange(T)[None]},
    "with both constants": lambda file: (
        plain(file) | {"cls.predictions.decoder.bias": file["cls.predictions.bias"].clone()}
    ),
    "without the decoder": lambda file: without(file, r"decoder\.weight$"),
    "without bert.": lambda file: renamed(file, (r"^bert\.", "")),
}
HEADLESS = {
    "without heads": lambda file: without(file, r"^cls\."),
    "bare": lambda file: plain(renamed(without(file, r"^cls\."), (r"^bert\.", ""))),
}


@pytest.mark.parametrize("spelling", GPT_SPELLINGS)
def test_files_of_gpt_load_in_every_spelling(spelling, tmp_path):
    file, model = gpt_file(), gpt()
    save_file(GPT_SPELLINGS[spelling](file), tmp_path / "a.safetensors")
    load_weights(model, tmp_path / "a.safetensors")
    for name, tensor in without(file, r"\.attn\.bias$").items():
        assert torch.equal(model.transformer.get_parameter(name), tensor)
    assert model.lm_head.weight is model.transformer.wte.weight


@pytest.mark.parametrize("pretraining", [False, True])
@pytest.mark.parametrize("spelling", BERT_SPELLINGS | HEADLESS)
def test_files_of_bert_load_in_every_spelling(spelling, pretraining, tmp_path):
    file, model = bert_file(), bert(pretraining=pretraining)
    save_file((BERT_SPELLINGS | HEADLESS)[spelling](file), tmp_path / "a.safetensors")
    if pretraining and spelling in HEADLESS:
        with pytest.raises(
            ValueError, match=r"missing cls\.predictions\.bias, cls\.predictions\.tr"
        ):
            load_weights(model, tmp_path / "a.safetensors")
        return
    load_weights(model, tmp_path / "a.safetensors")
    own = model.state_dict()
    for name, tensor in plain(file).items():
        if pretraining:
            assert torch.equal(own[name], tensor)
        elif name.startswith("bert."):
            assert torch.equal(own[name.removeprefix("bert.")], tensor)


def changed(name: str, change: Callable[[Tensor], Any]) -> Callable[[State], dict[str, Any]]:
    return lambda file: file | {name: change(file[name])}


Damage = Callable[[State], dict[str, Any]]
QKV = "h.1.attn.c_attn.weight"
DAMAGED_GPT: list[tuple[Damage, str]] = [
    (lambda f: without(f, r"^wpe"), "missing transformer.wpe.weight"),
    (lambda f: without(f, r"^h\.1\.ln_2\.bias"), "missing transformer.h.1.ln_2.bias"),
    (
        lambda f: without(f, r"^h\.1\."),
        "missing transformer.h.1.ln_1.weight, transformer.h.1.ln_1.",
    ),
    (lambda f: f | {"h.2.ln_1.bias": torch.ones(D)}, "unknown transformer.h.2.ln_1.bias"),
    (lambda f: f | {"extra": torch.ones(D)}, "unknown extra"),
    (changed(QKV, lambda x: x.T.contiguous()), "has the shape (24, 8) and must have (8, 24)"),
    (
        changed("wte.weight", lambda x: x[:-1].clone()),
        "has the shape (12, 8) and must have (13, 8)",
    ),
    (changed("wpe.weight", lambda x: x[:3].clone()), "has the shape (3, 8) and must have (6, 8)"),
    (changed("ln_f.bias", lambda x: x.long()), "has the dtype torch.int64"),
    (changed("ln_f.bias", lambda x: x[None]), "has the shape (1, 8) and must have (8,)"),
    (lambda f: f | {"lm_head.weight": torch.ones(V, D)}, "are one tensor in the model and differ"),
    (lambda f: f | {"transformer.ln_f.bias": torch.ones(D)}, "are both transformer.ln_f.bias"),
    (lambda f: renamed(f, (r"c_attn", "attn")), "unknown transformer.h.0.attn.attn.weight"),
]
WORDS, QUERY = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.attention.self.query"
DAMAGED_BERT: list[tuple[Damage, str]] = [
    (lambda f: without(f, "pooler"), "missing bert.pooler.dense.weight, bert.pooler.dense.bias"),
    (lambda f: without(f, "seq_rel"), "missing cls.seq_relationship.weight"),
    (lambda f: without(f, r"predictions\.bias"), "missing cls.predictions.bias"),
    (lambda f: without(f, r"layer\.0\.output\.LayerNorm\.beta"), "layer.0.output.LayerNorm.bias"),
    (changed(WORDS, lambda x: x + 1), "are one tensor in the model and differ"),
    (changed(WORDS, lambda x: x.T.contiguous()), "has the shape (8, 13) and must have (13, 8)"),
    (changed(f"{QUERY}.weight", lambda x: x[:4].clone()), "has the shape (4, 8)"),
    (changed(f"{QUERY}.bias", lambda x: x > 0), "has the dtype torch.bool"),
    (lambda f: renamed(f, (r"self\.query", "self.q")), "unknown bert.encoder.layer.0.attention"),
    (lambda f: renamed(f, (r"^bert\.", "roberta.")), "unknown roberta.embeddings.L"),
    (lambda f: f | {"bert.embeddings.LayerNorm.weight": torch.ones(D)}, "are both bert.embeddings"),
]


def refuses(model: nn.Module, file: dict[str, Any], message: str, folder: Path) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(file, folder / "a.safetensors")
    with pytest.raises(ValueError, match=re.escape(message)):
        load_weights(model, folder / "a.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("damage", "message"), DAMAGED_GPT)
def test_damaged_files_of_gpt_are_refused(damage, message, tmp_path):
    refuses(gpt(), damage(gpt_file()), message, tmp_path)


@pytest.mark.parametrize(("damage", "message"), DAMAGED_BERT)
def test_damaged_files_of_bert_are_refused(damage, message, tmp_path):
    refuses(bert(pretraining=True), damage(bert_file()), message, tmp_path)


def test_all_damages_are_told_at_once():
    file = without(gpt_file(), "wpe") | {"extra": torch.ones(1), "ln_f.bias": torch.ones(3)}
    with pytest.raises(ValueError, match=r"missing transformer\.wpe\.weight; unknown extra; tr"):
        load_weights(gpt(), file)


@pytest.mark.parametrize("make", [gpt, bert, lambda: bert(pretraining=True)])
def test_save_weights_writes_every_name(make, tmp_path):
    model, other = make(), make()
    save_weights(model, tmp_path / "new" / "a.safetensors")
    file = load_file(tmp_path / "new" / "a.safetensors")
    assert list(file) == sorted(model.state_dict())
    other.load_state_dict(file, strict=True)
    tokens = torch.randint(V, (2, T))
    mine, theirs = model(tokens), other(tokens)
    assert torch.equal(*((x if isinstance(x, Tensor) else x.hidden) for x in (mine, theirs)))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.safetensors"]


def test_who_may_read_a_file_is_as_for_others(tmp_path):
    plain, ours = tmp_path / "plain", tmp_path / "a.safetensors"
    plain.touch()
    save_weights(gpt(), ours)
    assert ours.stat().st_mode == plain.stat().st_mode
    ours.chmod(0o600)
    save_weights(gpt(), ours)
    assert ours.stat().st_mode & 0o777 == 0o600
