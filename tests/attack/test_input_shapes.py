"""Headers, tokenizers, rows and tokens made to keep or fill whatever reads them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.attack.bounded import bounded
from support.attack.zip_files import Entry, zip_bytes

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, LimitError, decode_value
from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.core.inputs.file_kinds import problem_of_parquet
from trainer_runtime.core.inputs.token_files import TokenFileError, open_token_file
from trainer_runtime.host.script.whole import TornError, judge
from trainer_runtime.train.checkpoints.tensors import TensorFileError, read_tensors

pytestmark = pytest.mark.attack


def _weights(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def _header(**entries: Any) -> bytes:
    return json.dumps(entries).encode()


def _tensor(shape: Any, begin: Any, end: Any, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HEADERS: dict[str, Callable[[], bytes]] = {
    "deep": lambda: _weights(b"[" * 100_000 + b"]" * 100_000),
    "deep in an entry": lambda: _weights(b'{"w":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001),
    "a list": lambda: _weights(b"[]"),
    "two of a name": lambda: _weights(b'{"w":1,"w":2}'),
    "a length of 16 EiB": lambda: struct.pack("<Q", 2**64 - 1) + b"{}",
    "a length beyond the file": lambda: struct.pack("<Q", 1 << 20) + b"{}",
    "a million dimensions": lambda: _weights(
        _header(w=_tensor([2**62] * 1_000_000, 0, 4)), bytes(4)
    ),
    "more elements than bytes": lambda: _weights(_header(w=_tensor([2**40], 0, 4)), bytes(4)),
    "elements by a number of a float": lambda: _weights(
        b'{"w":' + b'{"dtype":"F32","shape":[1e3],"data_offsets":[0,4]}}', bytes(4)
    ),
    "a number of 5,000 digits": lambda: _weights(
        b'{"w":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}', bytes(4)
    ),
    "overlapping": lambda: _weights(
        _header(**{f"w{n}": _tensor([1024], 0, 4096) for n in range(1000)}), bytes(4096)
    ),
    "a gap": lambda: _weights(_header(w=_tensor([1], 4, 8)), bytes(8)),
    "negative": lambda: _weights(_header(w=_tensor([1], -4, 0)), b""),
    "end before begin": lambda: _weights(_header(w=_tensor([0], 0, 0), v=_tensor([0], 0, -1))),
    "no numbers": lambda: _weights(_header(w=_tensor(["1"], "0", "4")), bytes(4)),
    "a mapping for a shape": lambda: _weights(_header(w=_tensor({"1": 1}, 0, 4)), bytes(4)),
    "not UTF-8": lambda: _weights(b'{"\xff":1}'),
    "NaN": lambda: _weights(b'{"w":NaN}'),
    "empty": lambda: b"",
    "half": lambda: _weights(_header(w=_tensor([1], 0, 4)), bytes(4))[:-2],
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_of_safetensors_is_whole_or_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(HEADERS[kind]())
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with bounded():
        with pytest.raises(TensorFileError):
            read_tensors(path)
        with pytest.raises(TornError):
            judge(path)
        assert read_model_folder(str(tmp_path)).problem


@pytest.mark.parametrize("piece", [b"[],", b"{},", b"1,"])
def test_a_document_of_many_million_values_is_refused(piece: bytes) -> None:
    data = b"[" + piece * (64 << 20 >> 1) + b"1]"
    with bounded(), pytest.raises(LimitError):
        decode_value(data, "tokenizer.json", max_bytes=MAX_DOCUMENT_BYTES)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * (4 << 20),  # one number of 29 million bits
        b"\x0a\x00" * (4 << 20),  # pieces without a name
        b"\x0a\x04" + b"\x0a\xff\xff\xff" * 9,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_a_sentencepiece_model_is_read_in_bounds(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(content)
    with bounded():
        assert read_tokenizer_folder(str(tmp_path)).problem


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_a_tokenizer_of_two_tebibytes_is_not_read(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(2 << 40)
    with bounded():
        assert "larger" in str(read_tokenizer_folder(str(tmp_path)).problem)


def test_a_pickle_of_large_numbers_gives_no_number_of_parameters(tmp_path: Path) -> None:
    huge = b"\x8b" + struct.pack("<i", 1 << 20) + b"\x7f" * (1 << 20)  # LONG4
    pickled = b"\x80\x02X\x05\0\0\0model" + b"X\x01\0\0\x000" * 2 + huge + b"Q."
    (tmp_path / "model_config.yaml").write_text("n_layer: 1\n")
    (tmp_path / "lit_model.pth").write_bytes(zip_bytes([Entry(b"m/data.pkl", pickled)]))
    with bounded():
        json.dumps(read_model_folder(str(tmp_path)).to_dict())


def test_a_footer_longer_than_its_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for footer_bytes in (0xFFFFFFFF, 100, 8):
        path.write_bytes(b"PAR1" + struct.pack("<L4s", footer_bytes, b"PAR1"))
        assert problem_of_parquet(path)


def test_an_index_that_counts_more_sequences_than_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(bytes(64))
    with (tmp_path / "tokens.idx").open("wb") as file:
        file.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 2**40, 1))
        file.truncate(8 << 40)
    with bounded(), pytest.raises(TokenFileError):
        open_token_file(tmp_path / "tokens.bin")
