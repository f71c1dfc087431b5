"""Shards cut by the packages of the environment that trains, through the preparation itself."""

from __future__ import annotations

import array
import gzip
import json
import lzma
import os
import sys
from pathlib import Path

import pytest
import zstandard
from support.core.token_files import write_llmc, write_megatron
from support.train.model_folders import write_tokenizer
from support.train.shard_files import write_tfrecord, write_webdataset

from trainer_runtime.core.config import RunConfig, SourceConfig
from trainer_runtime.core.files.corpus import AskedSource, Source, fingerprint, list_files
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.core.inputs.bad_rows import BadRows
from trainer_runtime.core.inputs.source_check import check_source
from trainer_runtime.host.environment.training_python import InputUnusableError, TrainingPython
from trainer_runtime.host.prepare.shards import prepare
from trainer_runtime.train.attempt.config import ConfigError
from trainer_runtime.train.data.batches import Corpus
from trainer_runtime.train.data.documents import PIECE_CHARACTERS, pieces
from trainer_runtime.train.data.tokenizers import tokenizer_of

SEQ_LEN = 16
PYTHON = TrainingPython(sys.executable)


def config_of(
    tmp_path: Path,
    tokenizer: str,
    *sources: tuple[str, Path, str],
    validation: tuple[tuple[str, Path, str], ...] = (),
) -> RunConfig:
    listed = [
        Source(name, str(path), list_files(path, form), form, held_out)
        for part, held_out in ((sources, False), (validation, True))
        for name, path, form in part
    ]
    digest = "byte" if tokenizer == "byte" else read_tokenizer_folder(tokenizer).digest
    data = {
        "sources": [
            {"name": name, "path": str(path), "format": form} for name, path, form in sources
        ],
        "validation": [
            {"name": name, "path": str(path), "format": form} for name, path, form in validation
        ],
        "tokenizer": tokenizer,
        "tokenizer_digest": digest,
        "seq_len": SEQ_LEN,
        "fingerprint": fingerprint(listed, digest, SEQ_LEN),
        "cache_dir": str(tmp_path / "cache"),
    }
    return RunConfig.parse({"data": data})


def tokens_of(entry: Path, name: str) -> list[int]:
    """Those of both splits, in order."""
    meta = json.loads((entry / "meta.json").read_bytes())
    size = {"uint16": 2, "uint32": 4}[meta["dtype"]]
    content = b"".join((entry / f"{split}-{name}.bin").read_bytes() for split in ("train", "val"))
    return [
        int.from_bytes(content[at : at + size], "little") for at in range(0, len(content), size)
    ]


def rows(path: Path, texts: list[str], column: str = "text") -> Path:
    path.write_text("".join(f"{json.dumps({column: text})}\n" for text in texts))
    return path


def test_every_format_gives_the_same_tokens_of_the_same_texts(tmp_path: Path) -> None:
    import datasets

    tokenizer = str(write_tokenizer(tmp_path / "tokenizer", ["<x>"]))
    texts = [f"Text {n} with <x> and ümlaut\nin it." for n in range(20)]
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number:02}.txt").write_text(text)
    saved = datasets.Dataset.from_dict({"text": texts})
    saved.save_to_disk(str(tmp_path / "saved"))
    saved.to_parquet(str(tmp_path / "rows.parquet"))
    printed: list[str] = []
    entry = prepare(
        config_of(
            tmp_path,
            tokenizer,
            ("text", folder, "text"),
            ("jsonl", rows(tmp_path / "rows.jsonl", texts), "jsonl"),
            ("parquet", tmp_path / "rows.parquet", "parquet"),
            ("arrow", tmp_path / "saved", "arrow"),
            ("hf", tmp_path / "saved", "hf"),
        ),
        printed.append,
        PYTHON,
    )
    expected: list[int] = []
    for text in texts:
        for part in text.replace("<x>", "\0<x>\0").split("\0"):
            expected += [257] if part == "<x>" else part.encode()
        expected.append(256)
    for name in ("text", "jsonl", "parquet", "arrow", "hf"):
        assert tokens_of(entry, name) == expected, name
    assert f"data: text: 20 documents, {len(expected)} tokens" in printed
    assert (entry / "meta.json").is_file() and not (entry / "cut.json").exists()
    corpus = Corpus.open(entry, ["text", "hf"], SEQ_LEN)
    assert corpus.vocab_size == 258
    assert prepare(config_of(tmp_path, tokenizer, ("text", folder, "text")), printed.append, PYTHON)


