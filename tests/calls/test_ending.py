"""A server's process ends in time, also where its main thread or another one doesn't."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from trainmaster.calls.ending import LONGEST_END_S

pytestmark = [pytest.mark.attack, pytest.mark.slow]

_BOUND_S = 60.0
_LATE_S = 1.0
_IN_C = "signal.signal(signal.SIGTERM, lambda *_: None); print(flush=True); lock.acquire()"
_IN_A_THREAD = """
threading.Thread(target=lock.acquire).start()
print(flush=True)
begin_end()
"""
_PROGRAM = """
import signal, threading
from trainmaster.calls.ending import ends_in_time
lock = threading.Lock()
lock.acquire()
with ends_in_time(signal.SIGTERM) as begin_end:
    {body}
"""


@pytest.mark.parametrize("stuck", [_IN_C, _IN_A_THREAD])
def test_a_process_whose_threads_do_not_end_does(stuck: str) -> None:
    program = _PROGRAM.format(body=stuck.strip().replace("\n", "\n    "))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        if stuck is _IN_C:
            process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(_BOUND_S) == 0
        finally:
            process.kill()
    assert time.monotonic() - began < LONGEST_END_S + _LATE_S
