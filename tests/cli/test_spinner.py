from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from trainmaster.cli.spinner import spinner

_SLOW = """
import time
from trainmaster.cli.spinner import spinner
with spinner():
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not __import__("os").path.exists({flag!r}):
        time.sleep(0.02)
print("done")
"""


def test_a_slow_command_reports_a_terminal_that_it_continues_and_wipes_it_away(
    tmp_path: object,
) -> None:
    flag = f"{tmp_path}/enough"
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW.format(flag=flag)],
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(slave)
    reported = b""
    try:
        deadline = time.monotonic() + 60
        while b"working" not in reported and time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                reported += os.read(master, 1024)
        open(flag, "w").close()
        output, _ = process.communicate(timeout=60)
        while select.select([master], [], [], 0)[0]:
            try:
                reported += os.read(master, 1024)
            except OSError:
                break
    finally:
        process.kill()
        os.close(master)
    first_word = re.search(rb"working, (\d+) s", reported)
    assert first_word is not None and int(first_word[1]) >= 1
    assert reported.endswith(b" \r")
    assert output == b"done\n"


def test_nothing_is_reported_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with spinner(stream):
        pass
    assert stream.getvalue() == ""
