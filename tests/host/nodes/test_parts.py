"""What ranks of another node have written of a checkpoint, on its way to node 0."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.runs.running_run import wait_until

from trainer_runtime.core.files.manifest import ChunkHasher, Manifest, build, verify
from trainer_runtime.core.files.parts import (
    Awaited,
    Part,
    arriving,
    hand_over,
    handed_over,
    part_folder,
)
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.fetch_files import fetch_checkpoint
from trainer_runtime.host.nodes.hub import receive_parts
from trainer_runtime.host.nodes.link import Link, LinkError
from trainer_runtime.host.nodes.send_parts import PartSender, send_part
from trainer_runtime.host.nodes.serve_files import serve_files

SECRET = "5e" * 32
PART = Part(attempt=1, step=20, machine=1)
OWN, OTHERS = b"own state" * 1000, b"the other node's state" * 1000


class Pair:
    """Node 0's run, and another node's; `connect` makes a connection between them."""

    def __init__(self, root: Path) -> None:
        self.first, self.second = RunFolder(root / "a/runs/r"), RunFolder(root / "b/runs/r")
        for run in (self.first, self.second):
            run.checkpoints.mkdir(parents=True)
        self.awaited = Awaited(self.first.checkpoints, 1, 20, (1,))
        self._opened = ExitStack()

    def connect(self, serve: Callable[[RunFolder, Link], None] = receive_parts) -> Link:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            member = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()

        def answer() -> None:
            link = Link(accepted, is_member=False)
            try:
                link.welcome(SECRET)
                serve(self.first, link)
            except (OSError, ValueError):
                link.close()

        threading.Thread(target=answer, daemon=True).start()
        link = Link(member, is_member=True)
        self._opened.callback(link.close)
        link.greet(SECRET, "gpu2", "parts")
        return link

    def write(self, part: Part = PART, content: bytes = OTHERS) -> Path:
        """What this node's ranks have written, handed over."""
        written = self.second.checkpoints / ".writing"
        (written / "deep").mkdir(parents=True)
        (written / "deep/shard-1.bin").write_bytes(content)
        (written / "random-1.bin").write_bytes(b"random numbers")
        hand_over(self.second.checkpoints, part, written)
        assert not written.exists()
        return part_folder(self.second.checkpoints, part)

    def seal(self, step: int = 20) -> Path:
        """A checkpoint of both nodes' files, on node 0."""
        folder = self.first.checkpoint(step)
        (folder / "deep").mkdir(parents=True)
        entries = []
        for name, content in (("deep/shard-0.bin", OWN), ("deep/shard-1.bin", OTHERS)):
            (folder / name).write_bytes(content)
            hasher = ChunkHasher()
            hasher.update(content)
            entries.append(hasher.entry(name))
        manifest = Manifest(step, 1, 1.0, {}, (), "", tuple(entries))
        (folder / "manifest.json").write_bytes(build(manifest))
        return folder

    def close(self) -> None:
        self._opened.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