def test_wordpiece_cuts_by_vocab_txt_as_transformers_does(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "bert"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word", "##piece", "##s", ",", "文"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    text = "Wordpieces, WÖRD 文 other\n"
    (tmp_path / "a.txt").write_text(text * 9)
    entry = prepare(
        config_of(tmp_path, str(folder), ("main", tmp_path / "a.txt", "text")), print, PYTHON
    )
    theirs = AutoTokenizer.from_pretrained(folder).encode(text, add_special_tokens=False)
    assert tokens_of(entry, "main") == [*theirs * 9, 3]
    assert theirs == [5, 6, 7, 8, 5, 9, 1]


def test_a_large_vocabulary_takes_wider_numbers(tmp_path: Path) -> None:
    import tokenizers

    vocabulary = {"</s>": 0, **{f"w{n}": n for n in range(1, 70_001)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="</s>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    (tmp_path / "tokenizer").mkdir()
    made.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "a.txt").write_text(" ".join(f"w{n}" for n in range(69_900, 70_001)))
    config = config_of(tmp_path, str(tmp_path / "tokenizer"), ("main", tmp_path / "a.txt", "text"))
    entry = prepare(config, print, PYTHON)
    assert tokens_of(entry, "main") == [*range(69_900, 70_001), 0]
    corpus = Corpus.open(entry, ["main"], SEQ_LEN)
    assert corpus.training[0].read([0]).tolist() == [[*range(69_900, 69_917)]]
    assert prepare(config, print) == entry  # complete for every caller


def test_rows_of_text_need_no_tokenizer_of_others(tmp_path: Path) -> None:
    path = rows(tmp_path / "rows.jsonl", ["ab", "c" * 40])
    entry = prepare(config_of(tmp_path, "byte", ("main", path, "jsonl")), print, PYTHON)
    assert tokens_of(entry, "main") == [97, 98, 256, *[99] * 40, 256]


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_compressed_sources_give_the_tokens_of_what_they_hold(tmp_path: Path, ending: str) -> None:
    compress = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}[ending]
    text, more = b"Text with \xc3\xbcmlaut\n" * 9_000, b"the second member\n"
    (tmp_path / f"a.txt.{ending}").write_bytes(compress(text) + compress(more))
    line = json.dumps({"text": "a row"}).encode() + b"\n"
    (tmp_path / f"rows.jsonl.{ending}").write_bytes(compress(line * 40))
    config = config_of(
        tmp_path,
        "byte",
        ("text", tmp_path / f"a.txt.{ending}", "text"),
        ("rows", tmp_path / f"rows.jsonl.{ending}", "jsonl"),
    )
    entry = prepare(config, print, PYTHON)
    assert tokens_of(entry, "text") == [*text, *more, 256]
    assert tokens_of(entry, "rows") == [*b"a row", 256] * 40


@pytest.mark.parametrize("data_format", ["text", "jsonl"])
def test_a_compressed_file_that_is_cut_off_or_damaged_is_named(
    tmp_path: Path, data_format: str
) -> None:
    packed = gzip.compress(b'{"text": "a row"}\n' * 9_000 + os.urandom(999).hex().encode())
    damaged = bytearray(packed)
    damaged[-6] ^= 255  # of its checksum
    for content, problem in ((packed[:-20], "cut off"), (bytes(damaged), "damaged: gzip")):
        (tmp_path / "a.gz").write_bytes(content)
        config = config_of(tmp_path, "byte", ("main", tmp_path / "a.gz", data_format))
        with pytest.raises(InputUnusableError, match=f"a.gz is {problem}"):
            prepare(config, print, PYTHON)


def test_bad_rows_are_skipped_and_counted_and_the_first_is_named(tmp_path: Path) -> None:
    good = json.dumps({"text": "a row"}) + "\n"
    bad = ['{"text": 1}\n', "{broken\n", '{"text": "\xff"}\n']
    content = good + "".join(bad) + good * 3_000
    (tmp_path / "rows.jsonl").write_bytes(content.encode("latin-1"))
    config = config_of(tmp_path, "byte", ("main", tmp_path / "rows.jsonl", "jsonl"))
    printed: list[str] = []
    entry = prepare(config, printed.append, PYTHON)
    assert tokens_of(entry, "main") == [*b"a row", 256] * 3_001
    skipped = json.loads((entry / "meta.json").read_bytes())["sources"][0]["skipped"]
    assert (skipped["rows"], skipped["of"]) == (3, 3_004)
    assert skipped["first"].endswith("rows.jsonl, line 2 has no text under `text`")
    assert f"data: main: 3 of 3,004 rows skipped; the first: {skipped['first']}" in printed


@pytest.mark.parametrize("data_format", ["parquet", "arrow", "hf"])
def test_rows_of_a_table_without_text_are_skipped_and_counted(
    tmp_path: Path, data_format: str
) -> None:
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["a row", None, *["a row"] * 3_000]})
    path = tmp_path / "saved"
    rows.save_to_disk(path)
    if data_format == "arrow":
        path = next(path.glob("*.arrow"))
    elif data_format == "parquet":
        path = tmp_path / "rows.parquet"
        rows.to_parquet(path)
    source = SourceConfig("main", str(path), data_format)
    counted = BadRows(0.001)
    texts = [text for text, _, _ in pieces(source, [str(path)], counted)]
    assert texts == ["a row"] * 3_001
    assert (counted.bad, counted.rows) == (1, 3_002)
    assert counted.first == f"{path}, row 2 has no text under `text`"
    with pytest.raises(ConfigError, match=r"row 2 has no text.*data.bad_rows allows"):
        list(pieces(source, [str(path)], BadRows(0.0)))


