"""Rows of every format, held out and mixed."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.train.shard_files import write_tfrecord

from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.data.rows import load_rows


def rows_of(folder: Path, *sources: dict[str, Any], validation: Any = ()) -> Any:
    data = {
        "sources": [{"weight": 1.0, **source, "path": str(source["path"])} for source in sources],
        "validation": [{**source, "path": str(source["path"])} for source in validation],
        "cache_dir": str(folder / "cache"),
        "fingerprint": "0123456789abcdef",
    }
    return load_rows(RunConfig.parse({"data": data}))


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def pairs(count: int, mark: str) -> list[dict[str, Any]]:
    return [{"prompt": f"{mark}{n}", "chosen": "yes", "rejected": "no"} for n in range(count)]


def test_every_twentieth_row_is_held_out_and_none_is_lost(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "pairs.jsonl", pairs(100, "a"))
    train, validation = rows_of(tmp_path, {"name": "a", "path": path, "format": "preference"})
    assert sorted(train.column_names) == ["chosen", "prompt", "rejected"]
    assert (len(train), len(validation["a"])) == (95, 5)
    assert len({*train["prompt"], *validation["a"]["prompt"]}) == 100
    again, _ = rows_of(tmp_path, {"name": "a", "path": path, "format": "preference"})
    assert again["prompt"] == train["prompt"]


def test_columns_come_as_they_are_whatever_they_are_stored_in(tmp_path: Path) -> None:
    import datasets  # here, since each of the tests' workers imports this file: 1.4 s

    messages = [[{"role": "user", "content": f"say {n}"}] for n in range(40)]
    saved = datasets.Dataset.from_dict({"messages": messages})
    saved.to_parquet(str(tmp_path / "p" / "part.parquet"))
    saved.save_to_disk(str(tmp_path / "saved"))
    arrow = next((tmp_path / "saved").glob("*.arrow"))
    for data_format, path in (
        ("parquet", tmp_path / "p"),
        ("hf", tmp_path / "saved"),
        ("arrow", arrow),
        ("jsonl", jsonl(tmp_path / "rows.jsonl", [{"messages": one} for one in messages])),
    ):
        train, held = rows_of(tmp_path, {"name": "m", "path": path, "format": data_format})
        assert (len(train), len(held["m"])) == (38, 2), data_format
        assert train[0]["messages"] == [{"role": "user", "content": "say 0"}], data_format


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_compressed_rows_and_texts_are_read_as_what_they_hold(tmp_path: Path, ending: str) -> None:
    compress = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}[ending]
    plain = jsonl(tmp_path / "plain.jsonl", pairs(40, "a")).read_bytes()
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / f"a.jsonl.{ending}").write_bytes(compress(plain))
    (tmp_path / f"a.txt.{ending}").write_bytes(compress(b"a paragraph\n\n" * 40))
    for data_format, path in (
        ("jsonl", "rows"),
        ("preference", "rows"),
        ("text", f"a.txt.{ending}"),
    ):
        source = {"name": "a", "path": tmp_path / path, "format": data_format}
        train, held = rows_of(tmp_path, source)
        assert (len(train), len(held["a"])) == (38, 2), data_format


def test_a_saved_datasets_own_validation_is_what_is_held_out(tmp_path: Path) -> None:
    import datasets

    split = {
        "train": datasets.Dataset.from_dict({"text": ["t"] * 10}),
        "validation": datasets.Dataset.from_dict({"text": ["v"] * 3}),
    }
    datasets.DatasetDict(split).save_to_disk(str(tmp_path / "saved"))
    source = {"name": "s", "path": tmp_path / "saved", "format": "hf"}
    train, held = rows_of(tmp_path, source)
    assert (len(train), held["s"]["text"]) == (10, ["v"] * 3)


def test_files_of_ones_own_are_held_out_and_every_other_row_is_trained_on(tmp_path: Path) -> None:
    paths = {name: jsonl(tmp_path / f"{name}.jsonl", pairs(20, name)) for name in ("a", "b")}
    sources = [{"name": name, "path": path, "format": "jsonl"} for name, path in paths.items()]
    own = [{"prompt": f"v{n}", "chosen": "yes", "rejected": "no", "more": 1} for n in range(3)]
    path = jsonl(tmp_path / "own.jsonl", own)
    validation = [{"name": "v", "path": path, "format": "jsonl"}]
    train, held = rows_of(tmp_path, *sources, validation=validation)
    assert sorted(train["prompt"]) == sorted(f"{name}{n}" for name in "ab" for n in range(20))
    assert {name: rows["prompt"] for name, rows in held.items()} == {"v": ["v0", "v1", "v2"]}


def test_sources_are_mixed_by_weight_from_the_first_row_on(tmp_path: Path) -> None:
    train, held = rows_of(
        tmp_path,
        {"name": "a", "path": jsonl(tmp_path / "a.jsonl", pairs(60, "a")), "format": "jsonl"},
        {
            "name": "b",
            "path": jsonl(tmp_path / "b.jsonl", [{**row, "more": 1} for row in pairs(8, "b")]),
            "format": "jsonl",
            "weight": 3.0,
        },
    )
    assert set(held) == {"a", "b"} and "more" not in train.column_names
    marks = [prompt[0] for prompt in train["prompt"]]
    for start in range(0, 200, 40):
        assert Counter(marks[start : start + 40]) == {"a": 10, "b": 30}
    assert len({prompt for prompt in train["prompt"] if prompt[0] == "a"}) == 57


def test_text_gives_a_row_for_each_paragraph(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.txt").write_text("\n\n".join(f"Paragraph {n}\nof two." for n in range(30)))
    train, _ = rows_of(tmp_path, {"name": "t", "path": tmp_path / "t", "format": "text"})
    assert train[0]["text"] == "Paragraph 0\nof two."


@pytest.mark.parametrize(
    ("text", "problem"),
    [('{"a": 1}\n', "holds 1 rows"), ("{broken\n" * 3, "can't be read")],
)
def test_a_source_without_rows_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        rows_of(tmp_path, {"name": "x", "path": tmp_path / "x.jsonl", "format": "jsonl"})


def test_sources_without_a_column_in_common_are_refused(tmp_path: Path) -> None:
    one = jsonl(tmp_path / "a.jsonl", [{"text": "x"}] * 4)
    other = jsonl(tmp_path / "b.jsonl", [{"messages": "x"}] * 4)
    with pytest.raises(ConfigError, match="no column in common: a has text; b has messages"):
        rows_of(
            tmp_path,
            {"name": "a", "path": one, "format": "jsonl"},
            {"name": "b", "path": other, "format": "jsonl"},
        )


def test_the_samples_of_shards_are_rows(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": number} for number in range(40)]
    write_tfrecord(tmp_path / "a.tfrecord", rows[:30])
    write_tfrecord(tmp_path / "b.tfrecord", rows[30:])
    source = {"name": "main", "path": str(tmp_path), "format": "tfrecord"}
    training, held_out = rows_of(tmp_path, source)
    seen = [*training, *held_out["main"]]
    assert sorted(seen, key=lambda row: row["label"]) == rows
    assert len(held_out["main"]) == 2
