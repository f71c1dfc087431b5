"""Rows of other libraries' shards as these write them; damage is named with its file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard
from support.train.shard_files import mds_shard, write_tfrecord, write_webdataset

from trainer_runtime.core.files.corpus import AskedSource, list_files
from trainer_runtime.core.inputs.shard_rows import ShardError, shard_rows
from trainer_runtime.core.inputs.source_check import check_source

ROWS: list[dict[str, Any]] = [
    {"text": f"Zeile {number} äö", "label": number} for number in range(5)
]
MDS_ROWS = [{**row, "meta": {"n": row["label"]}} for row in ROWS[:3]]
NAMES = {"webdataset": "a.tar", "tfrecord": "a.tfrecord", "mds": "shard.00000.mds"}


def write(folder: Path, data_format: str) -> Path:
    path = folder / NAMES[data_format]
    folder.mkdir(exist_ok=True)
    if data_format == "webdataset":
        write_webdataset(path, ROWS)
    elif data_format == "tfrecord":
        write_tfrecord(path, ROWS)
    else:
        path.write_bytes(mds_shard())
    return path


@pytest.mark.parametrize("data_format", NAMES)
def test_rows_are_those_that_the_library_wrote(tmp_path: Path, data_format: str) -> None:
    rows = list(shard_rows(write(tmp_path, data_format), data_format))
    assert rows == (MDS_ROWS if data_format == "mds" else ROWS)


@pytest.mark.parametrize(
    ("data_format", "ending"), [("webdataset", ".gz"), ("tfrecord", ".gz"), ("mds", ".zstd")]
)
def test_compressed_shards_are_read_as_what_they_hold(
    tmp_path: Path, data_format: str, ending: str
) -> None:
    path = write(tmp_path, data_format)
    rows = list(shard_rows(path, data_format))
    pack = gzip.compress if ending == ".gz" else zstandard.compress
    packed = path.with_name(path.name + ending)
    packed.write_bytes(pack(path.read_bytes()))
    path.unlink()
    assert [file.name for file in list_files(tmp_path, data_format)] == [packed.name]
    assert list(shard_rows(packed, data_format)) == rows


@pytest.mark.parametrize("data_format", NAMES)
def test_a_shard_that_is_cut_off_is_named(tmp_path: Path, data_format: str) -> None:
    path = write(tmp_path, data_format)
    path.write_bytes(path.read_bytes()[: 700 if data_format == "webdataset" else -9])
    with pytest.raises(ShardError, match=path.name):
        list(shard_rows(path, data_format))


@pytest.mark.parametrize("data_format", NAMES)
def test_a_damaged_sample_is_named_with_its_file(tmp_path: Path, data_format: str) -> None:
    path = write(tmp_path, data_format)
    content = path.read_bytes()
    at = content.index(b"Zeile 2")
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    with pytest.raises(ShardError, match=r"a\.tar: member 000002\.txt|record 2|sample 2"):
        list(shard_rows(path, data_format))


@pytest.mark.parametrize("data_format", NAMES)
def test_a_plan_refuses_what_only_has_the_name(tmp_path: Path, data_format: str) -> None:
    path = write(tmp_path, data_format)
    assert check_source(AskedSource(str(tmp_path), data_format)).malformed is None
    path.write_bytes(b'{"text": "not a shard"}\n' * 100)
    checked = check_source(AskedSource(str(tmp_path), data_format))
    assert checked.malformed is not None and path.name in checked.malformed


@pytest.mark.parametrize("data_format", NAMES)
def test_rows_of_another_method_are_refused(tmp_path: Path, data_format: str) -> None:
    write(tmp_path, data_format)
    checked = check_source(AskedSource(str(tmp_path), data_format, "dpo"))
    assert "`chosen` and `rejected`" in str(checked.malformed)


def test_a_numbered_tfrecord_file_is_listed(tmp_path: Path) -> None:
    write(tmp_path, "tfrecord").rename(tmp_path / "train.tfrecord-00000-of-00001")
    assert len(list_files(tmp_path, "tfrecord")) == 1


def test_members_of_a_sample_are_columns(tmp_path: Path) -> None:
    from webdataset import TarWriter

    with TarWriter(str(tmp_path / "a.tar")) as writer:
        sample = {"__key__": "deep/a", "prompt.txt": "2+2?", "completion.txt": "4"}
        writer.write({**sample, "meta.json": {"n": 1}, "jpg": b"\xff\xd8picture"})
    [row] = shard_rows(tmp_path / "a.tar", "webdataset")
    assert row == {"prompt": "2+2?", "completion": "4", "meta": {"n": 1}}