def test_more_bad_rows_than_allowed_end_the_preparation_early(tmp_path: Path) -> None:
    """No good rows that may follow could make up for them."""
    good, bad = json.dumps({"text": "a row"}) + "\n", '{"text": 1}\n'
    (tmp_path / "rows.jsonl").write_text(good + bad * 4 + good * 2_000)
    source = SourceConfig("main", str(tmp_path / "rows.jsonl"), "jsonl")
    for share, most_read in ((0.001, 2_001), (0.0, 1)):
        counted = BadRows(share)
        with pytest.raises(ConfigError, match=r"line 2 has no text.*data.bad_rows allows"):
            list(pieces(source, [source.path], counted))
        assert counted.rows - counted.bad <= most_read


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"text": "a"}\n{"body": "b"}\n', "line 2 has no text under `text`"),
        ('{"text": "a"}\n{broken\n', "line 2 is not JSON"),
        ('{"text": "a"}\n', "need 34"),
    ],
)
def test_rows_that_give_no_texts_are_named(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    config = config_of(tmp_path, "byte", ("main", tmp_path / "rows.jsonl", "jsonl"))
    with pytest.raises(InputUnusableError, match=problem):
        prepare(config, print, PYTHON)
    assert not list((tmp_path / "cache" / "data").glob("*/meta.json"))


def test_a_long_text_is_read_in_pieces_that_lose_nothing(tmp_path: Path) -> None:
    text = "Wörter und\nZeilen. " * 20_000 + "ohne" * PIECE_CHARACTERS
    (tmp_path / "a.txt").write_text(text)
    read = list(pieces(SourceConfig("a"), [str(tmp_path / "a.txt")]))
    assert "".join(piece for piece, _, _ in read) == text
    assert max(len(piece) for piece, _, _ in read) <= PIECE_CHARACTERS
    assert [ends for _, ends, _ in read] == [False] * (len(read) - 1) + [True]


def test_tokens_that_are_there_already_are_taken_as_they_are(tmp_path: Path) -> None:
    tokens = array.array("H", [*b"abc", 256] * 20)
    (tmp_path / "train.bin").write_bytes(tokens.tobytes())
    entry = prepare(
        config_of(tmp_path, "byte", ("main", tmp_path / "train.bin", "tokens")), print, PYTHON
    )
    assert tokens_of(entry, "main") == tokens.tolist()
    (tmp_path / "train.bin").write_bytes(array.array("H", [50256] * 40).tobytes())
    with pytest.raises(InputUnusableError, match="holds token 50,256, but the vocabulary has 257"):
        prepare(
            config_of(tmp_path, "byte", ("main", tmp_path / "train.bin", "tokens")), print, PYTHON
        )


def test_ready_tokens_of_a_known_vocabulary_need_no_tokenizer(tmp_path: Path) -> None:
    tokens = array.array("H", [*range(65)] * 4)
    (tmp_path / "train.bin").write_bytes(tokens.tobytes())
    named = config_of(tmp_path, "byte", ("main", tmp_path / "train.bin", "tokens")).document["data"]
    for size in (65, 64):
        without = {**named, "tokenizer": "none", "tokenizer_digest": f"none-{size}"}
        files = list_files(tmp_path / "train.bin", "tokens")
        listed = [Source("main", named["sources"][0]["path"], files, "tokens")]
        without |= {"vocab_size": size, "fingerprint": fingerprint(listed, f"none-{size}", SEQ_LEN)}
        config = RunConfig.parse({"data": without})
        if size == 65:
            entry = prepare(config, print, PYTHON)
            assert tokens_of(entry, "main") == tokens.tolist()
            assert json.loads((entry / "meta.json").read_bytes())["vocab_size"] == 65
        else:
            with pytest.raises(InputUnusableError, match="token 64, but the vocabulary has 64"):
                prepare(config, print, PYTHON)
    reads = tokenizer_of(config.data)
    assert reads.encode(["3 63"]) == [[3, 63]]
    assert reads.decode([3, 63]) == "3 63"
    with pytest.raises(ConfigError, match="give numbers below 64"):
        reads.encode(["to be"])


def test_tokens_of_others_are_taken_in_place_and_theirs_for_validation_never_trained_on(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    documents = [[*b"abc", 256] * 10, [*b"defg", 256] * 4]
    write_megatron(folder / "my_train_document.bin", documents)
    write_llmc(folder / "my_val_000000.bin", [*b"xyz", 256] * 10)
    printed: list[str] = []
    config = config_of(tmp_path, "byte", ("main", folder, "tokens"))
    entry = prepare(config, printed.append, PYTHON)
    train, val = documents[0] + documents[1], [*b"xyz", 256] * 10
    assert tokens_of(entry, "main") == train + val
    assert "data: main: 2 documents, 60 tokens" in printed
    (source,) = json.loads((entry / "meta.json").read_bytes())["sources"]
    assert (source["train"]["tokens"], source["val"]["tokens"]) == (60, 40)
    assert Corpus.open(entry, ["main"], SEQ_LEN).training[0].read([0]).tolist() == [train[:17]]


def test_validation_tokens_among_the_sources_are_not_trained_on_where_others_are_named(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tokens"
    folder.mkdir()
    (folder / "train.bin").write_bytes(array.array("H", [1, 2, 3] * 20).tobytes())
    (folder / "val.bin").write_bytes(array.array("H", [9] * 60).tobytes())
    own = rows(tmp_path / "own.jsonl", ["some text to evaluate"])
    source, held_out = ("main", folder, "tokens"), ("own", own, "jsonl")
    config = config_of(tmp_path, "byte", source, validation=(held_out,))
    corpus = Corpus.open(prepare(config, print, PYTHON), ["main"], SEQ_LEN)
    (training,) = corpus.training
    assert set(training.read(range(len(training))).flatten().tolist()) == {1, 2, 3}
    assert corpus.validation_names == ("own",)
    assert bytes(corpus.validation[0].read([0])[0].tolist()) == b"some text to eval"


def test_a_negative_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    write_megatron(tmp_path / "tokens/a.bin", [[5, -1, 7] * 20])
    with pytest.raises(InputUnusableError, match="holds token -1"):
        prepare(config_of(tmp_path, "byte", ("main", tmp_path / "tokens", "tokens")), print, PYTHON)


def test_latin_1_behind_what_the_plan_has_sampled_ends_the_preparation(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(
        b"plain text\n" * 20_000 + "Größe ".encode("latin-1") * 60 + b"text\n" * 40_000
    )
    assert check_source(AskedSource(str(file))).malformed is None
    with pytest.raises(ConfigError, match=r"a\.txt is not UTF-8: \d+ of"):
        list(pieces(SourceConfig(name="main", path=str(file)), [str(file)]))


def test_damaged_bytes_are_counted_over_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_bytes("Größe\n".encode() * 5_000 + b"\xc3")
    read = "".join(
        text for text, *_ in pieces(SourceConfig(name="main", path="x"), [*map(str, files)])
    )
    assert read.count("\ufffd") == 2
    assert "2 of 80,002 bytes are not UTF-8" in capsys.readouterr().out


@pytest.mark.parametrize("data_format", ["webdataset", "tfrecord"])
def test_other_libraries_shards_give_the_tokens_of_the_same_rows(
    tmp_path: Path, data_format: str
) -> None:
    rows = [{"text": f"A line of text, number {number}."} for number in range(40)]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    write, ending = {
        "webdataset": (write_webdataset, ".tar"),
        "tfrecord": (write_tfrecord, ".tfrecord"),
    }[data_format]
    path = tmp_path / f"rows{ending}"
    write(path, rows)
    wanted = prepare(config_of(tmp_path, "byte", ("main", lines, "jsonl")), print, PYTHON)
    cut = prepare(config_of(tmp_path, "byte", ("main", path, data_format)), print, PYTHON)
    for part in ("train-main.bin", "val-main.bin"):
        assert (cut / part).read_bytes() == (wanted / part).read_bytes()
    content = path.read_bytes()
    at = content.index(b"number 20")
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    with pytest.raises(InputUnusableError, match=path.name):
        prepare(config_of(tmp_path, "byte", ("main", path, data_format)), print, PYTHON)
