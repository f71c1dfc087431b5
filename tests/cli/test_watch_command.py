"""`watch`: a table that fits any terminal, and leaves it as it was."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.core.journal_records import attempt_starting, metric, started, state
from support.runs.planted_journal import EVENTS, PlantedJournal
from support.runs.planted_runs import finding
from support.runs.running_run import CommandLine, wait_until

from trainmaster.answers.watch import WatchAnswer, WatchRow
from trainmaster.cli.views.watch import Layout, lines, takes_unicode
from trainmaster.sync.workspace import Workspace

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_BARS = "▁▂▃▄▅▆▇█"


def row(name: str, **fields: object) -> WatchRow:
    known = {
        "run_id": f"{name}-abcdef",
        "name": name,
        "state": "running",
        "host": "gpu1",
        "step": 1200,
        "target_step": 20000,
        "loss": 2.6123,
        "curve": [4.0 - n / 4 for n in range(12)],
        "tokens_per_s": 182_345.0,
        "eta_s": 7500.0,
        "findings": [],
        "usd": 12.5,
    }
    return WatchRow.model_validate({**known, **fields})


def table(*rows: WatchRow, **layout: object) -> list[str]:
    answer = WatchAnswer(runs=list(rows), usd_per_h=2.99, next_step="trainmaster monitor")
    return lines(answer, Layout(**layout))  # type: ignore[arg-type]


_ROWS = (
    row("gpt2-124m-lr3e-4-warmup-2000"),
    row("tiny", state="failed", findings=["cuda_oom", "loss_spike"], eta_s=None),
    row("sft", loss="NaN", curve=[], target_step=None, usd=None),
)


def test_a_wide_terminal_shows_everything() -> None:
    title, first, second, *_, total = table(*_ROWS, width=200)
    columns = ["run", "state", "step", "loss", "curve", "to go", "tok/s", "$", "findings"]
    assert re.split("  +", title) == columns
    assert first.startswith("gpt2-124m-lr3e-4-warmup-  running  1200/20000  2.612  █")
    assert first.endswith("2 h  182,345  $12.50")
    assert second.endswith("cuda_oom, loss_spike")
    assert total == "2 open, 1 ended, 1 failed, instances cost $2.99/h"


@pytest.mark.parametrize("width", [200, 80, 72, 60, 40, 30, 20, 8])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    shown = table(*_ROWS, width=width, unicode=unicode)
    assert max(map(len, shown)) <= width
    assert len(shown) == len(_ROWS) + 3
    if width >= 40:
        assert [line.split()[0] for line in shown[2:4]] == ["tiny", "sft"]
        assert "2.612" in shown[1]
    if width >= 80:
        assert "curve" in shown[0]
    if width >= 60:
        assert "cuda_oom" in shown[2]
    if not unicode:
        assert "".join(shown).isascii()


def test_without_unicode_the_curve_is_drawn_in_ascii() -> None:
    first = table(*_ROWS, width=100, unicode=False)[1]
    assert not set(_BARS) & set(first)
    assert "#" in first
    assert takes_unicode({"LANG": "C.UTF-8"})
    assert takes_unicode({})
    assert not takes_unicode({"LC_ALL": "C", "LANG": "en_US.UTF-8"})


def test_more_runs_than_lines_are_counted() -> None:
    shown = table(*(row(f"r{n}") for n in range(30)), height=10)
    assert len(shown) <= 10
    assert shown[-3] == "and 24 more"


def test_what_is_no_terminal_gets_the_table_once(
    workspace: Workspace, command: CommandLine
) -> None:
    run = planted(workspace)
    answer = command("watch")
    (found,) = answer["runs"]
    assert (found["run_id"], found["step"], found["findings"]) == (run, 39, ["cuda_oom"])
    assert answer["next_step"].endswith("monitor")


def planted(workspace: Workspace) -> str:
    run = PlantedJournal(workspace, "gpt")
    run.write(started(0, 1000), *(metric(n, 4.0 - n / 20) for n in range(1, 40)), name=EVENTS)
    run.write(attempt_starting(1), state("running"), finding("0a0a0a0a"))
    return run.run_id


class Terminal:
    """`trainmaster watch` in a terminal of its own."""

    def __init__(self, home: Path, columns: int) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.environ.update(TRAINMASTER_HOME=str(home), TERM="xterm", COLUMNS=str(columns))
            program = "from trainmaster.cli import main; main()"
            os.execv(sys.executable, [sys.executable, "-c", program, "watch", "--every", "0.2"])
        self.printed = ""

    def until(self, met: Callable[[str], bool]) -> None:
        deadline = time.monotonic() + 60
        while not met(self.printed):
            assert time.monotonic() < deadline, self.printed[-2000:]
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.printed += os.read(self.master, 65536).decode()
                except OSError:
                    return

    def end(self) -> int:
        """Its exit code; what it printed to the end is read."""
        while select.select([self.master], [], [], 0.5)[0]:
            try:
                self.printed += os.read(self.master, 65536).decode()
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_terminal_is_redrawn_in_place_and_left_clean(
    workspace: Workspace, home: Path, key: bytes
) -> None:
    planted(workspace)
    terminal = Terminal(home, 72)
    before = termios.tcgetattr(terminal.master)
    terminal.until(lambda text: text.count("gpt") >= 2)
    assert termios.tcgetattr(terminal.master)[3] != before[3]
    os.write(terminal.master, key)
    terminal.until(lambda text: "\x1b[?1049l" in text)
    wait_until(lambda: termios.tcgetattr(terminal.master)[3] == before[3], "the terminal's modes")
    assert terminal.end() == 0
    assert terminal.printed.index("\x1b[?1049h") < terminal.printed.index("\x1b[?1049l")
    assert "\x1b[?25h" in terminal.printed
    assert "Traceback" not in terminal.printed
    frames = _ESCAPE.sub("", terminal.printed)
    assert "gpt" in frames
    assert "cuda_oom" in frames
