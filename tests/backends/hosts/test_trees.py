"""Trees of files on their way to a machine: exact, resumed, and never outside their folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.backends.file_trees import CuttableHost, described, make_tree, put, refused
from support.runs.running_run import run_async

from trainmaster.backends.hosts import LocalHost
from trainmaster.backends.hosts.tree_files import TreeFile, files_of_folder
from trainmaster.backends.hosts.trees import Sent, TreeProgress, put_tree
from trainmaster.errors.errors import TrainmasterError


def test_a_tree_arrives_exactly_with_its_times_and_modes(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 1)
    seen: list[TreeProgress] = []
    sent = put(local, tmp_path / "there/deep/tree", on_progress=seen.append)
    assert described(tmp_path / "there/deep/tree") == described(local)
    assert (sent.kept, sent.sent_files) == (False, 21)
    assert seen[-1].done_bytes == seen[-1].total_bytes == sent.sent_bytes
    assert os.listdir(tmp_path / "there/deep") == ["tree"]


def test_what_is_unchanged_is_not_sent_and_what_is_stale_goes(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 2), tmp_path / "there"
    put(local, there)
    changed = local / "part 0" / "ünï-0\n.txt"
    changed.write_bytes(b"changed")
    shutil.rmtree(local / "part 2")
    (there / "stale/deeper").mkdir(parents=True)
    (there / "stale/deeper/file").touch()
    (there / "empty").chmod(0o600)
    sent = put(local, there)
    assert (sent.sent_bytes, sent.sent_files) == (len(b"changed"), 1)
    assert described(there) == described(local)
    assert not (there / "part 2").exists() and not (there / "stale").exists()
    assert put(local, there).sent_files == 0


def test_files_given_as_bytes_are_known_by_their_digest(tmp_path: Path) -> None:
    files = {"train.sh": b"#!/bin/sh\n", "a/b.py": b"pass\n", "empty": b""}
    executable = frozenset({"train.sh"})
    assert put(files, tmp_path / "there", executable=executable).sent_files == 3
    (tmp_path / "there/a/b.py").write_bytes(b"fail\n")
    os.utime(tmp_path / "there/train.sh")
    assert put(files, tmp_path / "there", executable=executable).sent_files == 1
    found = {name: content for name, (content, _, _) in described(tmp_path / "there").items()}
    assert found == files
    assert os.access(tmp_path / "there/train.sh", os.X_OK)
    assert not os.access(tmp_path / "there/a/b.py", os.X_OK)


def test_a_whole_tree_that_is_there_is_kept(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 3), tmp_path / "there"
    assert not put(local, there, whole=True).kept
    assert described(there) == described(local)
    (there / "own").touch()
    assert put({"other": b""}, there, whole=True) == Sent(True, 0, 0)
    assert (there / "own").exists()
    assert sorted(os.listdir(tmp_path)) == ["local", "there"]


def test_a_whole_tree_is_not_there_before_its_last_byte(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 4), tmp_path / "there"
    with pytest.raises(TrainmasterError, match="ended too early"):
        put(local, there, CuttableHost(1_000_000), whole=True)
    assert not there.exists()
    sent = put(local, there, whole=True)
    assert sent.sent_bytes < sum(len(data) for data, _, _ in described(local).values())
    assert described(there) == described(local)
    assert sorted(os.listdir(tmp_path)) == ["local", "there"]


def test_the_marker_comes_last_and_goes_before_anything_changes(tmp_path: Path) -> None:
    local, there = make_tree(tmp_path / "local", 5), tmp_path / "there"
    with pytest.raises(TrainmasterError):
        put(local, there, CuttableHost(1_000_000), mark=True)
    assert there.exists() and not (there / ".complete").exists()
    put(local, there, mark=True)
    listed = json.loads((there / ".complete").read_bytes())["files"]
    assert {name: (size, time_ns) for name, size, time_ns in listed} == {
        name: (len(data), time_ns) for name, (data, time_ns, _) in described(local).items()
    }
    (local / "new").write_bytes(b"x" * 3_000_000)
    with pytest.raises(TrainmasterError):
        put(local, there, CuttableHost(1_000_000), mark=True)
    assert not (there / ".complete").exists()
    put(local, there, mark=True)
    (there / ".complete").unlink()
    assert described(there) == described(local)


@pytest.mark.parametrize(
    "name",
    ["../out", "/etc/out", "a/../../out", "", ".", "a//b", "a/", "nul\0", "x" * 256],
)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    error = refused({name: b"bad", "good": b""}, tmp_path / "inner/there")
    assert error.code == "UNSAFE_NAME" and error.fix
    assert not (tmp_path / "inner").exists()


@pytest.mark.parametrize("files", [{"a": b"", "a/b": b""}, {".complete": b""}])
def test_names_that_stand_for_two_things_are_refused(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    assert refused(files, tmp_path / "there", mark=True).code == "UNSAFE_NAME"


@pytest.mark.parametrize("destination", ["relative", "/tmp/../etc/x", "/"])
def test_a_destination_that_is_no_plain_path_is_refused(destination: str) -> None:
    host = LocalHost("local", Path("/"))
    with pytest.raises(TrainmasterError) as caught:
        run_async(lambda: put_tree(host, {"a": b""}, destination))
    assert caught.value.code == "UNSAFE_NAME"


def test_links_over_there_are_replaced_and_never_followed(tmp_path: Path) -> None:
    outside, there = tmp_path / "outside", tmp_path / "there"
    outside.mkdir()
    (outside / "file").write_bytes(b"kept")
    there.mkdir()
    for name in ("folder", "stale", "file", "broken"):
        (there / name).symlink_to(outside if name != "broken" else tmp_path / "nowhere")
    (there / "file").unlink()
    (there / "file").symlink_to(outside / "file")
    put({"folder/file": b"new", "file": b"new", "broken": b"new"}, there)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == b"kept"
    assert sorted(path.name for path in there.iterdir()) == ["broken", "file", "folder"]
    assert not any(path.is_symlink() for path in there.rglob("*"))
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    assert refused({"file": b"new"}, linked).code == "UNSAFE_NAME"
    assert (outside / "file").read_bytes() == b"kept"


def test_a_folder_in_a_files_place_gives_way_and_the_other_way_round(tmp_path: Path) -> None:
    there = tmp_path / "there"
    put({"a/b": b"1", "c": b"2"}, there)
    put({"a": b"3", "c/d": b"4"}, there)
    assert {name: data for name, (data, _, _) in described(there).items()} == {
        "a": b"3",
        "c/d": b"4",
    }


def test_links_here_are_not_sent(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 9, files=2)
    (local / "link").symlink_to("/etc/hostname")
    put(local, tmp_path / "there")
    assert not (tmp_path / "there/link").exists()


@pytest.mark.long
@pytest.mark.slow
def test_thousands_of_small_files_arrive(tmp_path: Path) -> None:
    files = {f"{number % 50}/{number}": b"%d" % number for number in range(5000)}
    assert put(files, tmp_path / "there").sent_files == 5000
    found = {name: data for name, (data, _, _) in described(tmp_path / "there").items()}
    assert found == files


def test_a_file_that_changed_since_it_was_listed_is_reported(tmp_path: Path) -> None:
    local = make_tree(tmp_path / "local", 10)
    listed: list[TreeFile] = files_of_folder(local)
    with (local / "empty").open("ab") as file:
        file.write(b"grown")
    error = refused(listed, tmp_path / "there", mark=True)
    assert error.code == "DATA_CHANGED" and str(local / "empty") in error.message
    assert not (tmp_path / "there/.complete").exists()
    (local / "empty").unlink()
    assert refused(listed, tmp_path / "there").code == "DATA_CHANGED"


def test_a_destination_below_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refused({"a": b""}, tmp_path / "file/there").code == "ROOT_NOT_WRITABLE"
