"""What a member may fetch of node 0, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_runtime.core.files.manifest import ChunkHasher, Manifest, build, verify
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.nodes.fetch_files import fetch_checkpoint, fetch_entry
from trainer_runtime.host.nodes.link import Link, LinkError
from trainer_runtime.host.nodes.serve_files import serve_files

SECRET = "5e" * 32


class Pair:
    """Node 0's run, which serves its files, and the member's."""

    def __init__(self, root: Path) -> None:
        self.first, self.second = RunFolder(root / "a/runs/r"), RunFolder(root / "b/runs/r")
        for run in (self.first, self.second):
            run.root.mkdir(parents=True)
        data = {"cache_dir": str(self.cache(self.first)), "fingerprint": "f00d", "seq_len": 8}
        self.first.config.write_text(json.dumps({"data": {**data, "sources": []}}))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            member = socket.create_connection(listener.getsockname())
            accepted, _ = listener.accept()
        self.link = Link(member, is_member=True)
        threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()
        self.link.greet(SECRET, "gpu2", "files")

    def cache(self, run: RunFolder) -> Path:
        return run.host_root / "cache"

    def save(self, step: int, content: bytes = b"weights") -> Path:
        folder = self.first.checkpoint(step)
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/model.bin").write_bytes(content)
        hasher = ChunkHasher()
        hasher.update(content)
        files = (hasher.entry("deep/model.bin"),)
        manifest = Manifest(step, 1, 1.0, {}, (), "", files)
        (folder / "manifest.json").write_bytes(build(manifest))
        return folder

    def _serve(self, accepted: socket.socket) -> None:
        link = Link(accepted, is_member=False)
        try:
            link.welcome(SECRET)
            serve_files(self.first, link)
        except (LinkError, ValueError):
            link.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.link.close()


def test_the_first_checkpoint_that_verifies_is_fetched_and_others_go(pair: Pair) -> None:
    pair.save(20)
    (pair.save(40) / "deep/model.bin").write_bytes(b"damaged")
    pair.second.checkpoint(10).mkdir(parents=True)
    lines: list[str] = []
    fetch_checkpoint(pair.second, pair.link, (60, 40, 20), lines.append)
    assert verify(pair.second.checkpoint(20)) == []
    assert [path.name for path in pair.second.checkpoints.iterdir()] == ["step-00000020"]
    assert any("that of step 40 is not whole" in line for line in lines)
    said = len(lines)
    fetch_checkpoint(pair.second, pair.link, (20,), lines.append)
    assert len(lines) == said  # as it is here already


def test_none_that_verifies_is_an_error(pair: Pair) -> None:
    (pair.save(40) / "deep/model.bin").unlink()
    with pytest.raises(OSError, match="none of the checkpoints 40 verifies"):
        fetch_checkpoint(pair.second, pair.link, (40,), print)


def test_only_what_the_training_reads_leaves_the_cache(pair: Pair) -> None:
    for name in ("data/f00d", "data/other"):
        folder = pair.cache(pair.first) / name
        folder.mkdir(parents=True)
        (folder / "meta.json").write_text("{}")
    target = pair.cache(pair.second)
    for name in ("data/f00d", "data/other", "../runs/r"):
        fetch_entry(pair.link, target, name, print)
    assert [str(path.relative_to(target)) for path in target.rglob("*.json")] == [
        "data/f00d/meta.json"
    ]


def test_a_file_that_is_not_listed_is_not_given(pair: Pair) -> None:
    pair.save(20)
    pair.link.send({"checkpoint": 20})
    assert pair.link.receive(10.0) is not None
    pair.link.send({"file": "../../config.json"})
    with pytest.raises(LinkError, match="not on offer"):
        pair.link.receive_file(print)
