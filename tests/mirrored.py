"""Whether the operator's side holds what the box wrote: byte for byte, every event once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from running import CommandLine

from trainer_runtime.core.protocol import decode

_LAST_LINE_S = 30.0


def assert_mirror_equals_the_box(command: CommandLine, run: str) -> None:
    """Every appended file of a run byte for byte, and every event of it exactly once."""
    box, mirror = command.folder(run).root, command.home / "mirror" / run / "p1"
    names = [path.relative_to(box) for path in box.glob("attempts/*/*") if path.suffix != ".json"]
    assert names
    names.append(Path("supervisor.jsonl"))
    # A supervisor on its way out may still write a line after the end that others wait for.
    deadline = time.monotonic() + _LAST_LINE_S
    while _differing(box, mirror, names) and time.monotonic() < deadline:
        command("status", run)
    assert _differing(box, mirror, names) == []
    for name in names:
        if name.suffix == ".jsonl":
            whole = [line for line in (box / name).read_bytes().split(b"\n") if line[-1:] == b"}"]
            numbers = [decode(line)["seq"] for line in whole]
            assert numbers == sorted(set(numbers)), name


def _differing(box: Path, mirror: Path, names: Sequence[Path]) -> list[Path]:
    return [name for name in names if _read(mirror / name) != (box / name).read_bytes()]


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
