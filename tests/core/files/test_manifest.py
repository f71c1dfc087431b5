from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.files.manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    ChunkHasher,
    FileEntry,
    Manifest,
    ManifestError,
    build,
    parse,
    verify,
)

EMPTY = Manifest(
    step=150,
    attempt=2,
    time_s=1_700_000_000.25,
    metrics={"val_loss": 2.5},
    tags=("latest", "best"),
    config_sha256="0" * 64,
    files=(),
)


def checkpoint(folder: Path, contents: dict[str, bytes]) -> Manifest:
    files = []
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        hasher = ChunkHasher()
        hasher.update(data)
        files.append(hasher.entry(name))
    manifest = dataclasses.replace(EMPTY, files=tuple(files))
    (folder / MANIFEST_NAME).write_bytes(build(manifest))
    return manifest


def test_a_manifest_is_read_as_it_was_built() -> None:
    manifest = dataclasses.replace(EMPTY, files=(FileEntry("a", 3, ("f" * 64,)),))
    assert parse(build(manifest)) == manifest


def test_any_changed_byte_of_a_manifest_is_seen() -> None:
    data = build(EMPTY)
    for index in range(len(data)):
        changed = bytearray(data)
        changed[index] ^= 1
        with pytest.raises(ManifestError):
            parse(bytes(changed))


@given(st.integers(0, 400))
def test_a_torn_manifest_is_refused(length: int) -> None:
    data = build(EMPTY)
    if length != len(data):
        with pytest.raises(ManifestError):
            parse(data[:length] if length < len(data) else data + b" " * length)


def test_a_manifest_of_a_later_version_is_refused() -> None:
    with pytest.raises(ManifestError):
        parse(build(EMPTY).replace(b'"v":1', b'"v":9'))


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "a/../../b", "", "a\\b"])
def test_names_that_lead_out_of_the_folder_are_refused(path: str) -> None:
    with pytest.raises(ManifestError):
        build(dataclasses.replace(EMPTY, files=(FileEntry(path, 0, ()),)))


def test_a_whole_checkpoint_verifies_beside_unknown_files(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model": b"weights", "state": b"{}", "empty": b""})
    (tmp_path / "notes.txt").write_text("not ours")
    assert verify(tmp_path) == []


def test_a_flipped_bit_is_named_with_its_file_and_chunk(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model": b"weights", "state": b"{}"})
    (tmp_path / "model").write_bytes(b"weighus")
    assert verify(tmp_path) == ["model: chunk 0 differs"]


def test_a_flipped_bit_after_the_first_chunk_is_found(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model": bytes(CHUNK_BYTES + 10)})
    assert verify(tmp_path) == []
    with (tmp_path / "model").open("r+b") as file:
        file.seek(CHUNK_BYTES + 3)
        file.write(b"\x01")
    assert verify(tmp_path) == ["model: chunk 1 differs"]


def test_missing_and_truncated_files_are_all_reported(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model": b"weights", "state": b"{}"})
    (tmp_path / "model").write_bytes(b"wei")
    (tmp_path / "state").unlink()
    assert verify(tmp_path) == ["model: 3 bytes instead of 7", "state: missing"]


def test_a_link_in_place_of_a_file_does_not_verify(tmp_path: Path) -> None:
    checkpoint(tmp_path, {"model": b"weights"})
    (tmp_path / "model").rename(tmp_path / "elsewhere")
    (tmp_path / "model").symlink_to("elsewhere")
    assert len(verify(tmp_path)) == 1


def test_a_folder_without_a_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    assert verify(tmp_path) == ["manifest.json is missing"]
    assert verify(tmp_path / "absent") == ["the folder does not exist"]


@given(st.lists(st.binary(max_size=50)))
def test_digests_do_not_depend_on_how_the_stream_was_cut(parts: list[bytes]) -> None:
    cut, whole = ChunkHasher(), ChunkHasher()
    for part in parts:
        cut.update(part)
    whole.update(b"".join(parts))
    assert cut.entry("a") == whole.entry("a")
