"""Recipes for texts: the next byte, hidden bytes, kinds of text, words, and answers.

Python's own sources are the default, which every reader has; `--data FILE` takes any text.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from vademecum.train.recipes._task import Task

__all__ = ["TextModel", "bert", "gpt", "prose", "seq2seq", "skipgram"]


@dataclass(frozen=True)
class TextModel:
    """The size of a transformer.

    Attributes:
        width: How wide a token is.
        layers: How many blocks there are.
        heads: How many heads attend in each.
        context: How many bytes it sees at once.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 32


_SMALL = TextModel()


def gpt(*, data: str = "stdlib_text", model: TextModel = _SMALL) -> Task:
    """Predict each next byte of a text: a small GPT.

    Args:
        data: stdlib_text, Python's own sources, or the path of a text file.
        model: The size of the transformer.
    """
    from vademecum.language import GPT
    from vademecum.train import Tokens
    from vademecum.train.recipes import _text_losses as parts
    from vademecum.train.recipes._objective import Objective
    from vademecum.train.recipes._texts import numbers, text_bytes

    text = text_bytes(data, least=model.context + 1)
    net = GPT(V=256, d=model.width, layers=model.layers, heads=model.heads, context=model.context)
    settings = {"optimizer": "muon", "lr": 1e-2, "weight_decay": 0.1, "batch_size": 64,
                "steps": 500, "schedule": "cosine", "warmup": 50, "clip": 1.0,
                "evaluate_every": 250}  # fmt: skip
    windows = Tokens(numbers(text.train), length=model.context + 1)
    judge = parts.bits(numbers(text.test), 200, model.context + 1)
    return Task(Objective(net, parts.next_loss), windows, judge, "bits per byte", False, settings)


def bert(*, data: str = "stdlib_text", model: TextModel = _SMALL) -> Task:
    """Fill in hidden bytes from both sides: BERT's pre-training.

    `vade train prose --from RUN --head new` goes on from there with labels.

    Args:
        data: stdlib_text, Python's own sources, or the path of a text file.
        model: The size of the transformer.
    """
    from vademecum.language import BERT
    from vademecum.train import Tokens
    from vademecum.train.recipes import _text_losses as parts
    from vademecum.train.recipes._objective import Objective
    from vademecum.train.recipes._texts import numbers, text_bytes

    text = text_bytes(data, least=model.context)
    net = BERT(V=parts.MASK + 1, d=model.width, layers=model.layers, heads=model.heads,
               context=model.context, pretraining=True)  # fmt: skip
    for unused in (net.cls.seq_relationship, net.bert.pooler):  # of pairs of sentences
        unused.requires_grad_(False)
    settings = {"optimizer": "muon", "lr": 3e-2, "weight_decay": 0.01, "batch_size": 64,
                "steps": 600, "schedule": "cosine", "warmup": 50, "clip": 1.0,
                "evaluate_every": 200}  # fmt: skip
    windows = Tokens(numbers(text.train), length=model.context)
    judge = parts.filled(numbers(text.test), 300, model.context)
    return Task(Objective(net, parts.masked_loss), windows, judge, "filled rightly", True, settings)


def prose(
    *,
    data: Literal["stdlib_text"] = "stdlib_text",
    model: TextModel = _SMALL,
    labels: int = 300,
) -> Task:
    """Tell prose from code in Python's sources, by few labels: what BERT is fine-tuned for.

    Args:
        data: Python's own sources, whose comments and docstrings are known as such.
        model: The size of the transformer.
        labels: How many labelled windows to train on.
    """
    from torch.nn import functional as F

    from vademecum.language import BERT
    from vademecum.train import Supervised
    from vademecum.train.recipes import _image_losses as judges
    from vademecum.train.recipes import _text_losses as parts
    from vademecum.train.recipes._texts import prose_windows

    encoder = BERT(V=parts.MASK + 1, d=model.width, layers=model.layers, heads=model.heads,
                   context=model.context)  # fmt: skip
    encoder.pooler.requires_grad_(False)
    objective = Supervised(parts.TextClassifier(encoder, 2), F.cross_entropy)
    settings = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01, "batch_size": 32,
                "steps": 200, "schedule": "cosine", "warmup": 20, "evaluate_every": 50}  # fmt: skip
    windows = prose_windows(labels, model.context, data=data, split="train")
    judge = judges.accuracy(prose_windows(2000, model.context, data=data, split="test"))
    return Task(objective, windows, judge, "accuracy", True, settings)


def skipgram(
    *,
    data: str = "stdlib_text",
    width: int = 32,
    vocabulary: int = 2000,
    window: int = 2,
    negatives: int = 5,
) -> Task:
    """Learn a vector for each word that tells its neighbours from noise.

    The estimator `vademecum.language.SkipGram` learns the same faster, without checkpoints.

    Args:
        data: stdlib_text, Python's own sources, or the path of a text file.
        width: How many entries a vector has.
        vocabulary: How many words have vectors, the most frequent ones.
        window: How far apart neighbours may be.
        negatives: How many words of the noise each pair is set against.
    """
    from vademecum.train.recipes import _text_losses as parts
    from vademecum.train.recipes._objective import Objective
    from vademecum.train.recipes._texts import text_bytes, word_pairs

    found = word_pairs(text_bytes(data, least=20), vocabulary=vocabulary, window=window)
    loss = partial(parts.word_loss, negatives=negatives)
    objective = Objective(parts.Words(found.counts, width), loss)
    settings = {"optimizer": "adam", "lr": 5e-2, "batch_size": 4096, "steps": 400,
                "schedule": "linear", "evaluate_every": 100}  # fmt: skip
    judge = parts.told_from_noise(found.test)
    return Task(objective, found.train, judge, "told from noise", True, settings)


def seq2seq(
    *,
    task: Literal["reverse", "add"] = "reverse",
    length: int = 6,
    attention: Literal["none", "dot", "additive"] = "dot",
    cell: Literal["gru", "lstm"] = "gru",
    width: int = 64,
) -> Task:
    """Answer a sequence by a sequence: a row of digits backwards, or the sum of two numbers.

    Args:
        task: What to answer.
        length: How many digits a row or a number has at most.
        attention: How the decoder looks back.
        cell: The kind of the recurrent networks.
        width: Their width.
    """
    from vademecum.recurrence import Seq2Seq
    from vademecum.train.recipes import _text_losses as parts
    from vademecum.train.recipes._objective import Objective
    from vademecum.train.recipes._texts import problems

    net = Seq2Seq(12, 12, dimension=width // 2, width=width, cell=cell, attention=attention,
                  padding=0)  # fmt: skip
    settings = {"optimizer": "adamw", "lr": 5e-3, "weight_decay": 0.0, "batch_size": 128,
                "steps": 400, "schedule": "cosine", "warmup": 20, "clip": 1.0,
                "evaluate_every": 100}  # fmt: skip
    x, y = problems(task, 20_000, length)
    held = len(x) // 20
    judge, data = parts.right_answers(x[:held], y[:held]), (x[held:], y[held:])
    return Task(Objective(net, parts.answer_loss), data, judge, "right answers", True, settings)
