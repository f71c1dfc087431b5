from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "b").mkdir(parents=True)
    for name in ("z.txt", "a.txt", "b/inner.txt"):
        (folder / name).write_text(f"this is {name}\n")
    return folder


def names(folder: Path) -> list[str]:
    return [file.name for file in list_files(folder)]


def marks(folder: Path, tokenizer: str = "byte", seq_len: int = 32, name: str = "main") -> str:
    return fingerprint([Source(name, str(folder), list_files(folder))], tokenizer, seq_len)


def test_files_stand_in_the_order_of_their_relative_names(folder: Path) -> None:
    assert names(folder) == ["a.txt", "b/inner.txt", "z.txt"]


def test_hidden_empty_and_binary_files_are_left_out(folder: Path) -> None:
    (folder / ".hidden.txt").write_text("hidden")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("hidden too")
    (folder / "empty.txt").touch()
    (folder / "image.bin").write_bytes(b"PNG\0\0")
    os.mkfifo(folder / "pipe")
    assert names(folder) == ["a.txt", "b/inner.txt", "z.txt"]


def test_credentials_and_homes_within_a_folder_are_left_out(folder: Path) -> None:
    home = folder / "b" / "state"
    (home / "mirror").mkdir(parents=True)
    for file in (folder / "_netrc", folder / "secrets.env", home / "control.db", home / "x.txt"):
        file.write_text("machine example.com password x\n")
    (home / "mirror" / "train.log").write_text("step 1: loss 2.5\n")
    assert names(folder) == ["a.txt", "b/inner.txt", "z.txt"]


def test_a_zero_byte_far_behind_the_start_makes_no_binary(folder: Path) -> None:
    (folder / "long.txt").write_bytes(b"x" * 8192 + b"\0")
    assert "long.txt" in names(folder)


def test_links_that_lead_out_of_the_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.mkdir()
    (outside / "key.txt").write_text("secret")
    (folder / "file-link.txt").symlink_to(outside / "key.txt")
    (folder / "folder-link").symlink_to(outside)
    (folder / "broken").symlink_to(folder / "gone")
    (folder / "inside.txt").symlink_to(folder / "a.txt")
    assert names(folder) == ["a.txt", "b/inner.txt", "inside.txt", "z.txt"]


def test_a_folder_that_is_itself_a_link_is_read(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert names(tmp_path / "link") == names(folder)


def test_a_file_given_by_its_own_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / ".dump.bin"
    path.write_bytes(b"\0\0\0")
    (file,) = list_files(path)
    assert (file.name, file.size_bytes) == (".dump.bin", 3)


def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list_files(tmp_path / "gone")


def test_the_fingerprint_stays_while_nothing_changes(folder: Path, tmp_path: Path) -> None:
    before = marks(folder)
    (folder / ".hidden").write_text("does not count")
    assert marks(folder) == before
    assert len(before) == 16 and int(before, 16) >= 0


def test_the_fingerprint_changes_with_whatever_changes_the_shards(folder: Path) -> None:
    found = {marks(folder), marks(folder, seq_len=64), marks(folder, tokenizer="gpt2")}
    found.add(marks(folder, name="other"))
    os.utime(folder / "a.txt", ns=(1, 1))
    found.add(marks(folder))
    (folder / "a.txt").write_text("longer than it was before\n")
    os.utime(folder / "a.txt", ns=(1, 1))
    found.add(marks(folder))
    (folder / "a.txt").rename(folder / "c.txt")
    found.add(marks(folder))
    assert len(found) == 7


def test_the_order_of_sources_counts(folder: Path, tmp_path: Path) -> None:
    files = list_files(folder)
    one, two = Source("one", "/1", files[:1]), Source("two", "/2", files[1:])
    assert fingerprint([one, two], "byte", 32) != fingerprint([two, one], "byte", 32)
    assert two.size_bytes == sum(file.size_bytes for file in files[1:])


def test_names_that_are_no_text_are_listed_and_fingerprinted(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.txt")).write_text("old encodings\n")
    assert len(names(folder)) == 4
    assert len(marks(folder)) == 16
