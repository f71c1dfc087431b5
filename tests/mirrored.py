"""Whether the operator's side holds what the box wrote: byte for byte, every event once."""

from __future__ import annotations

from pathlib import Path

from running import CommandLine

from trainer_runtime.core.protocol import decode


def assert_mirror_equals_the_box(command: CommandLine, run: str) -> None:
    """Every appended file of a run byte for byte, and every event of it exactly once."""
    box, mirror = command.folder(run).root, command.home / "mirror" / run / "p1"
    names = [path.relative_to(box) for path in box.glob("attempts/*/*") if path.suffix != ".json"]
    assert names
    for name in [*names, Path("supervisor.jsonl")]:
        mirrored = (mirror / name).read_bytes() if (mirror / name).exists() else b""
        assert mirrored == (box / name).read_bytes(), name
        if name.suffix == ".jsonl":
            whole = [line for line in (box / name).read_bytes().split(b"\n") if line[-1:] == b"}"]
            numbers = [decode(line)["seq"] for line in whole]
            assert numbers == sorted(set(numbers)), name
