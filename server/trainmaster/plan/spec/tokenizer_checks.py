"""Checks the tokenizer of a spec: none, one that the host trains, or an encoding of tiktoken."""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.config.tokenizer_training import KINDS, LARGEST_SIZE
from trainer_runtime.core.files.tiktoken_encodings import ENCODINGS, PREFIX, encoding_name
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.data import TrainedTokenizerSpec
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.frameworks import FRAMEWORKS, framework_of, method_of

_FIELD = "data.tokenizer"


def tokenizer_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """What is wrong with `data.tokenizer` beside what only the files can show."""
    named = spec.data.tokenizer
    if isinstance(named, TrainedTokenizerSpec) or spec.data.trained_tokenizer is not None:
        yield from _training_problems(spec)
        return
    if named == "none":
        yield from _problems_of_none(spec)
    elif named in KINDS:
        yield wrong_value(
            _FIELD,
            f"is {named}, which is trained to a size.",
            f"Give it as {{train: {named}, size: 32000}}, or name a folder as ./{named}.",
        )
    elif named.startswith(PREFIX) and encoding_name(named) not in ENCODINGS:
        yield wrong_value(
            _FIELD,
            f"is {named!r}, and tiktoken has no such encoding of text.",
            f"Give {PREFIX}NAME with one of {', '.join(ENCODINGS)}.",
        )


def _problems_of_none(spec: TrainingSpec) -> Iterator[Problem]:
    if not framework_of(spec).trains_without_tokenizer or spec.data.formats - {"tokens"}:
        able = [name for name, record in FRAMEWORKS.items() if record.trains_without_tokenizer]
        yield wrong_value(
            _FIELD,
            f"is none, which is for {' and '.join(able)} on sources of format tokens alone.",
            "Name the folder or hub name of a tokenizer, or leave it out.",
        )


def _training_problems(spec: TrainingSpec) -> Iterator[Problem]:
    yield from _size_problems(spec)
    if spec.model.path is not None or spec.model.hub is not None:
        yield wrong_value(
            _FIELD,
            "is trained on the sources, but the model has weights for other tokens.",
            "Set data.tokenizer to auto, which is the model's own.",
        )
    elif method_of(spec) != "pretrain":
        yield wrong_value(
            _FIELD,
            f"is trained on the sources, which {method_of(spec)} reads as rows.",
            "Name a tokenizer that is there, such as final/ of a pretraining that trained one.",
        )
    elif "tokens" in spec.data.formats:
        yield wrong_value(
            _FIELD,
            "is trained on texts, but a source has format tokens: these were cut by another one.",
            "Name the tokenizer that cut them, or give the texts.",
        )
    elif spec.data.prepare in ("stream", "here"):
        yield wrong_value(
            "data.prepare",
            f"is {spec.data.prepare}, but the tokenizer is trained where shards are cut, on the "
            "host.",
            "Set data.prepare to box, or to auto.",
        )


def _size_problems(spec: TrainingSpec) -> Iterator[Problem]:
    trained = spec.data.trained_tokenizer
    if trained is None:
        return
    kind = KINDS[trained.train]
    if trained.size is None:
        yield wrong_value(
            f"{_FIELD}.size",
            f"is missing, and {trained.train} has no usual one.",
            "Give the number of tokens, for example 32000.",
        )
    elif not kind.least <= trained.size <= LARGEST_SIZE:
        yield wrong_value(
            f"{_FIELD}.size",
            f"is {trained.size:,}, but {trained.train} takes {kind.least:,} to {LARGEST_SIZE:,} "
            f"tokens: at least {kind.holds}.",
            "Give a size between these.",
        )
