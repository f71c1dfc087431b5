from __future__ import annotations

import array
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_runtime.train.data.batches import (
    Corpus,
    Shard,
    ShardsError,
    TrainingData,
    validation_batches,
)

SEQ_LEN = 4


def entry_of(folder: Path, sources: Mapping[str, int]) -> Corpus:
    """A prepared entry; token i of a training shard is i, of a validation shard 40,000 + i."""
    described = []
    for name, tokens in sources.items():
        parts = {}
        for split, first in (("train", 0), ("val", 40_000)):
            file = f"{split}-{name}.bin"
            (folder / file).write_bytes(array.array("H", range(first, first + tokens)).tobytes())
            parts[split] = {"file": file, "tokens": tokens}
        described.append({"name": name, **parts})
    meta = {"v": 1, "seq_len": SEQ_LEN, "vocab_size": 65536, "sources": described}
    (folder / "meta.json").write_text(json.dumps(meta))
    return Corpus.open(folder, list(sources), SEQ_LEN)


def batches(data: TrainingData, count: int, size: int = 2) -> list[list[list[int]]]:
    return [data.next_batch(size)[0].tolist() for _ in range(count)]


def test_targets_are_the_inputs_shifted_by_one(tmp_path: Path) -> None:
    data = TrainingData(entry_of(tmp_path, {"a": 100}), [1.0], seed=1)
    inputs, targets = data.next_batch(3)
    assert inputs.shape == targets.shape == (3, SEQ_LEN)
    assert inputs.dtype == torch.int64
    assert torch.equal(targets, inputs + 1)


def test_tokens_above_the_signed_range_are_read_right(tmp_path: Path) -> None:
    corpus = entry_of(tmp_path, {"a": 100})
    assert corpus.validation[0].read([0]).tolist() == [[40_000, 40_001, 40_002, 40_003, 40_004]]


def test_an_epoch_meets_every_window_once_and_the_next_in_another_order(tmp_path: Path) -> None:
    data = TrainingData(entry_of(tmp_path, {"a": 101}), [1.0], seed=1)
    first, second = ([row[0][0] for row in batches(data, 25, size=1)] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(0, 100, SEQ_LEN))
    assert first != second


def test_a_position_brings_back_exactly_the_batches_that_followed(tmp_path: Path) -> None:
    corpus = entry_of(tmp_path, {"a": 101, "b": 57})
    data = TrainingData(corpus, [3.0, 1.0], seed=5)
    batches(data, 13)
    position = data.position
    expected = batches(data, 40)
    again = TrainingData(corpus, [3.0, 1.0], seed=5)
    again.seek(position)
    assert batches(again, 40) == expected


def test_skipping_equals_drawing_and_throwing_away(tmp_path: Path) -> None:
    corpus = entry_of(tmp_path, {"a": 101, "b": 57})
    skipping, drawing = (TrainingData(corpus, [1.0, 2.0], seed=5) for _ in range(2))
    batches(drawing, 9, size=3)
    skipping.skip(27)
    assert batches(skipping, 5) == batches(drawing, 5)


@settings(max_examples=20)
@given(st.lists(st.floats(0.05, 10), min_size=1, max_size=4), st.integers(1, 300))
def test_sources_are_never_a_whole_sequence_behind_their_share(
    weights: list[float], drawn: int
) -> None:
    corpus = Corpus(tuple(map(str, range(len(weights)))), (), (), 257)
    data = TrainingData(corpus, weights, seed=1)
    data.skip(drawn)
    for weight, count in zip(weights, data.position, strict=True):
        assert abs(count - drawn * weight / sum(weights)) < len(weights)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_the_sequences_of_one_process(tmp_path: Path, world_size: int) -> None:
    corpus = entry_of(tmp_path, {"a": 101, "b": 57})
    alone = TrainingData(corpus, [1.0, 1.0], seed=5)
    ranks = [TrainingData(corpus, [1.0, 1.0], 5, rank, world_size) for rank in range(world_size)]
    together = [row for rank in ranks for row in rank.next_batch(2)[0].tolist()]
    assert together == alone.next_batch(2 * world_size)[0].tolist()


def test_other_seeds_give_other_orders(tmp_path: Path) -> None:
    corpus = entry_of(tmp_path, {"a": 401})
    assert batches(TrainingData(corpus, [1.0], 1), 3) != batches(TrainingData(corpus, [1.0], 2), 3)


def test_validation_is_the_same_every_time_evenly_spread_and_in_full_batches(
    tmp_path: Path,
) -> None:
    shard = entry_of(tmp_path, {"a": 101}).validation[0]
    first, second = (
        [inputs.tolist() for inputs, _ in validation_batches(shard, 3, 4)] for _ in range(2)
    )
    assert first == second
    assert [len(batch) for batch in first] == [4, 4, 4]
    starts = [row[0] for batch in first for row in batch]
    assert starts == list(range(40_000, 40_096, 8))


@pytest.mark.parametrize("at_most", [1, 2, 3, 4, 6, 7, 8, 20])
def test_what_is_validated_does_not_depend_on_what_fits_into_the_memory(
    tmp_path: Path, at_most: int
) -> None:
    shard = entry_of(tmp_path, {"a": 101}).validation[0]
    whole = torch.cat([inputs for inputs, _ in validation_batches(shard, 3, 4)])
    parts = [inputs for inputs, _ in validation_batches(shard, 3, 4, at_most=at_most)]
    assert torch.equal(torch.cat(parts), whole)
    assert len({len(part) for part in parts}) == 1
    assert len(parts[0]) <= at_most


def test_a_short_validation_shard_gives_what_it_has(tmp_path: Path) -> None:
    shard = entry_of(tmp_path, {"a": 13}).validation[0]
    assert [len(inputs) for inputs, _ in validation_batches(shard, 8, 8)] == [3]
    assert [len(inputs) for inputs, _ in validation_batches(shard, 8, 2)] == [2]


def test_missing_short_and_foreign_entries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShardsError, match="prepare"):
        Corpus.open(tmp_path, ["a"], SEQ_LEN)
    entry_of(tmp_path, {"a": 100})
    with pytest.raises(ShardsError, match="seq_len"):
        Corpus.open(tmp_path, ["a"], SEQ_LEN + 1)
    with pytest.raises(ShardsError, match="prepare"):
        Corpus.open(tmp_path, ["other"], SEQ_LEN)
    (tmp_path / "train-a.bin").write_bytes(b"short")
    with pytest.raises(ShardsError, match="do not hold"):
        Corpus.open(tmp_path, ["a"], SEQ_LEN)
    with pytest.raises(ShardsError):
        Shard.open(tmp_path / "absent.bin", 10, SEQ_LEN)


def test_a_position_of_other_sources_is_refused(tmp_path: Path) -> None:
    data = TrainingData(entry_of(tmp_path, {"a": 100}), [1.0], seed=1)
    with pytest.raises(ShardsError):
        data.seek([1, 2])
