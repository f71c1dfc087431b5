"""What the planner reads of paths that a spec names: a pipe, a device, a file without an end and
one that is read for too long are refused by whatever reads them."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainer_runtime.core.files.checkpoint_check import check_checkpoints
from trainer_runtime.core.files.corpus import AskedSource, Source, content_digests, list_source
from trainer_runtime.core.files.manifest import MANIFEST_NAME, FileEntry, Manifest, build, verify
from trainer_runtime.core.files.model_folder import read_model_folder
from trainer_runtime.core.files.tokenizer_folder import read_tokenizer_folder
from trainer_runtime.core.inputs.held_out_copies import trained_on
from trainer_runtime.core.inputs.source_check import check_source
from trainmaster.calls.work import Work, working
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import StateError

pytestmark = pytest.mark.attack

_BOUND_S = 30.0
_ENDLESS_BYTES = 2 << 40
_TOO_LONG = "READ_TOO_LONG"
_NOT_REGULAR = "it is not a regular file"


@dataclass(frozen=True, slots=True)
class _Place:
    """`whole` writes what is read below a folder, and `file` of it is replaced; `read` says why it
    is refused, None where it is not. `special`, `endless`: why a pipe or device is, and a file
    of 2 TiB."""

    file: str
    whole: Callable[[Path], None]
    read: Callable[[Path], object]
    special: str
    endless: str


def _sized(path: Path, size_bytes: int) -> None:
    path.touch()
    os.truncate(path, size_bytes)


def _model(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + bytes(4)
    (folder / "model.safetensors").write_bytes(weights)


def _litgpt(folder: Path) -> None:
    (folder / "model_config.yaml").write_text("n_layer: 1\n")
    (folder / "lit_model.pth").touch()


def _litgpt_problem(folder: Path) -> str | None:
    problem = read_model_folder(str(folder)).problem
    return None if problem == "lit_model.pth is cut off or damaged" else problem


def _tokenizer(folder: Path) -> None:
    vocabulary = {"a": 0, "<|endoftext|>": 1}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))


def _digests(folder: Path) -> str | None:
    listing = list_source(str(folder / "a.txt"))
    if listing.problem is None:
        source = Source("main", listing.path, listing.files)
        content_digests(source, {"a.txt": folder / "a.txt"})
    return listing.problem


def _tokens(folder: Path) -> None:
    """By Megatron."""
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 1, 4, 1)
    (folder / "a.idx").write_bytes(head + struct.pack("<4i4qq", *(1, 1, 1, 1), *range(4), 0))
    (folder / "a.bin").write_bytes(bytes(4))


def _endless_tokens(folder: Path) -> None:
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 1, _ENDLESS_BYTES // 4, 1)
    (folder / "a.idx").write_bytes(head)
    for name in ("a.idx", "a.bin"):
        _sized(folder / name, _ENDLESS_BYTES)


def _problem_of(path: Path, data_format: str = "text") -> str | None:
    listing = check_source(AskedSource(str(path), data_format, "messages", stated=True))
    return listing.problem or listing.malformed


def _held_out(size_bytes: int) -> Callable[[Path], None]:
    """Of the size of what is trained on: a pipe and a device have none."""

    def write(folder: Path) -> None:
        for name in ("a.txt", "own.txt"):
            _sized(folder / name, size_bytes)

    return write


def _compared(folder: Path) -> str | None:
    try:
        return trained_on([folder / "a.txt"], [folder / "own.txt"])
    except OSError as error:
        return error.strerror


def _checkpoint(size_bytes: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        step = folder / "checkpoints" / "step-000007"
        step.mkdir(parents=True, exist_ok=True)
        _sized(step / "weights", size_bytes)
        chunks = ("0" * 64,) * -(-size_bytes // (64 << 20))
        files = (FileEntry("weights", size_bytes, chunks[:1000]),)
        manifest = Manifest(7, 1, 1.0, {}, (), "0" * 64, files)
        (step / MANIFEST_NAME).write_bytes(build(manifest))

    return write


_WEIGHTS = "checkpoints/step-000007/weights"
_PLACES: Mapping[str, _Place] = {
    "model": _Place(
        "model.safetensors", _model, lambda at: read_model_folder(str(at)).code, "MODEL", "MODEL"
    ),
    "LitGPT's model": _Place(
        "model_config.yaml", _litgpt, _litgpt_problem, "it has no model_config.yaml", "is larger"
    ),
    "tokenizer": _Place(
        "tokenizer.json",
        _tokenizer,
        lambda at: read_tokenizer_folder(str(at)).problem,
        "it holds neither",
        "is larger than any tokenizer's",
    ),
    "digests": _Place(
        "a.txt", lambda at: _sized(at / "a.txt", 9), _digests, _NOT_REGULAR, _TOO_LONG
    ),
    "tokens": _Place(
        "a.idx", _tokens, lambda at: _problem_of(at, "tokens"), "", "don't belong together"
    ),
    "validation": _Place("own.txt", _held_out(0), _compared, _NOT_REGULAR, _TOO_LONG),
    "text": _Place(
        "a.txt",
        lambda at: (at / "a.txt").write_text("text\n") and None,
        lambda at: _problem_of(at / "a.txt"),
        _NOT_REGULAR,
        "a.txt is not text",
    ),
    "rows": _Place(
        "a.jsonl",
        lambda at: (at / "a.jsonl").write_text('{"messages": []}\n') and None,
        lambda at: _problem_of(at / "a.jsonl", "jsonl"),
        _NOT_REGULAR,
        "it is not a JSON object",
    ),
    "manifest": _Place(
        _WEIGHTS,
        _checkpoint(5),
        lambda at: "; ".join(verify((at / _WEIGHTS).parent)),
        "weights: ",
        _TOO_LONG,
    ),
    "checkpoints": _Place(
        _WEIGHTS,
        _checkpoint(5),
        lambda at: "; ".join(check_checkpoints(at / "checkpoints")[0].problems),
        "weights: ",
        _TOO_LONG,
    ),
}
_ENDLESS: Mapping[str, Callable[[Path], None]] = {
    "tokens": _endless_tokens,
    "validation": _held_out(_ENDLESS_BYTES),
    "manifest": _checkpoint(_ENDLESS_BYTES),
    "checkpoints": _checkpoint(_ENDLESS_BYTES),
}


def _answer(name: str, folder: Path, within_s: float) -> str:
    """Why it is refused: an error's code, or what the reader says; empty where it is not."""

    async def read() -> str:
        with working(Work(within_s=within_s)):
            try:
                async with asyncio.timeout(_BOUND_S):
                    return str(await in_thread(_PLACES[name].read, folder) or "")
            except StateError as error:
                return error.code

    return asyncio.run(read())


@pytest.mark.parametrize("shape", ["pipe", "device"])
@pytest.mark.parametrize("name", _PLACES)
def test_a_special_file_in_its_place_is_refused(tmp_path: Path, name: str, shape: str) -> None:
    place = _PLACES[name]
    place.whole(tmp_path)
    path = tmp_path / place.file
    path.unlink()
    if shape == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    answer = _answer(name, tmp_path, _BOUND_S)
    assert answer and place.special in answer, answer


@pytest.mark.parametrize("name", _PLACES)
def test_a_file_without_an_end_in_its_place_is_refused(tmp_path: Path, name: str) -> None:
    place = _PLACES[name]
    place.whole(tmp_path)
    if name in _ENDLESS:
        _ENDLESS[name](tmp_path)
    else:
        os.truncate(tmp_path / place.file, _ENDLESS_BYTES)
    answer = _answer(name, tmp_path, 1.0)
    assert place.endless in answer, answer


@pytest.mark.parametrize("name", _PLACES)
def test_what_is_read_for_too_long_is_refused(tmp_path: Path, name: str) -> None:
    _PLACES[name].whole(tmp_path)
    assert _answer(name, tmp_path, 0.0) == _TOO_LONG
