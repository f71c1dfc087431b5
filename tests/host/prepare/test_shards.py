from __future__ import annotations

import array
import json
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.host.prepare.byte_shards import END_OF_TEXT
from trainer_runtime.host.prepare.preparation import main
from trainer_runtime.host.prepare.shards import DataUnusableError, prepare

REPOSITORY = Path(__file__).parents[3]
SEQ_LEN = 16


def config_of(tmp_path: Path, corpus: Path, seq_len: int = SEQ_LEN) -> dict[str, Any]:
    source = Source("main", str(corpus), list_files(corpus))
    return {
        "data": {
            "sources": [{"name": "main", "path": str(corpus), "format": "text", "weight": 1.0}],
            "tokenizer": "byte",
            "seq_len": seq_len,
            "fingerprint": fingerprint([source], "byte", seq_len),
            "cache_dir": str(tmp_path / "cache"),
        }
    }


def corpus_of(tmp_path: Path, contents: dict[str, bytes]) -> Path:
    folder = tmp_path / "corpus"
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def tokens_of(file: Path) -> list[int]:
    tokens = array.array("H")
    tokens.frombytes(file.read_bytes())
    return tokens.tolist()


def quiet(line: str) -> None:
    pass


def test_shards_hold_every_document_in_order_with_its_end(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"b.txt": bytes(range(1, 200)), "a/x.py": "é".encode() * 100})
    entry = prepare(RunConfig.parse(config_of(tmp_path, corpus)), quiet)
    both = tokens_of(entry / "train-main.bin") + tokens_of(entry / "val-main.bin")
    expected = [*("é".encode() * 100), END_OF_TEXT, *range(1, 200), END_OF_TEXT]
    assert both == expected


@pytest.mark.parametrize(("size", "validation"), [(33, 17), (100, 17), (9999, 500)])
def test_the_last_twentieth_is_held_out_and_at_least_a_sequence(
    tmp_path: Path, size: int, validation: int
) -> None:
    entry = prepare(
        RunConfig.parse(config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * size}))), quiet
    )
    assert len(tokens_of(entry / "val-main.bin")) == validation
    assert len(tokens_of(entry / "train-main.bin")) == size + 1 - validation


def with_validation(config: dict[str, Any], path: Path) -> dict[str, Any]:
    data = config["data"]
    (source,) = data["sources"]
    corpus = Path(source["path"])
    listed = [
        Source("main", str(corpus), list_files(corpus)),
        Source("own", str(path), list_files(path), held_out=True),
    ]
    own = {"name": "own", "path": str(path), "format": "text"}
    whole = fingerprint(listed, "byte", data["seq_len"])
    return {"data": {**data, "validation": [own], "fingerprint": whole}}


def test_with_files_of_its_own_validation_is_exactly_these_and_nothing_else_is_held_out(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * 400}))
    (tmp_path / "val.txt").write_bytes(b"y" * 40)
    whole = with_validation(config, tmp_path / "val.txt")
    entry = prepare(RunConfig.parse(whole), quiet)
    assert tokens_of(entry / "train-main.bin") == [*b"x" * 400, END_OF_TEXT]
    assert tokens_of(entry / "val-own.bin") == [*b"y" * 40, END_OF_TEXT]
    assert sorted(file.name for file in entry.glob("*.bin")) == ["train-main.bin", "val-own.bin"]
    assert whole["data"]["fingerprint"] != config["data"]["fingerprint"]
    (entry / "val-own.bin").write_bytes(b"torn")
    assert prepare(RunConfig.parse(whole), quiet) == entry
    assert tokens_of(entry / "val-own.bin") == [*b"y" * 40, END_OF_TEXT]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"z" * 400, "val.txt is a copy of .*, which is trained on"),
        (b"y" * 5, "data source own: 6 tokens .* one sequence takes 17"),
    ],
)
def test_validation_that_says_nothing_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"z" * 400}))
    (tmp_path / "val.txt").write_bytes(content)
    with pytest.raises(DataUnusableError, match=problem):
        prepare(RunConfig.parse(with_validation(config, tmp_path / "val.txt")), quiet)


