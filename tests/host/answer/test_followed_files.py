from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer_runtime.host.answer.followed_files import AppendedFile

_LIMIT = 1 << 20


class Copy:
    """Takes what is sent, as a client's mirror."""

    def __init__(self) -> None:
        self.data = b""
        self.sent_bytes = 0

    def frame(self, header: Mapping[str, Any], data: bytes) -> None:
        self.data = self.data[: header["at"]] + data
        self.sent_bytes += len(data)


def test_a_file_whose_descriptor_went_bad_is_opened_again(tmp_path: Path) -> None:
    """As where a server of files that restarted has forgotten what was open."""
    log, copy = tmp_path / "train.log", Copy()
    log.write_bytes(b"one\n")
    file = AppendedFile("run", str(log), "train.log", (0, None, b""))
    file.refresh()
    file.send(copy, _LIMIT)
    descriptor = next(
        int(name) for name in os.listdir("/proc/self/fd") if _leads_to(name) == str(log)
    )
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    os.dup2(folder, descriptor)  # reading it raises an error from now on
    os.close(folder)
    with log.open("ab") as more:
        more.write(b"two\n")
    for _ in range(3):
        file.refresh(same_folder=True)
        file.send(copy, _LIMIT)
    file.close()
    assert copy.data == b"one\ntwo\n"


def _leads_to(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""
