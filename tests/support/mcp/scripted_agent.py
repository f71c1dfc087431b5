"""A real ssh-agent for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.runs.running_run import wait_until

_NOT_REACHED = 2  # exit code of ssh-add


@contextmanager
def ssh_agent(socket: Path) -> Iterator[None]:
    """An agent at `socket` that answers, and holds no keys yet."""
    variables = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
    asked = ["ssh-add", "-l"]

    def answers() -> bool:
        done = subprocess.run(asked, env=variables, capture_output=True, check=False)
        return done.returncode != _NOT_REACHED

    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(answers, "the agent's answer")
        yield
    finally:
        agent.kill()
        agent.wait()
