"""A home with a run on record, and a folder with specs that can be planned."""

from __future__ import annotations

from pathlib import Path

from support.core.journal_records import attempt_starting, lines, metric, started, state
from support.runs.running_run import small_spec
from support.sync.followed_run import FakeRun

from trainmaster.home.paths import Home
from trainmaster.sync.workspace import Workspace

RUN = "small-aaaaaa"
SPECS = ("small", "program")
_PROGRAM = """\
name: program
framework: script
script: {path: ., command: [python, train.py], checkpoints: out}
host: debug
"""


def plant_specs(folder: Path) -> None:
    """`SPECS` as YAML files, with what they name."""
    (folder / "small.yaml").write_text(small_spec(folder, host="debug"))
    (folder / "program.yaml").write_text(_PROGRAM)
    (folder / "train.py").write_text("print()\n")


def plant_home(root: Path, box: Path) -> Home:
    """A home in which `RUN` is on record, placed below `box`."""
    home = Home(root)
    root.mkdir(mode=0o700)
    workspace = Workspace(home)
    try:
        planted = FakeRun(workspace, box / RUN, "debug")
        planted.write("supervisor.jsonl", b"".join(lines([attempt_starting(1), state("running")])))
        planted.write("attempts/1/events.jsonl", b"".join(lines([started(), metric(1, 2.5)])))
    finally:
        workspace.close()
    return home
