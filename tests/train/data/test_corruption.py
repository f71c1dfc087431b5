"""What is hidden of sequences, and how it depends on their position alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_runtime.core.config.objectives import spans_of
from trainer_runtime.train.attempt.objective import IGNORED
from trainer_runtime.train.data.batches import Shard
from trainer_runtime.train.data.corruption import (
    VALIDATION,
    CorruptedSequences,
    SpanDenoising,
    TokenMasking,
)
from trainer_runtime.train.data.sequences import HeldOutSequences

END, MASK, FIRST = 256, 257, 258
SENTINELS = tuple(range(300, 400))
MASKING = TokenMasking(mask=MASK, first=FIRST, end=END, vocab_size=259, share=0.15)
DENOISING = SpanDenoising(sentinels=SENTINELS, start=259, end=END, share=0.15)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_fifteen_percent_are_hidden_eighty_ten_and_ten() -> None:
    tokens = torch.randint(0, 256, (200_000,), generator=generator(0))
    item = MASKING(tokens, generator(1))
    inputs, labels = item["input_ids"], item["labels"]
    hidden = labels != IGNORED
    assert int(hidden.sum()) == 30_000
    assert inputs[0] == FIRST
    original = torch.cat((torch.tensor([FIRST]), tokens[:-1]))
    assert torch.equal(inputs[~hidden], original[~hidden])
    assert torch.equal(labels[hidden], original[hidden])
    masked, kept = inputs[hidden] == MASK, inputs[hidden] == original[hidden]
    assert float(masked.float().mean()) == pytest.approx(0.8, abs=0.01)
    # One of 259 random tokens is the original.
    assert float(kept.float().mean()) == pytest.approx(0.1 + 0.1 / 259, abs=0.01)


def test_ends_of_texts_and_the_first_token_are_never_hidden() -> None:
    tokens = torch.tensor([1, END, 2, END, END, 3, END, 4] * 8)
    for seed in range(20):
        labels = MASKING(tokens, generator(seed))["labels"]
        assert int((labels != IGNORED).sum()) == round(0.15 * 64)
        assert not {FIRST, END} & set(labels.tolist())
    of_ends = MASKING(torch.full((8,), END), generator(0))
    assert of_ends["labels"].tolist() == [IGNORED] * 8


@pytest.mark.parametrize("length", [2, 5, 17, 128, 512])
def test_inputs_and_targets_hold_the_sequence(length: int) -> None:
    tokens = torch.randint(0, 256, (length,), generator=generator(length))
    spans = spans_of(length, 0.15)
    for seed in range(10):
        item = DENOISING(tokens, generator(seed))
        inputs, labels = item["input_ids"].tolist(), item["labels"].tolist()
        assert (len(inputs), len(labels)) == (spans.inputs, spans.targets)
        assert inputs[-1] == labels[-1] == END
        assert item["decoder_input_ids"].tolist() == [259, *labels[:-1]]
        assert [token for token in inputs if token >= 300] == list(SENTINELS[: spans.number])
        assert restored(inputs[:-1], labels[:-1]) == tokens.tolist()


def restored(inputs: list[int], targets: list[int]) -> list[int]:
    """The sequence, with each sentinel of the inputs replaced by its span of the targets."""
    hidden: dict[int, list[int]] = {}
    for token in targets:
        if token >= 300:
            span = hidden.setdefault(token, [])
        else:
            span.append(token)
    return [token for one in inputs for token in hidden.get(one, [one])]


def test_spans_are_counted_as_by_t5() -> None:
    # T5's own numbers: 568 tokens become inputs of 512 and targets of 114.
    assert (spans_of(568, 0.15).inputs, spans_of(568, 0.15).targets) == (512, 114)


@pytest.fixture
def held_out(tmp_path: Path) -> HeldOutSequences:
    file = tmp_path / "val.bin"
    file.write_bytes(bytes(value for pair in range(800) for value in (pair % 251, 0)))
    return HeldOutSequences(Shard.open(file, 800, 64), 2, 4)


@pytest.mark.parametrize("corrupt", [MASKING, DENOISING])
def test_a_sequence_is_hidden_alike_whenever_it_is_read(
    held_out: HeldOutSequences, corrupt: Any
) -> None:
    first, second = (CorruptedSequences(held_out, corrupt, 7, VALIDATION) for _ in range(2))
    assert len(first) == len(held_out)
    forwards = [first[index] for index in range(len(first))]
    backwards = [second[index] for index in reversed(range(len(second)))][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    for seed in (8, 7):  # another seed, and the training's part
        others = CorruptedSequences(held_out, corrupt, seed)
        labels = [others[index]["labels"] for index in range(len(others))]
        pairs = zip(forwards, labels, strict=True)
        assert not any(torch.equal(one["labels"], other) for one, other in pairs)
