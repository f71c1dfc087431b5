"""The order in which rows are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.train.attempt.config import ConfigError, RunConfig, read_run_config
from trainer_runtime.train.data.row_order import training_order, validation_rows


def config(
    folder: Path, skip: list[dict[str, int]] | None = None, processes: int = 1, **batch: int
) -> RunConfig:
    document: dict[str, Any] = {
        "config_version": 1,
        "data": {
            "sources": [{"name": "main"}],
            "tokenizer": "byte",
            "seq_len": 64,
            "fingerprint": "f",
            "cache_dir": ".",
            "skip": skip or [],
        },
        "batch": {"tokens": 512, "micro_batch": 2, "accumulation": 2, **batch},
        "compute": {"processes": processes},
        "optimizer": {"lr": 0.1},
        "schedule": {},
        "checkpoint": {"every": 10},
        "steps": 10,
        "seed": 3,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return read_run_config(path)


def test_every_epoch_has_each_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    order = training_order(config(tmp_path), 16).tolist()
    assert len(order) == 10 * 4
    first, second = order[:16], order[16:32]
    assert sorted(first) == sorted(second) == list(range(16))
    assert first != second
    assert training_order(config(tmp_path), 16).tolist() == order


def test_ranks_share_the_steps_rows(tmp_path: Path) -> None:
    assert len(training_order(config(tmp_path, processes=2), 100)) == 10 * 8
    split = training_order(config(tmp_path, micro_batch=1, processes=2), 100)
    assert split.tolist() == training_order(config(tmp_path), 100).tolist()


def test_a_skip_leaves_out_the_rows_after_its_step(tmp_path: Path) -> None:
    plain = training_order(config(tmp_path), 50).tolist()
    skipping = config(tmp_path, [{"at_step": 3, "sequences": 4}, {"at_step": 5, "sequences": 2}])
    order = training_order(skipping, 50).tolist()
    assert order[:12] == plain[:12]
    assert order[12:20] == plain[16:24]
    assert order[20:34] == plain[26:40]


def test_rows_of_which_several_sequences_are_made_count_as_so_many(tmp_path: Path) -> None:
    plain = training_order(config(tmp_path), 50, repeats=2).tolist()
    assert len(plain) == 10 * 2
    skipping = config(tmp_path, [{"at_step": 1, "sequences": 3}])
    assert training_order(skipping, 50, repeats=2).tolist()[2:18] == plain[4:]


def test_neighbours_that_belong_together_stay_together(tmp_path: Path) -> None:
    skipping = config(tmp_path, [{"at_step": 1, "sequences": 1}])
    order = training_order(skipping, 15, block=2).tolist()
    assert order[:4] == [0, 1, 2, 3]
    assert order[4:12] == [6, 7, 8, 9, 10, 11, 12, 13]
    assert order[12:14] == [0, 1]


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only 1 rows fit"):
        training_order(config(tmp_path), 1, block=2)


def test_held_out_rows_are_spread_evenly() -> None:
    assert validation_rows(10, 4) == [0, 2, 5, 7]
    assert validation_rows(3, 8) == [0, 1, 2]
    assert validation_rows(3, 0) == []


def test_phases_mix_the_rows_of_sources_from_their_borders_on(tmp_path: Path) -> None:
    of_sources = [700, 300]
    plain = config(tmp_path)
    shares = ({"a": 1.0}, {"a": 0.75, "b": 0.25}, {"a": 0.5, "b": 0.5})
    phases = [
        {"name": f"p{n}", "steps": 250, "sequences": 4, "seq_len": 64, "sources": mix}
        for n, mix in enumerate(shares)
    ]
    sources = [{"name": "a"}, {"name": "b"}]
    data = {**plain.document["data"], "sources": sources}
    mixed = RunConfig.parse({**plain.document, "data": data, "phases": phases, "steps": 750})
    order = training_order(mixed, 1000, of_sources=of_sources).tolist()
    for begins, mix in zip(range(0, 3000, 1000), shares, strict=True):
        of_first = sum(row < 700 for row in order[begins : begins + 1000])
        assert abs(of_first / 1000 - mix["a"]) <= 0.001
    assert sorted(order[:700]) == list(range(700))
    assert training_order(mixed, 1000, of_sources=of_sources).tolist() == order
