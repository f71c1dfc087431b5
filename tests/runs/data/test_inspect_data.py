"""What data is before any plan, and what each method would need of it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.core.token_files import write_llmc, write_megatron, write_raw
from support.runs.running_run import run_async
from support.train.model_folders import write_tokenizer

from trainer_runtime.core.inputs.row_form import ACCEPTED
from trainmaster.answers.data_inspection import InspectedSource
from trainmaster.errors.errors import PlanError, TrainmasterError, UsageError
from trainmaster.runs.data.inspect_data import data_asked_about, inspect_data
from trainmaster.runs.data.inspect_source import Subject, inspect_source
from trainmaster.sync.workspace import Workspace

_GPT2 = [464, 3290, 318, 257, 50256] * 40
_ENGLISH = "It was the best of the days that they had at the sea, and she was there with him. "
_GERMAN = "Es war der schönste von den Tagen, die sie mit ihm an der See hatte, und das ist wahr. "
_RUSSIAN = "Это был самый лучший день из тех, что они провели у моря, и он не забыл его. "
_SPEC = """\
name: small
framework: trl
method: sft
model: {{path: {model}}}
data: {{sources: [{{path: {source}, format: jsonl}}], validation: [{{path: {validation}}}]}}
steps: 20
"""
_CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def found_at(path: Path) -> InspectedSource:
    return inspect_source(Subject(path, str(path)))


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def learning(source: InspectedSource) -> set[str]:
    assert set(source.methods or {}) in (set(), set(ACCEPTED))
    return {method for method, found in (source.methods or {}).items() if found == "yes"}


@pytest.mark.parametrize(
    ("row", "methods"),
    [
        ({"text": "a"}, {"pretrain", "sft"}),
        ({"messages": _CHAT}, {"sft", "litgpt sft"}),
        ({"prompt": "a", "completion": "b"}, {"sft", "litgpt sft", "grpo"}),
        ({"prompt": "a", "completion": "b", "label": True}, {"sft", "litgpt sft", "grpo", "kto"}),
        ({"chosen": "a", "rejected": "b"}, {"dpo", "reward"}),
        ({"instruction": "a", "output": "b"}, {"litgpt sft"}),
        ({"conversations": [{"from": "human", "value": "a"}]}, set()),
    ],
)
def test_each_method_says_whether_it_learns_from_the_rows(
    tmp_path: Path, row: dict[str, Any], methods: set[str]
) -> None:
    source = found_at(write_rows(tmp_path / "rows.jsonl", [row] * 3))
    assert (source.format, source.rows, source.rows_estimated) == ("jsonl", 3, None)
    assert learning(source) == methods
    assert source.methods is not None
    assert all(needs in ("yes", ACCEPTED[name]) for name, needs in source.methods.items())


def test_a_value_that_no_method_takes_is_named_with_its_line(tmp_path: Path) -> None:
    rows = [{"text": "fine"}, {"text": None}, {"text": "fine", "id": 7}]
    source = found_at(write_rows(tmp_path / "rows.jsonl", rows))
    assert learning(source) == set()
    assert source.untrusted_problems is not None
    assert "rows.jsonl, line 2: `text` is null, not a text" in source.untrusted_problems
    fields = source.untrusted_fields
    assert fields is not None
    assert (fields.name, fields.type) == (["text", "id"], ["null or text", "number"])
    assert fields.present == pytest.approx([1.0, 1 / 3])


def test_rows_of_a_large_file_are_estimated_from_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for number in range(30_000):
            file.write(json.dumps({"text": f"{number} " + "a" * (100 if number < 9e3 else 700)}))
            file.write("\n")
    source = found_at(path)
    assert source.rows_estimated and source.rows == pytest.approx(30_000, rel=0.7)
    assert source.sampled_bytes is not None and source.sampled_bytes <= 17 << 20


def test_texts_have_languages_duplicates_lengths_and_odd_bytes(tmp_path: Path) -> None:
    texts = [f"{number}. {_ENGLISH}" for number in range(9)]
    (tmp_path / "a.txt").write_text("\n\n".join([*texts, texts[0].upper()]))
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff \0 \xef\xbf\xbd")
    source = found_at(tmp_path)
    assert source.format == "text" and source.files == {
        "text": 1,
        "binary, of no kind that is known": 1,
    }
    assert source.languages == "100 % Latin script, English by its words"
    assert source.duplicates == pytest.approx(0.1)
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo \xff \xef\xbf\xbd")
    odd = {"byte_order_mark": 1, "replacement_character": 1, "crlf": 1, "undecodable": 1}
    assert found_at(tmp_path / "b.txt").odd_bytes == odd
    assert source.tokens == {"byte": (tmp_path / "a.txt").stat().st_size}
    assert source.length_chars is not None and source.length_chars["max"] == len(texts[0].strip())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_GERMAN * 9, "Latin script, German by its words"),
        (_RUSSIAN * 9, "Cyrillic script, Russian by its words"),
        ("今天天气很好我们去海边散步" * 20, "100 % Chinese characters"),
        ("def value(self): return self.items[0]\n" * 40, "Latin script, language not recognised"),
        ("lorem ipsum dolor sit amet " * 40, "language not recognised"),
    ],
)
def test_a_language_is_named_only_where_script_or_words_show_it(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "a.txt").write_text(text)
    assert said in (found_at(tmp_path / "a.txt").languages or "")


@pytest.mark.parametrize(
    ("name", "write", "kind", "data_format"),
    [
        ("a.bin", lambda path: write_raw(path, _GPT2), "tokens of nanoGPT", "tokens"),
        ("a.bin", lambda path: write_llmc(path, _GPT2), "tokens of llm.c", "tokens"),
        ("a.bin", lambda path: write_megatron(path, [_GPT2]), "tokens of Megatron", "tokens"),
        ("a.gz", lambda path: path.write_bytes(gzip.compress(b"\0a")), "compressed by gzip", None),
        ("a.xz", lambda path: path.write_bytes(lzma.compress(b"\0a")), "compressed by xz", None),
        ("a", lambda path: path.write_bytes(bz2.compress(b"a")), "compressed by bzip2", None),
        ("a.mds", lambda path: path.write_bytes(b"\1\2"), "MosaicML Streaming (MDS)", None),
        ("chunk-0-0.bin", lambda path: path.write_bytes(b"\1\2"), "LitData", None),
        ("a.tfrecord", lambda path: path.write_bytes(b"\1\2"), "TFRecord", None),
        ("0001.tar", lambda path: path.write_bytes(b"\1\2"), "WebDataset", None),
        ("a.json", lambda path: path.write_text('[{"text": "a"}]'), "one JSON document", None),
        ("a.dat", lambda path: path.write_text('{"text": "a"}\n'), "JSON Lines", "jsonl"),
    ],
)
def test_files_are_known_by_content_and_foreign_shards_by_their_library(
    tmp_path: Path, name: str, write: Callable[[Path], object], kind: str, data_format: str | None
) -> None:
    write(tmp_path / name)
    has_index = kind == "tokens of Megatron"  # which belongs to it
    source = found_at(tmp_path if has_index else tmp_path / name)
    assert any(kind in named for named in source.files) and source.format == data_format
    if data_format == "tokens":
        assert (source.tokens, learning(source)) == ({"ready": 200}, {"pretrain"})
    if data_format is None:
        assert source.methods is None and source.tokens is None


_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("method", _COMPRESS)
def test_a_compressed_file_is_inspected_as_what_it_holds(tmp_path: Path, method: str) -> None:
    rows = "".join(f'{{"text": "{number} {_ENGLISH}"}}\n' for number in range(300))
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.packed"
    plain.write_text(rows)
    packed.write_bytes(_COMPRESS[method](rows.encode()))
    source, same = found_at(packed), found_at(plain)
    assert source.files == {f"JSON Lines, compressed by {method}": 1}
    assert source.size_bytes == packed.stat().st_size
    for field in ("format", "rows", "tokens", "languages", "length_chars", "methods"):
        assert getattr(source, field) == getattr(same, field), field
    packed.write_bytes(_COMPRESS[method](_ENGLISH.encode() * 99))
    text = found_at(packed)
    assert (text.format, text.tokens) == ("text", {"byte": 99 * len(_ENGLISH)})
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    assert any("is cut off" in problem for problem in found_at(packed).untrusted_problems or ())


def test_rows_of_a_large_compressed_file_are_estimated_from_its_beginning(tmp_path: Path) -> None:
    rows = "".join(f'{{"text": "{number} {"a" * 1500}"}}\n' for number in range(30_000))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode(), 1))
    source = found_at(tmp_path / "a.jsonl.gz")
    assert source.rows_estimated and source.rows == pytest.approx(30_000, rel=0.1)
    assert source.sampled_bytes is not None and source.sampled_bytes <= 17 << 20


def test_parquet_and_saved_data_sets_show_rows_and_fields(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"prompt": "a", "completion": "b", "n": 1}] * 50)
    rows.to_parquet(tmp_path / "a.parquet")
    rows.save_to_disk(tmp_path / "saved")
    for path, data_format in ((tmp_path / "a.parquet", "parquet"), (tmp_path / "saved", "hf")):
        source = found_at(path)
        assert (source.format, source.rows) == (data_format, 50)
        assert learning(source) == {"sft", "litgpt sft", "grpo"}
        assert source.untrusted_fields is not None
        assert source.untrusted_fields.type == ["text", "text", "number"]
        assert source.duplicates == pytest.approx(0.98)
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    cut = found_at(tmp_path / "a.parquet")
    assert cut.rows is None and "is cut off" in (cut.untrusted_problems or [""])[0]


def test_rows_that_would_take_too_much_memory_are_not_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    small, huge = pyarrow.array(["a"]), pyarrow.array(["a" * (300 << 20)])
    path = tmp_path / "a.parquet"
    with parquet.ParquetWriter(path, pyarrow.schema([("text", pyarrow.string())])) as writer:
        for column in (small, huge):
            writer.write_table(pyarrow.table({"text": column}))
    source = found_at(path)
    assert source.rows == 2 and "can't be read within 128 MiB" in (source.notes or [""])[-1]
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    path = tmp_path / "a.arrow"
    batch = pyarrow.record_batch({"text": huge})
    with pyarrow.ipc.new_stream(str(path), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    assert path.stat().st_size < 1 << 20
    source = found_at(path)
    assert source.rows is None and "can't be read within 128 MiB" in (source.notes or [""])[-1]


def test_a_large_index_of_megatron_is_read_at_its_end_alone(tmp_path: Path) -> None:
    path = write_megatron(tmp_path / "a", [[7, 8]] * 40)
    index = path.with_suffix(".idx")
    assert found_at(tmp_path).tokens == {"ready": 80}
    index.write_bytes(index.read_bytes()[:-1])
    problems = found_at(tmp_path).untrusted_problems or [""]
    assert "one is cut off" in problems[0]


def test_a_wordpiece_vocabulary_is_left_to_the_host(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    (tmp_path / "a.txt").write_text("word " * 1000)
    inspected = inspect_source(Subject(tmp_path / "a.txt", "a.txt", tokenizer=str(folder)))
    assert inspected.tokens == {"byte": 5000}
    assert any("bert holds a vocab.txt" in note for note in inspected.notes or [])


def test_tokens_are_estimated_by_a_local_tokenizer(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "own", ["word"])
    (tmp_path / "a.txt").write_text("word " * 1000)
    found = inspect_source(Subject(tmp_path / "a.txt", "a.txt", tokenizer=str(folder)))
    assert found.tokens is not None and found.tokens["byte"] == 5000
    assert set(found.tokens) == {"byte", "own"} and 0 < found.tokens["own"] <= 5000
    missing = inspect_source(Subject(tmp_path / "a.txt", "a.txt", tokenizer=str(tmp_path / "no")))
    assert missing.tokens == {"byte": 5000}
    assert any("the folder does not exist" in note for note in missing.notes or [])


def test_a_spec_s_sources_are_judged_as_it_declares_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "pairs.jsonl", [{"chosen": "a", "rejected": "b"}])
    own = tmp_path / "val.txt"
    own.write_text(_ENGLISH)
    spec = tmp_path / "spec.yaml"
    spec.write_text(_SPEC.format(model=tmp_path, source="pairs.jsonl", validation=own))
    inspection = run_async(lambda: inspect_data(workspace, str(spec)))
    source, validation = inspection.sources
    assert (source.path, validation.path) == (str(rows), str(own))
    assert (source.held_out, validation.held_out) == (None, True)
    assert "sft takes" in (source.untrusted_problems or [""])[0]
    assert validation.untrusted_problems is None
    spec.write_text(
        _SPEC.format(model=tmp_path, source="host:/data", validation=own).replace(
            "steps", "host: far\nsteps"
        )
    )
    (there, _) = run_async(lambda: inspect_data(workspace, str(spec))).sources
    assert there.files == {} and "it lies on far" in (there.notes or [""])[0]


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("hf://owner/name/file", "NOT_YET_SUPPORTED"),
        ("s3://bucket/key", "NOT_YET_SUPPORTED"),
        ("host:/data", "BAD_ARGUMENT"),
        ("gpu1:/data", "BAD_ARGUMENT"),
        ("./nothing-here", "DATA_MISSING"),
        ("a\0b", "BAD_ARGUMENT"),
        ("nothing.yaml", "SPEC_NOT_READABLE"),
    ],
)
def test_what_can_t_be_inspected_is_refused_with_a_remedy(
    workspace: Workspace, named: str, code: str
) -> None:
    with pytest.raises(TrainmasterError) as raised:
        run_async(lambda: inspect_data(workspace, named))
    assert raised.value.code == code and raised.value.remedy
    assert isinstance(raised.value, UsageError | PlanError) or code == "SPEC_NOT_READABLE"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ("data: ./corpus", "./corpus"),
        ('data: "a b/c"', "a b/c"),
        ("data: hf://a/b\n", "hf://a/b"),
        ("data: {sources: [{path: a}]}", None),
        ("data:\n  sources: []", None),
        ("framework: hf", None),
        ("name: a\ndata: b", None),
    ],
)
def test_a_spec_of_nothing_but_a_path_asks_what_lies_there(spec: str, path: str | None) -> None:
    assert data_asked_about(spec) == path


def test_garbage_pipes_empty_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(random.Random(7).randbytes(100_000))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    (tmp_path / "nothing.txt").touch()
    with (tmp_path / "sparse.txt").open("wb") as file:
        file.truncate(1 << 30)
    for name, said in (
        ("garbage", "is not text"),
        ("sparse.txt", "is not text"),
        ("pipe", "it is not a regular file"),
        ("empty", "it holds no file that may be read"),
        ("missing", "there is nothing at this path"),
    ):
        source = found_at(tmp_path / name)
        assert said in (source.untrusted_problems or [""])[0], name
        assert source.format is None and source.methods is None, name
    whole = found_at(tmp_path)
    assert whole.files == {"binary, of no kind that is known": 2, "empty": 1}
    assert "Left out: 1 (not a regular file)." in (whole.notes or [])


def test_links_out_of_a_folder_and_credentials_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("outside")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text(_ENGLISH)
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "around").symlink_to(folder)
    (folder / "id_rsa").write_text("key")
    (folder / ".hidden").write_text("x")
    source = found_at(folder)
    assert source.files == {"text": 1} and "outside" not in str(source)
    assert source.notes == [
        "Left out: 1 (a link out of the folder).",
        "Left out: 1 (hidden).",
        "Left out: 1 (named as credentials are, or protected).",
        "Left out: 1 (not a regular file).",
    ]


def test_rows_that_are_too_deep_long_or_wide_are_named_and_not_counted_wrongly(
    tmp_path: Path,
) -> None:
    deep, wide = '{"text":' + "[" * 200_000 + "]" * 200_000 + "}", "{}," * 600_000 + "{}"
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text":"a"}}\n{deep}\n{{"text":"a","x":[{wide}]}}\n{{"text":"b"}}\n')
    source = found_at(path)
    problems = " ".join(source.untrusted_problems or [])
    assert source.rows == 4 and "line 2: " in problems
    assert "line 3: it holds over 100,000 values, and was not read" in problems
    assert source.methods is not None and source.methods["pretrain"] != "yes"
    path.write_text('{"text":"' + "a" * (3 << 20) + '"}\n{"text":"b"}\n')
    long = found_at(path)
    assert (long.rows, long.tokens, long.methods) == (None, None, None)
    assert "line 1: over 2 MiB long" in (long.untrusted_problems or [""])[0]


def test_a_text_without_paragraphs_and_a_sparse_one_stay_within_the_sample(tmp_path: Path) -> None:
    (tmp_path / "line.txt").write_text("word " * (4 << 20))
    with (tmp_path / "sparse.txt").open("wb") as file:
        file.write(b"some text\n" * 2000)
        file.truncate(1 << 30)
    line, sparse = found_at(tmp_path / "line.txt"), found_at(tmp_path / "sparse.txt")
    assert line.sampled_bytes == sparse.sampled_bytes == 16 << 20
    assert line.length_chars is line.duplicates is None
    assert sparse.odd_bytes is not None and sparse.odd_bytes["nul"] > 15 << 20


def test_examples_of_hostile_text_are_shown_without_what_could_act(tmp_path: Path) -> None:
    text = "\x1b[31mred\x1b[0m \u202e hidden\u200b " + "x" * 5000
    source = found_at(write_rows(tmp_path / "rows.jsonl", [{"text": text, "\x1b[2J\u202e": 1}]))
    (shown,) = source.untrusted_examples or []
    assert len(shown) < 400
    fields = source.untrusted_fields
    assert fields is not None
    assert all(text.isprintable() for text in [shown, *fields.name])
