"""Tokenizers that the preparation trains: the same every time, of the training sources alone."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer_runtime.core.config import DataConfig, RunConfig, SourceConfig
from trainer_runtime.core.config.tokenizer_training import KINDS, TokenizerTraining
from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.host.environment.training_python import InputUnusableError, TrainingPython
from trainer_runtime.host.prepare.shards import is_whole, prepare
from trainer_runtime.train.data.tokenizers import open_tokenizer
from trainer_runtime.train.data.train_tokenizer import Sample

SEQ_LEN = 16
PYTHON = TrainingPython(sys.executable)
TEXT = (
    "Der Bär trägt Öl,\n\tand 123 bears  carry oil: ööö 漢字.\n" * 30 + Path(__file__).read_text()
)
LOSSLESS = ("bpe", "unigram", "char")


def config_of(folder: Path, kind: str, size: int, held_out: str | None = None) -> RunConfig:
    sources = [("main", folder / "main.txt", False)]
    if held_out is not None:
        (folder / "own.txt").write_text(held_out)
        sources.append(("own", folder / "own.txt", True))
    listed = [Source(name, str(path), list_files(path), "text", own) for name, path, own in sources]
    training = TokenizerTraining(kind, size)
    print_of = fingerprint(listed, training.digest, SEQ_LEN)
    parts: dict[str, list[dict[str, Any]]] = {"sources": [], "validation": []}
    for name, path, own in sources:
        parts["validation" if own else "sources"].append({"name": name, "path": str(path)})
    data = {
        **parts,
        "tokenizer": str(folder / "cache" / "data" / print_of / "tokenizer"),
        "tokenizer_digest": training.digest,
        "tokenizer_training": training.to_dict(),
        "seq_len": SEQ_LEN,
        "fingerprint": print_of,
        "cache_dir": str(folder / "cache"),
    }
    return RunConfig.parse({"data": data})


def prepared(folder: Path, kind: str, size: int, text: str = TEXT, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "main.txt").write_text(text)
    return prepare(config_of(folder, kind, size, **more), print, PYTHON)


@pytest.mark.parametrize(
    ("kind", "size"), [("bpe", 400), ("unigram", 600), ("wordpiece", 600), ("char", 256)]
)
def test_two_trainings_on_the_same_texts_give_the_same_tokenizer(
    tmp_path: Path, kind: str, size: int
) -> None:
    from transformers import AutoTokenizer

    entry = prepared(tmp_path / "one", kind, size)
    again = prepared(tmp_path / "two", kind, size)
    content = (entry / "tokenizer" / "tokenizer.json").read_bytes()
    assert (again / "tokenizer" / "tokenizer.json").read_bytes() == content
    tokenizer = open_tokenizer(str(entry / "tokenizer"))
    assert tokenizer.end_of_text == 0 and tokenizer.vocab_size <= size
    numbers = tokenizer.encode([TEXT])[0]
    if kind in LOSSLESS:
        assert tokenizer.decode(numbers) == TEXT
    theirs = AutoTokenizer.from_pretrained(entry / "tokenizer")
    assert theirs.encode(TEXT, add_special_tokens=False) == list(numbers)
    special = [theirs.convert_ids_to_tokens(number) for number in range(len(KINDS[kind].special))]
    assert tuple(special) == KINDS[kind].special
    assert theirs.eos_token_id == 0
    meta = json.loads((entry / "meta.json").read_bytes())
    assert meta["vocab_size"] == tokenizer.vocab_size and meta["end_of_text"] == 0


def test_held_out_files_are_not_trained_on(tmp_path: Path) -> None:
    entry = prepared(tmp_path, "char", 256, held_out=chr(0x416) * 160)
    vocabulary = json.loads((entry / "tokenizer" / "tokenizer.json").read_bytes())["model"]["vocab"]
    assert "ö" in vocabulary and chr(0x416) not in vocabulary
    tokens = (entry / "val-own.bin").read_bytes()
    assert tokens[:2] == (1).to_bytes(2, "little")  # unknown


def test_characters_beyond_the_size_become_the_unknown_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = prepared(tmp_path, "char", 4, text="aab" * 60 + "c")
    assert open_tokenizer(str(entry / "tokenizer")).encode(["abc"]) == [[2, 3, 1]]
    assert "4 used of 3 characters; 0.55 % of the text is <|unknown|>" in capsys.readouterr().out


def test_an_entry_without_its_tokenizer_is_prepared_again(tmp_path: Path) -> None:
    entry = prepared(tmp_path, "bpe", 300)
    assert is_whole(entry)
    shutil.rmtree(entry / "tokenizer")
    assert not is_whole(entry)
    assert prepared_again(tmp_path) == entry and is_whole(entry)


def prepared_again(folder: Path) -> Path:
    return prepare(config_of(folder, "bpe", 300), print, PYTHON)


def test_a_size_that_the_letters_do_not_fit_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputUnusableError, match="give a larger size, or train bpe"):
        prepared(tmp_path, "unigram", 257)


def test_a_sample_has_the_beginning_of_every_file(tmp_path: Path) -> None:
    for name, letter in (("a", "a"), ("b", "b"), ("c", "c")):
        (tmp_path / f"{name}.txt").write_text(f"{letter}\n" * 500_000)
    files = {"main": [str(tmp_path / f"{name}.txt") for name in "abc"]}
    data = DataConfig(sources=(SourceConfig("main", path=str(tmp_path)),))
    sample = Sample(data, files, limit_bytes=600_000)
    taken = "".join(sample)
    counts = [taken.count(letter) for letter in "abc"]
    assert all(70_000 < count < 140_000 for count in counts), counts
    assert "".join(sample) == taken
    assert sample.taken_bytes == len(taken)
    assert "the beginning of every file (2.9 MiB in all)" in sample.report()


def test_a_sample_of_ever_new_words_is_smaller(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text(" ".join(f"{n:07}" for n in range(100_000)))
    (tmp_path / "old.txt").write_text("again " * 130_000)
    files = {"main": [str(tmp_path / "new.txt"), str(tmp_path / "old.txt")]}
    data = DataConfig(sources=(SourceConfig("main", path=str(tmp_path)),))
    sample = Sample(data, files, limit_word_bytes=200_000)
    taken = "".join(sample)
    assert sample.is_part
    assert 100_000 < sample.word_bytes < 200_000
    assert taken.count("again") == 130_000