def files_of(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def test_a_part_comes_whole_beside_what_is_there(pair: Pair, tmp_path: Path) -> None:
    folder, into = pair.write(), tmp_path / "written"
    (into / "deep").mkdir(parents=True)
    (into / "random-1.bin").write_bytes(b"rank 0's stays")
    pair.awaited.ask()
    link = pair.connect()
    assert send_part(link, PART, folder)
    assert send_part(link, PART, folder)  # as by a member that was killed before it had the answer
    pair.awaited.gather(into)
    assert files_of(into) == {
        "deep/shard-1.bin": OTHERS,
        "random-1.bin": b"rank 0's stays",
    }
    pair.awaited.forget()
    assert not list(pair.first.checkpoints.iterdir())
    assert files_of(folder)["deep/shard-1.bin"] == OTHERS  # for a resume


def test_a_part_that_nobody_awaits_is_not_taken(pair: Pair) -> None:
    folder = pair.write()
    link = pair.connect()
    assert not send_part(link, PART, folder)
    Awaited(pair.first.checkpoints, 2, 20, (1,)).ask()  # the next attempt's of the same step
    assert not send_part(link, PART, folder)
    assert not files_of(pair.first.checkpoints)
    pair.seal()
    assert send_part(link, PART, folder)  # it is in a checkpoint already


def test_a_cut_connection_is_continued_with_the_next_file(pair: Pair) -> None:
    folder = pair.write()
    pair.awaited.ask()
    sizes = {path: len(content) for path, content in files_of(folder).items()}
    offer = {"part": PART.name, "files": [{"path": p, "size": n} for p, n in sizes.items()]}

    def wanted(link: Link) -> tuple[str, ...]:
        link.send(offer)
        answer = link.receive(10.0)
        assert answer is not None and answer.flag("awaited")
        return answer.texts("wanted")

    link = pair.connect()
    first, second = wanted(link)
    with (folder / first).open("rb") as file:
        link.send_file(file, sizes[first])
    link.send({"size": sizes[second]})
    link.close()  # in the middle of the second one
    with pytest.raises(OSError, match="the part of host 1 has not come"):
        pair.awaited.gather(folder, stalled_s=0.2)
    assert wait_until(lambda: wanted(pair.connect()) == (second,), "the rest to be asked for")
    assert send_part(pair.connect(), PART, folder)


def test_a_part_that_fails_again_and_again_is_waited_for_no_longer_than_one_that_is_silent(
    pair: Pair, tmp_path: Path
) -> None:
    pair.awaited.ask()
    folder, ended = arriving(pair.first.checkpoints, PART), threading.Event()

    def fail() -> None:  # as on a disk that is full
        while not ended.wait(0.01):
            folder.mkdir(exist_ok=True)
            (folder / "shard").write_bytes(bytes(1000))
            (folder / "shard").unlink()

    failing = threading.Thread(target=fail, daemon=True)
    failing.start()
    try:
        with pytest.raises(OSError, match=r"nothing within 1 s; the disk here has [\d.]+ GiB free"):
            pair.awaited.gather(tmp_path, stalled_s=1.0)
    finally:
        ended.set()
        failing.join()


def test_a_file_that_changes_on_its_way_is_not_taken(pair: Pair) -> None:
    pair.awaited.ask()
    link = pair.connect()
    link.send({"part": PART.name, "files": [{"path": "shard", "size": 4}]})
    assert link.receive(10.0) is not None
    link.send({"size": 4})
    link._send_bytes(b"data")
    link.send({"sha256": "00" * 32})
    with pytest.raises(LinkError):
        link.receive(10.0)
    wait_until(lambda: not files_of(pair.first.checkpoints), "its removal")


@pytest.mark.parametrize("path", ["../outside", "/outside", ""])
def test_a_part_stays_in_its_folder(pair: Pair, path: str) -> None:
    pair.awaited.ask()
    link = pair.connect()
    link.send({"part": PART.name, "files": [{"path": path, "size": 4}]})
    with pytest.raises(LinkError):
        link.receive(10.0)
    link = pair.connect()
    link.send({"part": "../../1-00000020-1", "files": []})
    with pytest.raises(LinkError):
        link.receive(10.0)


def test_parts_are_sent_once_they_are_awaited_and_go_with_their_checkpoints(pair: Pair) -> None:
    sender = PartSender(pair.second, pair.connect)
    parts = [Part(1, step, 1) for step in (20, 40, 60, 80)]
    for part in parts:
        pair.write(part)
        awaited = Awaited(pair.first.checkpoints, 1, part.step, (1,))
        sender.poll((20, 60))
        awaited.ask()
        here = pair.first.checkpoints / f".gathering/{part.attempt}-{part.step:08d}/1"

        def has_come(here: Path = here) -> bool:
            sender.poll((20, 60))
            return here.is_dir()

        wait_until(has_come, "the part")
    wait_until(lambda: (sender.poll((20,)), len(handed_over(pair.second.checkpoints)) == 3)[1], "")
    assert handed_over(pair.second.checkpoints) == [parts[0], *parts[2:]]  # two on their way


def test_a_resume_takes_what_this_node_has_written_from_its_own_disk(pair: Pair) -> None:
    own, whole = pair.write(), pair.seal()
    lines: list[str] = []
    fetch_checkpoint(pair.second, pair.connect(serve_files), (20,), lines.append)
    fetched = pair.second.checkpoint(20)
    assert verify(fetched) == [] and files_of(fetched) == files_of(whole)
    assert os.path.samefile(fetched / "deep/shard-1.bin", own / "deep/shard-1.bin")
    assert "1 files are here already" in lines[0]


def test_an_own_file_that_differs_is_fetched(pair: Pair) -> None:
    pair.write(content=OTHERS[:-1] + b"!")
    pair.seal()
    fetch_checkpoint(pair.second, pair.connect(serve_files), (20,), print)
    assert verify(pair.second.checkpoint(20)) == []
