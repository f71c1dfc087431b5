"""Training without a supervisor: signals reach the trainer whenever they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from trainer_runtime.box.supervise import standalone


def test_a_signal_that_comes_while_the_trainer_is_started_reaches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = subprocess.Popen
    before = {
        number: signal.getsignal(number) for number in (*standalone._PASSED_ON, signal.SIGINT)
    }

    def start(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started: subprocess.Popen[bytes] = original(*arguments, **options)  # type: ignore[call-overload]
        os.kill(os.getpid(), signal.SIGTERM)
        return started

    monkeypatch.setattr(standalone.subprocess, "Popen", start)
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    try:
        trainer = standalone._started(words, env=dict(os.environ), pass_fds=())
        assert trainer.wait(60) == -signal.SIGTERM
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
