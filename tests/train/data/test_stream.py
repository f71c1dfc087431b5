"""Sequences cut while they stream: the tokens of the texts, in one order, from any position on."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.train.model_folders import write_tokenizer
from torch.utils.data import DataLoader

from trainer_runtime.core.config import SourceConfig
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.blocks import Blocks
from trainer_runtime.train.data.row_order import shuffled
from trainer_runtime.train.data.stream import Draws, stream_dataset

SEQ_LEN = 16
TEXTS = [f"Text number {n} of a few. " * 3 for n in range(40)]


def config_of(tokenizer: str, *sources: dict[str, Any], seq_len: int = SEQ_LEN) -> RunConfig:
    data = {
        "sources": list(sources),
        "tokenizer": tokenizer,
        "seq_len": seq_len,
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


def packed(texts: list[str], count: int | None = None) -> list[list[int]]:
    """The windows of texts that are one block, as shards have them."""
    tokens = [token for text in texts for token in [*text.encode(), 256]]
    count = (len(tokens) - 1) // SEQ_LEN if count is None else count
    return [tokens[n * SEQ_LEN : n * SEQ_LEN + SEQ_LEN + 1] for n in range(count)]


def test_windows_are_those_of_the_packed_texts_with_every_twentieth_held_out(
    tmp_path: Path,
) -> None:
    tokenizer = str(write_tokenizer(tmp_path / "tokenizer"))
    config = config_of(tokenizer, jsonl(tmp_path / "a.jsonl", TEXTS))
    expected = packed(TEXTS)
    training = [window for n, window in enumerate(expected) if n % 20 != 19]
    passes = windows(config, 2 * len(training))
    first, second = passes[: len(training)], passes[len(training) :]
    assert sorted(first) == sorted(second) == sorted(training)
    assert first not in (second, training)
    assert windows(replace(config, seed=config.seed + 1), len(training)) != first
    held_out = windows(config, 100, split="validation", source="a")
    assert held_out == [expected[19], expected[39], expected[59], expected[79]]


def test_with_validation_of_its_own_a_stream_holds_nothing_out(tmp_path: Path) -> None:
    one, own = jsonl(tmp_path / "a.jsonl", TEXTS), jsonl(tmp_path / "v.jsonl", TEXTS[:2])
    config = config_of("byte", one)
    config = replace(config, data=replace(config.data, validation=(_held_out(own),)))
    expected = packed(TEXTS)
    assert sorted(windows(config, len(expected))) == sorted(expected)
    held_out = windows(config, 100, split="validation", source="v")
    assert held_out == packed(TEXTS[:2])[: config.evaluation.sequences]


def _held_out(source: dict[str, Any]) -> SourceConfig:
    return SourceConfig(source["name"], source["path"], source["format"], held_out=True)


def long_source(path: Path) -> dict[str, Any]:
    """JSON lines in several sections."""
    drawn = random.Random(3)
    texts = ["".join(drawn.choices("abcdefgh é", k=drawn.randint(1, 9000))) for _ in range(400)]
    return jsonl(path, texts)


@pytest.mark.parametrize("start", [23, 8000, 9500])
def test_a_position_brings_back_exactly_what_followed(tmp_path: Path, start: int) -> None:
    one, other = long_source(tmp_path / "a.jsonl"), jsonl(tmp_path / "b.jsonl", TEXTS)
    config = config_of("byte", {**one, "weight": 3.0}, other, seq_len=256)
    straight = windows(config, start + 40)
    first = stream_dataset(config, "train")
    drawn = Draws(config.data.sources)
    drawn.skip_to(start)
    for _ in islice(first, start):
        pass
    marks = [first.mark(source, count) for source, count in enumerate(drawn.drawn)]
    assert windows(config, 40, drawn=drawn.drawn, marks=marks) == straight[start:]
    assert drawn.drawn == [round(start * 3 / 4), round(start / 4)]
    assert (marks[0].place > 0, marks[0].epoch) == (start == 8000, start // 9500)
    assert windows(config, 40, drawn=drawn.drawn) == straight[start:], "read over without marks"


def test_a_seek_reads_nothing_of_the_sections_before(tmp_path: Path) -> None:
    source = long_source(tmp_path / "a.jsonl")
    config = config_of("byte", source, seq_len=256)
    first = stream_dataset(config, "train")
    straight = [item["input_ids"].tolist() for item in islice(first, 6000)]
    mark, blocks = first.mark(0, 5500), Blocks(config.data.sources[0], 256)
    assert mark.place > 3
    read_before = shuffled(len(blocks), f"{config.seed}/stream/0/0")[: mark.place].tolist()
    content = bytearray(Path(source["path"]).read_bytes())
    for section in read_before:
        at = content.index(b"\n", section * len(content) // len(blocks)) + 1
        content[at : at + 1] = b"?"
    Path(source["path"]).write_bytes(content)
    resumed = stream_dataset(config, "train", drawn=[5500], marks=[mark])
    assert [item["input_ids"].tolist() for item in islice(resumed, 20)] == straight[5500:5520]
    strict = replace(config, data=replace(config.data, bad_rows=0.0))
    with pytest.raises(ConfigError, match=r"a.jsonl, the line at byte [\d,]+ is not JSON"):
        windows(strict, 6000)


@pytest.mark.parametrize("workers", [1, 4])
def test_the_order_is_the_same_by_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    config = config_of("byte", jsonl(tmp_path / "a.jsonl", TEXTS))
    loader = DataLoader(stream_dataset(config, "train"), batch_size=4, num_workers=workers)
    read = [row.tolist() for batch in islice(loader, 40) for row in batch["input_ids"]]
    assert read == [window[:-1] for window in windows(config, 160)]


def test_every_format_streams_the_same(tmp_path: Path) -> None:
    import datasets

    (tmp_path / "texts").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "texts" / f"{number:02}.txt").write_text(text)
    saved = datasets.Dataset.from_dict({"text": TEXTS})
    saved.save_to_disk(str(tmp_path / "saved"))
    saved.to_parquet(str(tmp_path / "rows.parquet"))
    lines = jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(Path(lines["path"]).read_bytes()))
    expected = windows(config_of("byte", lines), 50)
    for name, data_format in (
        ("texts", "text"),
        ("saved", "hf"),
        ("saved", "arrow"),
        ("rows.parquet", "parquet"),
        ("a.jsonl.gz", "jsonl"),
    ):
        source = {"name": "a", "path": str(tmp_path / name), "format": data_format}
        assert windows(config_of("byte", source), 50) == expected, data_format


def test_rows_without_text_are_reported(tmp_path: Path) -> None:
    config = config_of("byte", jsonl(tmp_path / "a.jsonl", ["x"], column="body"))
    with pytest.raises(ConfigError, match="the line at byte 0 has no text under `text`"):
        windows(config, 1)
    (tmp_path / "a.jsonl").write_text("\n \n\n")
    with pytest.raises(ConfigError, match="less than a sequence"):
        windows(config, 1)


def test_the_blocks_of_a_text_are_the_whole_text_each_byte_once(tmp_path: Path) -> None:
    drawn = random.Random(5)
    lengths = [10, 200_000, 3, 900_000, 70_000, 65_536, 0, 1] * 2
    lines = ["".join(drawn.choices("aé文\U0001f600 ", k=length)) for length in lengths]
    text = "\n".join(lines)
    (tmp_path / "a.txt").write_text(text)
    blocks = Blocks(SourceConfig("a", str(tmp_path / "a.txt")), SEQ_LEN)
    read = [block for section in range(len(blocks)) for block in blocks.read(section)]
    assert len(blocks) > 10
    assert "".join(piece for block in read for piece, _ in block) == text
    assert [ends for block in read for _, ends in block if ends] == [True]
    assert max(sum(len(piece) for piece, _ in block) for block in read) < 600_000


def test_many_sections_hold_out_every_twentieth_one(tmp_path: Path) -> None:
    import datasets

    texts = [f"{number:04} " * 1600 for number in range(1800)]
    saved = datasets.Dataset.from_dict({"text": texts})
    saved.to_parquet(str(tmp_path / "rows.parquet"), batch_size=30)
    source = {"name": "a", "path": str(tmp_path / "rows.parquet"), "format": "parquet"}
    config = config_of("byte", source, seq_len=1024)
    count = len(Blocks(config.data.sources[0], 1024))
    assert count >= 40
    config = replace(config, evaluation=replace(config.evaluation, batches=1000))
    held_out = windows(config, 10**6, split="validation")
    every = stream_dataset(config, "train")
    training = []
    for item in every:
        if every.mark(0, len(training)).epoch:
            break
        training.append([*item["input_ids"].tolist(), int(item["labels"][-1])])
    assert len(held_out) / (len(held_out) + len(training)) == pytest.approx(0.05, abs=0.01)
    assert not {tuple(window) for window in held_out} & {tuple(window) for window in training}


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
    with pytest.raises(ConfigError, match=r"(has no text|is not JSON).*data.bad_rows"):
        windows(config, 5_000)
    allowing = replace(config, data=replace(config.data, bad_rows=0.01))
    assert windows(allowing, 5_000) == windows(good, 5_000)
