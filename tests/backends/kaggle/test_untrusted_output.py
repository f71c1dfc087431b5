"""What a kernel's output and log may claim: names, sizes, numbers."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.kaggle.stage import RUN, Stage

from trainer_runtime.core.kaggle.log_frames import PREFIX, decode_frame
from trainmaster.backends.kaggle.client import Quota, quota_of
from trainmaster.backends.kaggle.download_output import fetch_blob
from trainmaster.backends.kaggle.error_mapping import RefusedError
from trainmaster.sync.workspace import Workspace

_HOSTILE = ("../../out", "/etc/passwd", "a/../../b", "a\nb", "a\0", "n" * 300, "NUL", "a\u202eb")


@pytest.fixture
def stage(workspace: Workspace) -> Stage:
    return Stage(workspace)


def test_names_of_an_output_are_checked_before_they_are_names_here(stage: Stage) -> None:
    stage.place()
    session = stage.session()
    stage.emit(session, stage.begun() + stage.over())
    session.files |= {f"final/{name}": b"-" for name in _HOSTILE}
    session.files |= {"final/model.bin": b"weights", "final/Model.bin": b"other"}
    stage.complete(session, step=10)
    before = {path for path in stage.workspace.home.root.rglob("*") if path.is_file()}

    async def files() -> list[str]:
        return [file.path for file in await stage.backend.list_files(RUN, "**")]

    found = [name for name in asyncio.run(files()) if name.startswith("final/")]
    assert len(found) == 1
    assert found[0].lower() == "final/model.bin"
    after = {path for path in stage.workspace.home.root.rglob("*") if path.is_file()}
    outside = [path for path in after - before if "kaggle" not in path.parts]
    assert outside == []


@contextmanager
def _serving(length: str | None, body: bytes) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if length is not None:
                self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/file"
    finally:
        server.shutdown()
        server.server_close()


def test_a_file_that_the_disk_has_no_room_for_is_not_begun(tmp_path: Path) -> None:
    with _serving(str(1 << 60), b"x") as address, pytest.raises(RefusedError, match="does not fit"):
        fetch_blob(address, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_length_that_is_no_number_is_as_if_it_were_not_announced(tmp_path: Path) -> None:
    with _serving(None, b"whole") as address:
        fetch_blob(address, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_download_replaces_a_link_and_writes_to_nothing_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "file").symlink_to(tmp_path / "precious")
    with _serving("5", b"whole") as address:
        fetch_blob(address, tmp_path / "file")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.parametrize("value", [-1.0, 1e308, float("nan"), float("inf"), "7", None, [], True])
def test_a_quota_beyond_a_week_counts_as_none(value: object) -> None:
    names = ("used_s", "total_s", "refresh_t", "reserved_s")
    assert quota_of(dict.fromkeys(names, value)) == Quota(0.0, 0.0, None, 0.0)


def _packed_zeros_mib(count: int) -> bytes:
    """The same block again and again: packing a gigabyte takes seconds."""
    packing = zlib.compressobj(9)
    block = packing.compress(bytes(1 << 20)) + packing.flush(zlib.Z_FULL_FLUSH)
    last = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS).flush()
    sums = ((count << 20) % 65521 << 16) | 1  # Adler-32 of so many zeros
    return block[:2] + block[2:] * count + last + sums.to_bytes(4)


@pytest.mark.slow
def test_a_frame_that_unpacks_to_a_gigabyte_is_none() -> None:
    packed = _packed_zeros_mib(1 << 10)
    assert zlib.decompress(_packed_zeros_mib(3)) == bytes(3 << 20)
    fields = {"file": "attempts/1/train.log", "at": 0, "z": base64.b64encode(packed).decode()}
    assert decode_frame(PREFIX + json.dumps(fields)) is None
