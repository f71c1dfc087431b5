from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainer_runtime.train.checkpoints.tensors import (
    DTYPES,
    TensorFileError,
    read_tensors,
    write_tensors,
)


def write(path: Path, tensors: dict[str, Tensor]) -> None:
    with path.open("wb") as file:
        write_tensors(file.write, tensors)


def file_of(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize("dtype", sorted(DTYPES.values(), key=str), ids=str)
def test_every_type_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "matrix": torch.arange(12).reshape(3, 4).to(dtype),
        "scalar": torch.ones((), dtype=dtype),
        "empty": torch.empty((0, 5), dtype=dtype),
    }
    write(tmp_path / "t", tensors)
    found = read_tensors(tmp_path / "t")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name], tensor)


def test_nan_and_infinity_keep_their_bits(tmp_path: Path) -> None:
    tensor = torch.tensor([float("nan"), float("inf"), -0.0])
    write(tmp_path / "t", {"t": tensor})
    assert torch.equal(
        read_tensors(tmp_path / "t")["t"].view(torch.int32), tensor.view(torch.int32)
    )


def test_the_file_is_laid_out_as_the_format_says(tmp_path: Path) -> None:
    write(
        tmp_path / "t",
        {"b": torch.tensor([1, 2], dtype=torch.uint8), "a": torch.tensor([1.0, 2.0])},
    )
    data = (tmp_path / "t").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "a": entry("F32", [2], 0, 8),
        "b": entry("U8", [2], 8, 10),
    }
    assert data[8 + length :] == b"\0\0\x80\x3f\0\0\0\x40\x01\x02"


def test_tensors_read_are_independent_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "t", {"a": torch.ones(1000)})
    found = read_tensors(tmp_path / "t")["a"]
    (tmp_path / "t").write_bytes(b"")
    found += 1
    assert found.sum() == 2000


def test_a_file_torn_anywhere_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", {"a": torch.ones(3), "b": torch.ones(2, dtype=torch.uint8)})
    whole = (tmp_path / "t").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "torn").write_bytes(whole[:length])
        with pytest.raises(TensorFileError):
            read_tensors(tmp_path / "torn")
    (tmp_path / "torn").write_bytes(whole + b"\0")
    with pytest.raises(TensorFileError):
        read_tensors(tmp_path / "torn")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{",
        b'{"a": 1, "a": 2}',
        {"a": 1},
        {"a": {"dtype": "F32", "shape": [1]}},
        {"a": entry("F99", [1], 0, 4)},
        {"a": entry("F32", [2], 0, 4)},
        {"a": entry("F32", [-1], 0, 4)},
        {"a": entry("F32", [1.0], 0, 4)},
        {"a": entry("F32", [True], 0, 4)},
        {"a": entry("F32", [1], 4, 8)},
        {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)},
        {"a": entry("U8", [2], 0, 2)},
        {"a": entry("F32", ["1"], 0, 4)},
        {"a": entry("F32", [1], 0, 999)},
    ],
)
def test_malformed_headers_are_refused(tmp_path: Path, header: Any) -> None:
    with pytest.raises(TensorFileError):
        read_tensors(file_of(tmp_path / "t", header, b"\0" * 4))


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(TensorFileError):
        read_tensors(tmp_path / "t")


def test_metadata_of_other_writers_is_passed_over(tmp_path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "a": entry("F32", [1], 0, 4)}
    assert read_tensors(file_of(tmp_path / "t", header, b"\0\0\x80\x3f"))["a"].tolist() == [1.0]


def test_what_can_not_be_written_is_refused() -> None:
    for tensor in (torch.ones(2, 3).t(), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(TensorFileError):
            write_tensors(lambda data: None, {"a": tensor})
