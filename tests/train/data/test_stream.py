"""Sequences cut while they stream: the same tokens as shards hold, at any position."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.train.model_folders import write_tokenizer

from trainer_runtime.core.config import SourceConfig
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.stream import stream_dataset

SEQ_LEN = 16
TEXTS = [f"Text number {n} of a few. " * 3 for n in range(40)]


def config_of(tokenizer: str, *sources: dict[str, Any]) -> RunConfig:
    data = {
        "sources": list(sources),
        "tokenizer": tokenizer,
        "seq_len": SEQ_LEN,
        "fingerprint": "f",
        "cache_dir": "/nowhere",
        "skip": [{"at_step": 8, "sequences": 5}],
    }
    batch = {"tokens": 32, "micro_batch": 2, "accumulation": 1}
    return RunConfig.parse({"steps": 20, "data": data, "batch": batch, "eval": {"batches": 2}})


def jsonl(path: Path, texts: list[str], column: str = "text") -> dict[str, Any]:
    path.write_text("".join(f"{json.dumps({column: text})}\n" for text in texts))
    return {"name": path.stem, "path": str(path), "format": "jsonl", "weight": 1.0}


def windows(config: RunConfig, count: int, **options: Any) -> list[list[int]]:
    taken = islice(stream_dataset(config, options.pop("split", "train"), **options), count)
    return [[*item["input_ids"].tolist(), int(item["labels"][-1])] for item in taken]


def test_windows_are_those_of_the_packed_texts_with_every_twentieth_held_out(
    tmp_path: Path,
) -> None:
    tokenizer = str(write_tokenizer(tmp_path / "tokenizer"))
    config = config_of(tokenizer, jsonl(tmp_path / "a.jsonl", TEXTS))
    packed = [token for text in TEXTS for token in [*text.encode(), 256]]
    count = (len(packed) - 1) // SEQ_LEN
    expected = [packed[n * SEQ_LEN : n * SEQ_LEN + SEQ_LEN + 1] for n in range(count)]
    training = [window for n, window in enumerate(expected) if n % 20 != 19]
    assert windows(config, len(training) + 3) == training + training[:3]
    held_out = windows(config, 100, split="validation", source="a")
    assert held_out == [expected[19], expected[39], expected[59], expected[79]]


def test_with_validation_of_its_own_a_stream_holds_nothing_out(tmp_path: Path) -> None:
    one, own = jsonl(tmp_path / "a.jsonl", TEXTS), jsonl(tmp_path / "v.jsonl", TEXTS[:2])
    config = config_of("byte", one)
    config = replace(config, data=replace(config.data, validation=(_held_out(own),)))
    packed = [token for text in TEXTS for token in [*text.encode(), 256]]
    count = (len(packed) - 1) // SEQ_LEN
    assert windows(config, count) == [
        packed[n * SEQ_LEN : n * SEQ_LEN + SEQ_LEN + 1] for n in range(count)
    ]
    held_out = windows(config, 100, split="validation", source="v")
    assert held_out == windows(config_of("byte", own), config.evaluation.sequences)


def _held_out(source: dict[str, Any]) -> SourceConfig:
    return SourceConfig(source["name"], source["path"], source["format"], held_out=True)


def test_a_position_brings_back_exactly_what_followed(tmp_path: Path) -> None:
    one, other = jsonl(tmp_path / "a.jsonl", TEXTS), jsonl(tmp_path / "b.jsonl", TEXTS[:3])
    config = config_of("byte", one, {**other, "weight": 3.0})
    straight = windows(config, 60)
    assert windows(config, 37, start=23) == straight[23:]


def test_every_format_streams_the_same(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "texts").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "texts" / f"{number:02}.txt").write_text(text)
    saved = datasets.Dataset.from_dict({"text": TEXTS})
    saved.save_to_disk(str(tmp_path / "saved"))
    saved.to_parquet(str(tmp_path / "rows.parquet"))
    expected = windows(config_of("byte", jsonl(tmp_path / "a.jsonl", TEXTS)), 50)
    for name, data_format in (("texts", "text"), ("saved", "hf"), ("rows.parquet", "parquet")):
        source = {"name": "a", "path": str(tmp_path / name), "format": data_format}
        assert windows(config_of("byte", source), 50) == expected, data_format


def test_rows_without_text_are_reported(tmp_path: Path) -> None:
    config = config_of("byte", jsonl(tmp_path / "a.jsonl", ["x"], column="body"))
    with pytest.raises(ConfigError, match="line 1 has no text under `text`"):
        windows(config, 1)


@pytest.mark.parametrize("data_format", ["jsonl", "parquet"])
def test_bad_rows_are_passed_over_up_to_their_share(tmp_path: Path, data_format: str) -> None:
    import datasets

    good = config_of("byte", jsonl(tmp_path / "good.jsonl", TEXTS * 20))
    if data_format == "jsonl":
        source = jsonl(tmp_path / "a.jsonl", TEXTS * 20)
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write("{broken\n")
    else:
        rows = datasets.Dataset.from_dict({"text": [None, *TEXTS * 20]})
        rows.to_parquet(str(tmp_path / "a.parquet"))
        source = {"name": "a", "path": str(tmp_path / "a.parquet"), "format": "parquet"}
    config = config_of("byte", source)
    with pytest.raises(ConfigError, match=r"(row 1 has no text|is not JSON).*data.bad_rows"):
        windows(config, 5_000)
    allowing = replace(config, data=replace(config.data, bad_rows=0.01))
    assert windows(allowing, 5_000) == windows(good, 5_000)
