"""What a source holds is recognised, and refused where training would read it as garbage."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from support.core.token_files import write_llmc, write_megatron, write_raw

from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainer_runtime.core.inputs.held_out_copies import trained_on
from trainer_runtime.core.inputs.source_check import check_source
from trainer_runtime.core.inputs.token_files import open_token_file

_GPT2 = [464, 3290, 318, 257, 50256] * 40
_LLAMA = [128000, 9906, 1917, 128001] * 40
Write = Callable[[Path], object]


def problem(path: Path, data_format: str = "text", kind: str = "pretrain", **more: bool) -> str:
    found = check_source(AskedSource(str(path), data_format, kind, **more))
    assert found.problem is None
    return found.malformed or ""


def json_lines(*rows: object) -> Write:
    return lambda path: path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_bytes(bz2.compress(b"text " * 99)), "compressed by bzip2"),
        (lambda path: path.write_bytes(gzip.compress(b"PAR1" + bytes(99))), "gzip of a Parquet"),
        (lambda path: path.write_bytes(lzma.compress(bytes(999))), "is not text"),
        (lambda path: path.write_bytes(b"PAR1" + bytes(99) + b"PAR1"), "format to parquet"),
        (lambda path: path.write_bytes(b"ARROW1\0\0" + bytes(99)), "format to arrow"),
        (lambda path: path.write_bytes(pickle.dumps([1, 2, 3])), "a Python pickle"),
        (lambda path: path.write_bytes("text".encode("utf-16")), "UTF-16"),
        (lambda path: path.write_bytes(bytes(range(256)) * 9), "is not text"),
        (lambda path: write_raw(path, _GPT2), "token ids, set the source's format to tokens"),
        (lambda path: write_llmc(path, _GPT2), "a file of tokens with llm.c's header"),
        (json_lines({"text": "a"}, {"text": "b"}), "set the source's format to jsonl"),
        (json_lines({"text": "a" * 9000}), "set the source's format to jsonl"),
    ],
)
def test_what_is_no_text_is_recognised_before_it_is_trained_on(
    tmp_path: Path, write: Write, said: str
) -> None:
    write(tmp_path / "data")
    assert said in problem(tmp_path / "data")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "\x1b[31mcolours\x1b[0m of a log\n" * 9,
        "Wörter, 文字\f\n",
        '{"not": "all of it is JSON"\nbut text\n',
        "{a: template}\n",
        "",
    ],
)
def test_text_is_taken_as_it_is(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert problem(tmp_path / "a.txt") == ""


_COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("ending", list(_COMPRESS))
def test_compressed_text_is_checked_as_what_it_holds_and_its_size_estimated(
    tmp_path: Path, ending: str
) -> None:
    compress = _COMPRESS[ending]
    (tmp_path / f"a.txt.{ending}").write_bytes(compress(b"some words\n" * 90_000))
    (tmp_path / "b.txt").write_bytes(b"plain words\n" * 10)
    found = check_source(AskedSource(str(tmp_path)))
    assert (found.problem, found.malformed, len(found.files)) == (None, None, 2)
    assert found.compression == ({"gz": "gzip", "zst": "zstd"}.get(ending, ending),)
    assert found.plain_bytes == pytest.approx(990_120, rel=0.01)
    (tmp_path / f"a.txt.{ending}").write_bytes(compress(b'{"text": "a"}\n' * 9))
    assert "format to jsonl" in problem(tmp_path / f"a.txt.{ending}")
    (tmp_path / f"a.txt.{ending}").write_bytes(compress("Größe“".encode("cp1252") * 99))
    assert "is not UTF-8" in problem(tmp_path / f"a.txt.{ending}")


@pytest.mark.parametrize("ending", list(_COMPRESS))
def test_compressed_rows_are_listed_and_read_and_a_cut_off_file_is_named(
    tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"rows.jsonl.{ending}"
    content = b"".join(b'{"text": "row %d"}\n' % number for number in range(50_000))
    file.write_bytes(_COMPRESS[ending](content))
    found = check_source(AskedSource(str(tmp_path), "jsonl"))
    assert [listed.name for listed in found.files] == [file.name]
    assert found.malformed is None and found.examples == pytest.approx(50_000, rel=0.5)
    file.write_bytes(_COMPRESS[ending](content)[:-9])
    assert problem(file, "jsonl").startswith(f"{file} is cut off")


def test_a_row_that_may_be_skipped_is_counted_and_named_and_more_are_refused(
    tmp_path: Path,
) -> None:
    good = [{"text": f"row {number}"} for number in range(3_000)]
    json_lines(good[0], {"body": ""}, *good)(tmp_path / "a.jsonl")
    found = check_source(AskedSource(str(tmp_path / "a.jsonl"), "jsonl"))
    assert (found.malformed, found.bad_rows) == (None, 1)
    assert found.first_bad and found.first_bad.startswith("a.jsonl, line 2: it has no `text`")
    refused = check_source(AskedSource(str(tmp_path / "a.jsonl"), "jsonl", bad_rows=0.0))
    assert "a.jsonl, line 2: it has no `text`" in (refused.malformed or "")
    json_lines(*[{"body": ""}] * 30, *good * 30)(tmp_path / "a.jsonl")
    assert "30 of the 100 rows read can't be used" in problem(tmp_path / "a.jsonl", "jsonl")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "cp1251", "gbk", "shift_jis"])
def test_text_in_another_encoding_is_refused_wherever_it_begins(
    tmp_path: Path, encoding: str
) -> None:
    words = "Größe“" if encoding == "cp1252" else "Größe" if encoding == "latin-1" else "文字"
    words = "слово " if encoding == "cp1251" else words
    for before in (0, 50_000, 100_000):
        (tmp_path / "a.txt").write_bytes(b"plain\n" * before + words.encode(encoding) * 9)
        assert "a.txt is not UTF-8" in problem(tmp_path / "a.txt"), before
        assert "iconv -f" in problem(tmp_path)


def test_single_damaged_bytes_are_counted_and_trained_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff" + "Größe 文字 \ufffd\n".encode() * 4_000)
    found = check_source(AskedSource(str(tmp_path / "a.txt")))
    assert (found.malformed, found.undecodable) == (None, 1)


def test_windows_of_a_long_text_may_begin_within_a_character(tmp_path: Path) -> None:
    for shift in range(4):
        (tmp_path / "a.txt").write_bytes(b"a" * shift + "文𝄞ö".encode() * 20_000)
        found = check_source(AskedSource(str(tmp_path / "a.txt")))
        assert (found.malformed, found.undecodable) == (None, 0)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("shard.00000.mds", "MosaicML Streaming (MDS)"),
        ("train/shard.00000.mds.zstd", "MosaicML Streaming (MDS)"),
        ("chunk-0-0.bin", "LitData"),
        ("000000.tar", "WebDataset"),
        ("part.tfrecord-00000-of-00010", "TFRecord"),
    ],
)
def test_a_folder_of_shards_is_refused_by_name_and_not_trained_on_by_its_index(
    tmp_path: Path, name: str, library: str
) -> None:
    (tmp_path / "index.json").write_text('{"version": 2, "shards": []}')
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(bytes(range(256)))
    said = problem(tmp_path)
    remedy = "framework script" if library == "LitData" else "set the source's format to"
    assert f"{name} is a shard of {library}" in said and remedy in said


def test_a_folder_whose_text_only_describes_the_rest_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("What the others are.\n")
    (tmp_path / "weights.dat").write_bytes(bytes(100_000))
    assert "text is 21 bytes of it (README.md)" in problem(tmp_path)


def test_what_a_folder_of_text_leaves_out_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A line.\n" * 99)
    (tmp_path / "picture.png").write_bytes(bytes(99))
    (tmp_path / ".hidden").write_bytes(bytes(99))
    found = check_source(AskedSource(str(tmp_path)))
    assert (found.malformed, found.left_out, found.left_name) == (None, 1, "picture.png")


def test_json_is_text_where_it_is_called_so_or_lies_among_other_texts(tmp_path: Path) -> None:
    json_lines({"a": 1}, {"a": 2})(tmp_path / "rows.jsonl")
    assert "format to jsonl" in problem(tmp_path)
    assert problem(tmp_path, stated=True) == ""
    (tmp_path / "code.py").write_text("print()\n")
    assert problem(tmp_path) == ""


def test_a_folder_without_text_says_what_it_holds_instead(tmp_path: Path) -> None:
    write_raw(tmp_path / "train.bin", [5, 6, 7] * 40)
    assert "train.bin: set the source's format to tokens" in problem(tmp_path)


@pytest.mark.parametrize(
    ("row", "kind", "hint"),
    [
        ({"conversations": [{"from": "human", "value": "a"}]}, "sft", "ShareGPT's rows"),
        ({"instruction": "a", "input": "", "output": "b"}, "sft", "Alpaca's rows"),
        ({"messages": [{"role": "user", "content": "a"}]}, "pretrain", "method sft learns"),
        ({"chosen": "a", "rejected": "b"}, "sft", "method dpo learns"),
        ([{"text": "a"}], "pretrain", "it holds a JSON array"),
    ],
)
def test_rows_of_other_methods_are_named(tmp_path: Path, row: object, kind: str, hint: str) -> None:
    json_lines(row)(tmp_path / "rows.jsonl")
    assert hint in problem(tmp_path / "rows.jsonl", "jsonl", kind)


def test_a_parquet_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(99))
    assert "or is cut off" in problem(tmp_path / "a.parquet", "parquet")


@pytest.mark.parametrize(
    ("write", "layout", "tokens"),
    [
        (lambda path: write_raw(path, _GPT2), "nanoGPT", _GPT2),
        (lambda path: write_raw(path, [3, 1, 2] * 90), "nanoGPT", [3, 1, 2] * 90),
        (lambda path: write_llmc(path, _GPT2), "llm.c", _GPT2),
        (lambda path: write_llmc(path, _LLAMA, "I"), "llm.c", _LLAMA),
        *(
            (lambda path, code=code: write_megatron(path, [_GPT2[:5], _GPT2[5:]], code), *read)
            for code, *read in (("H", "Megatron", _GPT2), ("i", "Megatron", _GPT2))
        ),
        (lambda path: write_megatron(path, [_LLAMA], "q"), "Megatron", _LLAMA),
    ],
)
def test_tokens_of_every_layout_are_read_in_place(
    tmp_path: Path, write: Write, layout: str, tokens: list[int]
) -> None:
    write(tmp_path / "a.bin")
    file = open_token_file(tmp_path / "a.bin")
    assert (file.layout, file.tokens) == (layout, len(tokens))
    assert [token for chunk in file.numbers() for token in chunk] == tokens
    listed: Listing = check_source(AskedSource(str(tmp_path), "tokens"))
    assert (listed.malformed, listed.tokens) == (None, len(tokens))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: write_raw(path, _GPT2, "i"), "32 or 64 bits wide"),
        (lambda path: write_raw(path, _LLAMA, "I"), "32 or 64 bits wide"),
        (lambda path: write_raw(path, _GPT2, "q"), "32 or 64 bits wide"),
        (lambda path: path.write_bytes(write_raw(path, _GPT2).read_bytes()[:-1]), "is cut off"),
        (lambda path: path.write_bytes(write_llmc(path, _GPT2).read_bytes()[:-2]), "is cut off"),
        (
            lambda path: path.write_bytes(write_megatron(path, [_GPT2]).read_bytes()[:-4]),
            "don't belong together",
        ),
        (
            lambda path: write_megatron(path, [_GPT2]).with_suffix(".idx").write_bytes(b"other"),
            "is not Megatron's index",
        ),
        (lambda path: write_megatron(path, [_GPT2]).unlink(), "an index without its .bin"),
    ],
)
def test_tokens_that_are_cut_off_or_ambiguous_are_refused(
    tmp_path: Path, write: Write, said: str
) -> None:
    write(tmp_path / "a.bin")
    assert said in problem(tmp_path, "tokens")


def test_a_file_whose_index_would_stay_behind_is_refused(tmp_path: Path) -> None:
    write_megatron(tmp_path / "a.bin", [_GPT2])
    assert "give the folder that holds both" in problem(tmp_path / "a.bin", "tokens")


@pytest.mark.parametrize("ending", _COMPRESS)
def test_a_compressed_copy_of_a_training_file_is_no_validation(tmp_path: Path, ending: str) -> None:
    text = "".join(f"Line {number}\n" for number in range(3_000))
    plain, packed = tmp_path / "a.txt", tmp_path / f"b.txt.{ending}"
    plain.write_text(text)
    packed.write_bytes(_COMPRESS[ending](text.encode()))
    for training, held_out in ((plain, packed), (packed, plain)):
        said = trained_on([training], [held_out])
        assert said == f"{held_out} is a copy of {training}, which is trained on"
    packed.write_bytes(_COMPRESS[ending](text.encode() + b"more"))
    assert trained_on([plain], [packed]) is None
    packed.write_bytes(packed.read_bytes()[:-9])
    assert trained_on([plain], [packed]) is None
