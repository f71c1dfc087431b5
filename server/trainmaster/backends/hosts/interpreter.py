"""Finds an interpreter on a machine without the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.backends.ssh import Completed
from trainmaster.errors.errors import HostError
from trainmaster.home.assets import find_assets

_TIMEOUT_S = 60.0  # an interpreter on a network disk takes its time when it is first read
_REMEDY = (
    "Install Python 3.10 or newer there (`apt install python3`, or without root: uv, conda or "
    "pyenv), on the PATH of `ssh HOST env` or in its usual folder."
)


class Run(Protocol):
    """A transport's `run`."""

    async def __call__(
        self, command: Sequence[str], *, stdin: bytes = b"", timeout_s: float
    ) -> Completed: ...


async def find_python(run: Run) -> str:
    """The absolute path of the machine's best interpreter, 3.10 or newer and complete.

    Raises:
        HostError: `PYTHON_MISSING`, with those that were found; and the errors of `run`.
    """
    script = (find_assets().runtime / "host" / "answer" / "find_python.sh").read_bytes()
    done = await run(["/bin/sh", "-s"], stdin=script, timeout_s=_TIMEOUT_S)
    seen = {}
    for line in done.output.splitlines():
        mark, _, rest = line.partition("\t")
        fields = rest.split("\t")
        if mark == "python" and len(fields) == 4:
            verdict, version, path, lacks = fields
            if verdict == "good" and path.startswith("/"):
                return path
            seen[path] = _described(verdict, version, lacks)
    if done.code == 124:
        raise HostError(
            "PYTHON_MISSING",
            f"Its interpreters did not answer within {spoken_duration(_TIMEOUT_S)}.",
            "Try `python3 --version` on it; a disk of it may hang.",
            retryable=True,
        )
    versions = ", ".join(shown(f"{path} {version}".encode()) for path, version in seen.items())
    raise HostError(
        "PYTHON_MISSING",
        f"It has no usable Python 3.10 or newer; found: {versions or 'none at all'}.",
        _REMEDY,
    )


def _described(verdict: str, version: str, lacks: str) -> str:
    return f"({version}, incomplete: {lacks})" if verdict == "incomplete" else f"({version})"