def test_a_prepared_entry_is_used_without_its_sources(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"a": b"x" * 100})
    config = config_of(tmp_path, corpus)
    entry = prepare(RunConfig.parse(config), quiet)
    before = (entry / "meta.json").stat().st_mtime_ns
    (corpus / "a").unlink()
    assert prepare(RunConfig.parse(config), quiet) == entry
    assert (entry / "meta.json").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["truncate", "remove", "meta"])
def test_a_damaged_entry_is_built_again(tmp_path: Path, damage: str) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * 100}))
    entry = prepare(RunConfig.parse(config), quiet)
    whole = tokens_of(entry / "train-main.bin")
    if damage == "truncate":
        os.truncate(entry / "train-main.bin", 10)
    elif damage == "remove":
        (entry / "val-main.bin").unlink()
    else:
        (entry / "meta.json").write_bytes(b'{"v": 1, "sou')
    prepare(RunConfig.parse(config), quiet)
    assert tokens_of(entry / "train-main.bin") == whole
    assert [path.name for path in entry.parent.iterdir() if path.name.startswith(".")] == []


def test_leftovers_of_a_killed_preparation_are_removed(tmp_path: Path) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * 100}))
    left = tmp_path / "cache/data" / f".building-{config['data']['fingerprint']}-1"
    left.mkdir(parents=True)
    (left / "train-main.bin").write_bytes(b"half")
    prepare(RunConfig.parse(config), quiet)
    assert not left.exists()


def test_changed_data_is_refused(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"a": b"x" * 100})
    config = config_of(tmp_path, corpus)
    (corpus / "b").write_bytes(b"more")
    with pytest.raises(DataUnusableError, match="changed since the plan"):
        prepare(RunConfig.parse(config), quiet)


def test_missing_empty_and_short_data_are_refused_with_the_path(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"a": b"x" * 10})
    config = config_of(tmp_path, corpus)
    with pytest.raises(DataUnusableError, match=r"11 tokens in .*corpus.* need 34"):
        prepare(RunConfig.parse(config), quiet)
    (corpus / "a").write_bytes(b"\0binary")
    with pytest.raises(DataUnusableError, match="no text files"):
        prepare(RunConfig.parse(config_of(tmp_path, corpus)), quiet)
    config["data"]["sources"][0]["path"] = str(tmp_path / "absent")
    with pytest.raises(DataUnusableError, match=r"nothing at .*absent"):
        prepare(RunConfig.parse(config), quiet)


@pytest.mark.parametrize("name", ["../main", "a/b", "", ".hidden"])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * 100}))
    config["data"]["sources"][0]["name"] = name
    with pytest.raises(DataUnusableError, match="plain and unique"):
        prepare(RunConfig.parse(config), quiet)


def test_a_full_disk_is_reported_and_leaves_nothing_half_built(tmp_path: Path) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"x" * 100_000}))
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path / "config.json")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 77
    assert "is full" in done.stderr
    assert [path.suffix for path in (tmp_path / "cache/data").iterdir()] == [".lock"]


def test_two_at_once_build_it_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, corpus_of(tmp_path, {"a": b"some text " * 300_000}))
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "trainer_runtime", "prepare", str(tmp_path / "config.json")]
    (tmp_path / "cache").mkdir(exist_ok=True)
    both = [
        subprocess.Popen(
            command,
            cwd=folder,  # of two runs: they share the cache alone
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in (tmp_path, tmp_path / "cache")
    ]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("documents" in output for output in outputs) == 1
    assert all("ready in" in output for output in outputs)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, {"large": b"0123456789abcdef" * (4 << 20)})
    config = config_of(tmp_path, corpus)
    tracemalloc.start()
    prepare(RunConfig.parse(config), quiet)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40 << 20


def test_an_unreadable_config_ends_with_77(tmp_path: Path, capsys: Any) -> None:
    assert main(str(tmp_path / "absent.json")) == 77
    assert "absent.json" in capsys.readouterr().err


if __name__ == "__main__":
    # As on a disk with no room for more: writes beyond 64 KiB fail.
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    sys.exit(main(sys.argv[1]))
