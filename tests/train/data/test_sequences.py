"""Sequences by number, against the batches that our own trainer draws."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from support.host.run_configs import Config, changed
from support.host.tiny_training import prepared_config
from support.plan.rendered import script_text
from torch import Tensor

from trainer_runtime.train.attempt.config import ConfigError, RunConfig, read_run_config
from trainer_runtime.train.data.batches import Corpus, TrainingData, validation_batches
from trainer_runtime.train.data.sequences import (
    HeldOutSequences,
    Position,
    StreamedItems,
    TokenSequences,
    read_position,
    write_position,
)
from trainer_runtime.train.data.stream import TRAIN, stream_dataset

PER_STEP = 8
WEIGHTS = [1.0, 3.0]


class Prepared:
    """A prepared corpus of two sources, and sequences of runs on it."""

    def __init__(self, folder: Path) -> None:
        text = script_text("nanogpt", style="llama").encode()
        config = prepared_config(folder, "hf", text, other=text[:5000])
        config["data"]["sources"][1]["weight"] = WEIGHTS[1]
        self.config: Config = config
        data = read_run_config(self._written(folder, {})).data
        self.corpus = Corpus.open(data.folder, ["main", "other"], data.seq_len)
        self._folder = folder

    def sequences(
        self, step: int = 0, position: Position | None = None, **changes: Any
    ) -> TokenSequences:
        config = self.read_config(**changes)
        return TokenSequences(self.corpus, config, step, position)

    def read_config(self, **changes: Any) -> RunConfig:
        return read_run_config(self._written(self._folder, changes))

    def drawn(self, *counts_and_skips: int) -> list[Tensor]:
        """What our own trainer reads: so many sequences, then so many skipped, and so on."""
        data = TrainingData(self.corpus, WEIGHTS, self.config["seed"])
        found: list[Tensor] = []
        for number, count in enumerate(counts_and_skips):
            if number % 2:
                data.skip(count)
            else:
                found.extend(data.next_batch(1)[0][0] for _ in range(count))
        return found

    def _written(self, folder: Path, changes: dict[str, Any]) -> Path:
        path = folder / "config.json"
        path.write_text(json.dumps(changed(self.config, changes)))
        return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(tmp_path_factory.mktemp("sequences"))


def read(sequences: TokenSequences, first: int, last: int) -> list[Tensor]:
    return [sequences[index]["input_ids"] for index in range(first, last)]


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return torch.equal(torch.stack(found), torch.stack(expected))


def test_the_order_is_that_of_our_own_trainer_over_several_epochs(prepared: Prepared) -> None:
    assert same(read(prepared.sequences(), 0, 320), prepared.drawn(320))
    assert len(prepared.sequences()) == 40 * PER_STEP


def test_every_second_batch_is_what_the_second_of_two_ranks_reads(prepared: Prepared) -> None:
    sequences = prepared.sequences()
    second = TrainingData(prepared.corpus, WEIGHTS, prepared.config["seed"], 1, 2)
    for first in (4, 12, 20):
        found = [sequences[index] for index in range(first, first + 4)]
        inputs, targets = second.next_batch(4)
        assert torch.equal(torch.stack([item["input_ids"] for item in found]), inputs)
        assert torch.equal(torch.stack([item["labels"] for item in found]), targets)


def test_going_back_reads_the_same_again(prepared: Prepared) -> None:
    sequences = prepared.sequences()
    ahead = read(sequences, 30, 40)
    assert same(read(sequences, 0, 40)[30:], ahead)


def test_a_resume_continues_at_the_runs_position_also_with_other_batches(
    prepared: Prepared, tmp_path: Path
) -> None:
    write_position(tmp_path, prepared.sequences().position(5))
    position = read_position(tmp_path)
    assert position is not None and position.drawn == 5 * PER_STEP
    batch = {"tokens": 512, "micro_batch": 8, "accumulation": 2}
    larger = prepared.sequences(5, position, batch=batch)
    assert same(read(larger, 5 * 16, 5 * 16 + 20), prepared.drawn(60)[40:])
    assert larger.position(6).drawn == 5 * PER_STEP + 16


def test_skipped_data_is_passed_at_its_step_and_kept_by_the_position(prepared: Prepared) -> None:
    skip = [{"at_step": 3, "sequences": 11}]
    sequences = prepared.sequences(data__skip=skip)
    expected = prepared.drawn(24, 11, 16)
    assert same(read(sequences, 0, 40), expected)
    assert sequences.position(3).drawn == 24
    assert sequences.position(4).drawn == 24 + 11 + 8
    resumed = prepared.sequences(4, sequences.position(4), data__skip=skip)
    assert same(read(resumed, 32, 40), expected[32:])
    from_the_skip = prepared.sequences(3, prepared.sequences().position(3), data__skip=skip)
    assert same(read(from_the_skip, 24, 40), expected[24:])


def test_without_a_kept_position_it_follows_from_the_step(prepared: Prepared) -> None:
    skip = [{"at_step": 2, "sequences": 5}]
    resumed = prepared.sequences(4, None, data__skip=skip)
    assert same(read(resumed, 32, 40), prepared.drawn(16, 5, 24)[32:])


def test_a_position_of_other_sources_is_refused(prepared: Prepared) -> None:
    with pytest.raises(ConfigError, match="step 4"):
        prepared.sequences(4, Position([7]))


def test_the_held_out_sequences_are_our_own_validation_batches(prepared: Prepared) -> None:
    shard = prepared.corpus.validation[0]
    held_out = HeldOutSequences(shard, 2, 4)
    expected = torch.cat([inputs for inputs, _ in validation_batches(shard, 2, 4)])
    found = [held_out[index]["input_ids"] for index in range(len(held_out))]
    assert torch.equal(torch.stack(found), expected)


def test_a_stream_is_numbered_and_skipped_as_shards_are(prepared: Prepared, tmp_path: Path) -> None:
    skip = [{"at_step": 2, "sequences": 3}]
    config = prepared.read_config(data__skip=skip, steps=4)
    whole = [item["input_ids"] for item in islice(stream_dataset(config, TRAIN), 4 * PER_STEP + 3)]
    expected = whole[: 2 * PER_STEP] + whole[2 * PER_STEP + 3 :]
    items = StreamedItems(config)
    assert same([item["input_ids"] for item in items], expected)
    position = items.position(3)
    assert position.drawn == 3 * PER_STEP + 3
    write_position(tmp_path, position)
    assert read_position(tmp_path) == position
    resumed = [item["input_ids"] for item in StreamedItems(config, 3, read_position(tmp_path))]
    assert same(resumed, expected[3 * PER_STEP :])
    without_it = [item["input_ids"] for item in StreamedItems(config, 3)]
    assert same(without_it, expected[3 * PER_STEP :])
