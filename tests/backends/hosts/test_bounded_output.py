"""A command's output is read up to a bound, and nothing of the command is left after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from trainmaster.backends.hosts.local import LocalHost
from trainmaster.errors.errors import HostError

_SENT_BYTES = 1 << 19


@pytest.mark.parametrize("stream", ["1", "2"])
def test_endless_output_is_refused_and_its_command_ended(tmp_path: Path, stream: str) -> None:
    host = LocalHost("local", tmp_path)
    script = f'echo $$ > "{tmp_path}/pid"; exec yes >&{stream}'
    with pytest.raises(HostError, match="HOST_DATA_REFUSED"):
        asyncio.run(host.run(["sh", "-c", script], folder=str(tmp_path), timeout_s=60))
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}/cmdline").exists()


def test_output_within_the_bound_is_whole(tmp_path: Path) -> None:
    host = LocalHost("local", tmp_path)
    sent = b"x" * _SENT_BYTES
    done = asyncio.run(host.run(["cat"], folder=str(tmp_path), timeout_s=60, stdin=sent))
    assert (done.code, done.output.encode()) == (0, sent)
