from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.host.scripted_processes import CONFIG
from support.runs.running_run import run_async
from support.session.tiers import at_length

from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.metrics import MetricsAnswer
from trainmaster.answers.runs import LogAnswer
from trainmaster.calls.shares import Shares
from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import StateError, UsageError
from trainmaster.runs.attach import AttachOptions, attach
from trainmaster.runs.diagnose import diagnose
from trainmaster.runs.log.logs import read_log
from trainmaster.runs.metrics.query_metrics import query_metrics
from trainmaster.store.mirror_writer import MirrorWriter
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

RUN = "small-abc234"


class Logs:
    """A closed run whose mirror holds the given logs of its attempts."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        run = Run(RUN, "small", 1.0, "debug", "", CONFIG, {}, {})
        workspace.control.add_run(
            run, Desired(DesiredState.RUNNING, 1), "in_process", "/folder", None
        )
        workspace.control.close_run(RUN, answered=1)

    def write(self, *attempts: bytes, name: str = "train.log") -> None:
        mirror = self.workspace.mirror.of(RUN, 1)
        for number, data in enumerate(attempts, 1):
            mirror.append(f"attempts/{number}/{name}", data)

    def read(self, run: str = RUN, **arguments: object) -> LogAnswer:
        return run_async(lambda: read_log(self.workspace, run, **arguments))  # type: ignore[arg-type]

    def read_on(self, limit: int, cursor: str = "l1.train.0.0", **more: object) -> list[str]:
        """All lines from a cursor on, by as many answers as it takes."""
        lines: list[str] = []
        for _ in range(10_000):
            answer = self.read(cursor=cursor, limit=limit, **more)
            assert len(answer.lines) <= limit
            lines, cursor = lines + answer.lines, answer.cursor
            if not answer.more:
                return lines
        raise AssertionError("the log has no end")


@pytest.fixture
def logs(workspace: Workspace) -> Logs:
    return Logs(workspace)


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, last + 1))


def texts(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last + 1)]


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_every_line_is_read_once_over_all_attempts(logs: Logs, limit: int) -> None:
    logs.write(numbered(1, 10), b"", numbered(11, 12), numbered(13, 20))
    assert logs.read_on(limit) == texts(1, 20)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_blank_lines_are_lines_and_shift_nothing(logs: Logs, limit: int) -> None:
    logs.write(b"one\n\n\n  \ntwo\n\nthree\n")
    assert [line.strip() for line in logs.read_on(limit)] == ["one", "", "", "", "two", "", "three"]


def test_the_tail_continues_where_it_ended(logs: Logs) -> None:
    logs.write(numbered(1, 10))
    tail = logs.read(limit=3)
    assert (tail.lines, tail.more) == (texts(8, 10), False)
    logs.write(numbered(11, 12))
    onward = logs.read(cursor=tail.cursor)
    assert onward.lines == texts(11, 12)
    assert logs.read(cursor=onward.cursor).lines == []
    logs.write(b"", numbered(13, 14))
    assert logs.read(cursor=onward.cursor).lines == texts(13, 14)


def test_the_tail_reaches_back_over_attempts(logs: Logs) -> None:
    logs.write(numbered(1, 10), numbered(11, 12), b"", b"torn")
    tail = logs.read(limit=5)
    assert tail.lines == texts(8, 12)


def test_a_line_still_being_written_waits_for_its_end(logs: Logs) -> None:
    logs.write(b"line 1\nli")
    first = logs.read(cursor="l1.train.0.0")
    assert (first.lines, first.more) == (["line 1"], False)
    assert logs.read().lines == ["line 1"]
    logs.write(b"ne 2\n")
    assert logs.read(cursor=first.cursor).lines == ["line 2"]


def test_what_a_killed_trainer_wrote_last_is_read_once_the_next_attempt_has_begun(
    logs: Logs,
) -> None:
    logs.write(b"line 1\nCUDA error: no")
    first = logs.read(cursor="l1.train.0.0")
    logs.write(b"", b"line 3\n")
    assert logs.read(cursor=first.cursor).lines == ["CUDA error: no", "line 3"]
    assert logs.read(limit=2).lines == ["CUDA error: no", "line 3"]
    assert logs.read_on(1) == ["line 1", "CUDA error: no", "line 3"]


def test_progress_bars_are_collapsed_and_nothing_steers_the_terminal(logs: Logs) -> None:
    logs.write(b"  1%|\r 50%|\r100%| done\n\x1b[31mloss\x1b[0m 2.5\r\n\xe2\x80\xaeevil\n")
    expected = ["100%| done", "loss 2.5", "evil"]
    assert logs.read().lines == expected
    assert logs.read_on(1) == expected


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_grep_keeps_the_lines_that_match_and_moves_past_the_others(logs: Logs, limit: int) -> None:
    logs.write(numbered(1, 30), numbered(31, 60))
    matching = ["line 5", "line 15", "line 25", "line 35", "line 45", "line 55"]
    assert logs.read_on(limit, grep="5$") == matching
    assert logs.read(grep="5$", limit=limit).lines == matching[-limit:]


def test_grep_sees_what_is_shown(logs: Logs) -> None:
    logs.write(b"\x1b[31mlo\x1b[0mss 2.5\n")
    assert logs.read(grep="^loss").lines == ["loss 2.5"]


@pytest.mark.parametrize("grep", ["(", "x" * 501, "[z-a]"])
def test_an_expression_that_cannot_be_used_is_refused(logs: Logs, grep: str) -> None:
    with pytest.raises(UsageError) as refused:
        logs.read(grep=grep)
    assert (refused.value.code, refused.value.field) == ("BAD_ARGUMENT", "grep")


@pytest.mark.slow
def test_an_expression_that_would_take_for_ever_is_given_up(logs: Logs) -> None:
    logs.write(b"a" * 60 + b"!\n")
    with pytest.raises(UsageError) as refused:
        logs.read(grep="(a|aa)+$")
    assert (refused.value.code, refused.value.field) == ("BAD_ARGUMENT", "grep")


@pytest.mark.parametrize(
    "cursor",
    ["", "0", "l1.setup.1.0", "l1.train.x.0", "w1.1.2.3.4", "l1.train.1.-5", f"l1.train.1.{9**30}"],
)
def test_a_cursor_of_something_else_is_refused(logs: Logs, cursor: str) -> None:
    with pytest.raises(UsageError) as refused:
        logs.read(cursor=cursor)
    assert refused.value.code == "CURSOR_INVALID"


def test_a_cursor_beyond_the_end_starts_again(logs: Logs) -> None:
    logs.write(b"line 1\n")
    answer = logs.read(cursor="l1.train.1.7000")
    assert (answer.lines, answer.more) == (["line 1"], False)


def test_a_log_that_was_replaced_is_read_to_its_end_and_on_from_the_new_ones_begin(
    logs: Logs,
) -> None:
    logs.write(b"line 1\nline 2\ntorn")
    first = logs.read(cursor="l1.train.1.0", limit=1)
    writer = MirrorWriter(logs.workspace.mirror.of(RUN, 1), lambda: None)
    writer.rotate("attempts/1/train.log", 7)
    writer.append("attempts/1/train.log", b"line 3\nline 4\n", final=False)
    onward = logs.read(cursor=first.cursor)
    assert onward.lines == ["line 2", "torn", "line 3", "line 4"]
    assert logs.read(cursor=onward.cursor).lines == []
    writer.append("attempts/1/train.log", b"line 5\n", final=False)
    assert logs.read(cursor=onward.cursor).lines == ["line 5"]
    assert logs.read(limit=4).lines == ["torn", "line 3", "line 4", "line 5"]


def test_huge_lines_are_cut_and_read_once(logs: Logs) -> None:
    huge = b"x" * 3_000_000
    logs.write(b"before\n" + huge + b"\nafter\n" + huge + b"\n")
    lines = logs.read_on(2)
    assert [line[:6] for line in lines] == ["before", "xxxxxx", "after", "xxxxxx"]
    assert max(map(len, lines)) < 2100
    assert [line[:6] for line in logs.read(limit=3).lines] == ["xxxxxx", "after", "xxxxxx"]


def test_the_tail_of_a_long_log_is_that_of_all_its_lines(logs: Logs) -> None:
    chosen = random.Random(3)
    written = [f"{number} " + "y" * chosen.randrange(4000) for number in range(2000)]
    logs.write("".join(line + "\n" for line in written).encode())
    assert logs.read(limit=400).lines == [_cut(line) for line in written[-400:]]
    assert logs.read_on(333) == [_cut(line) for line in written]


def test_other_streams_have_cursors_of_their_own(logs: Logs) -> None:
    logs.write(b"train\n")
    logs.write(b"setup\n", name="setup.log")
    logs.workspace.mirror.of(RUN, 1).append("supervisor.jsonl", b'{"kind":"state"}\n')
    assert logs.read(stream="setup").lines == ["setup"]
    supervisor = logs.read(stream="supervisor")
    assert supervisor.lines == ['{"kind":"state"}']
    with pytest.raises(UsageError):
        logs.read(stream="train", cursor=supervisor.cursor)


def test_a_file_can_be_read_like_a_run(logs: Logs, tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_bytes(numbered(1, 5))
    tail = logs.read(str(path), limit=2)
    assert tail.lines == texts(4, 5)
    path.write_bytes(numbered(1, 6))
    assert logs.read(str(path), cursor=tail.cursor).lines == ["line 6"]


def test_what_is_neither_run_nor_file_is_reported(logs: Logs, tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no run has that name"):
        logs.read(str(tmp_path / "gone.log"))


def test_a_run_without_a_log_yet_has_no_lines(logs: Logs) -> None:
    answer = logs.read()
    assert (answer.lines, answer.more) == ([], False)
    logs.write(b"line 1\n")
    assert logs.read(cursor=answer.cursor).lines == ["line 1"]


def _cut(line: str, longest: int = 2000) -> str:
    if len(line) <= longest:
        return line
    return f"{line[:longest]} … ({len(line) - longest} more characters)"


def test_reading_in_any_portions_gives_the_same_lines(logs: Logs) -> None:
    chosen = random.Random(11)
    attempts = [_noise(chosen) for _ in range(4)]
    logs.write(*attempts)
    whole = logs.read_on(10_000)
    assert all(logs.read_on(limit) == whole for limit in (1, 2, 5, 17))
    assert logs.read(limit=10_000).lines == whole


def _noise(chosen: random.Random) -> bytes:
    words: Sequence[bytes] = (b"a", b"", b"\r", b"loss 2.5", b"\x1b[1m", b"\xff", b"\t", b" ")
    return b"".join(
        b"".join(chosen.choices(words, k=chosen.randrange(4))) + b"\n" for _ in range(30)
    )


@pytest.mark.parametrize("name", ["secrets.env", "settings.yaml", "keys/rented"])
def test_what_holds_our_own_secrets_is_read_as_no_log(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    secret = workspace.home.root / name
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("RUNPOD_API_KEY: a-key\n")
    link = tmp_path / "train.log"
    link.symlink_to(secret)
    attached = AttachOptions(log=str(link))
    for read in (
        lambda: read_log(workspace, str(link)),
        lambda: diagnose(workspace, str(secret)),
        lambda: attach(workspace, "local", attached),
    ):
        with pytest.raises(UsageError, match="keeps secrets") as refused:
            run_async(read)
        assert refused.value.code == "LOG_NOT_READABLE"
        assert "a-key" not in str(refused.value)


def test_the_bar_that_is_being_drawn_is_shown_as_it_stands_and_read_again(logs: Logs) -> None:
    logs.write(b"start\n" + b"".join(b"\r %d/20 [00:0%d, 1it/s]" % (at, at) for at in (1, 2, 3)))
    tail = logs.read()
    assert [line.strip() for line in tail.lines] == ["start", "3/20 [00:03, 1it/s]"]
    logs.write(b"\r 20/20 [00:09, 1it/s]\nend\n")
    onward = logs.read(cursor=tail.cursor)
    assert [line.strip() for line in onward.lines] == ["20/20 [00:09, 1it/s]", "end"]


def test_a_runs_log_is_read_again_by_a_pattern(logs: Logs) -> None:
    own = b"".join(b"upd %d of 90 -> ce %d.5 took 0.1\n" % (at, 99 - at) for at in range(1, 91))
    logs.write(b"an attempt before\n", own)

    def metrics(pattern: str | None) -> MetricsAnswer:
        return run_async(lambda: query_metrics(logs.workspace, [RUN], pattern=pattern))

    assert metrics(None).runs[RUN] == {}
    answer = metrics("upd {step} of {target} -> ce {loss}")
    assert (answer.runs[RUN]["loss"].n, answer.runs[RUN]["loss"].last) == (90, 9.5)
    assert any("read again" in note for note in answer.notes or [])
    with pytest.raises(UsageError, match="matches none"):
        metrics("epoch {step} ce {loss}")
    diagnosis = run_async(
        lambda: diagnose(logs.workspace, RUN, pattern="upd {step} of {target} -> ce {loss}")
    )
    assert all(finding.severity != "critical" for finding in diagnosis.findings)


def test_a_run_without_a_log_here_cannot_be_read_again(logs: Logs) -> None:
    with pytest.raises(UsageError, match="Nothing of the log") as refused:
        run_async(lambda: query_metrics(logs.workspace, [RUN], pattern="upd {step} ce {loss}"))
    assert refused.value.code == "LOG_NOT_READABLE"


@pytest.mark.parametrize("cursor", ["l1.train.1.100", *at_length(None, "e1.train.2.5000000")])
def test_a_servers_search_of_a_long_log_answers_as_a_command_does(
    logs: Logs, started_here: Callable[[], list[int]], cursor: str | None
) -> None:
    line = b"step %d: loss 0.5\n"
    logs.write(*(b"".join(line % step for step in range(150_000)) for _ in range(2)))
    arguments = {"grep": "step 1[0-9]*7:", "limit": 30, "cursor": cursor}
    expected = logs.read(**arguments)
    processes: set[int] = set()

    async def searched() -> LogAnswer:
        with working(Work("ann", within_s=60.0, shares=Shares())):
            reading = asyncio.ensure_future(read_log(logs.workspace, RUN, **arguments))  # type: ignore[arg-type]
            while not reading.done():
                processes.update(started_here())
                await asyncio.wait([reading], timeout=0.01)
            return await reading

    assert run_async(searched) == expected and len(expected.lines) == 30
    assert processes


def test_a_file_that_the_system_will_not_read_is_named_with_the_systems_reason(
    workspace: Workspace,
) -> None:
    for cursor in (None, "l1.file.0.0"):  # the addresses at 0 are of no process: EIO
        with pytest.raises(UsageError, match=r"/mem can't be read as a log") as refused:
            run_async(lambda cursor=cursor: read_log(workspace, "/proc/self/mem", cursor=cursor))
        assert refused.value.code == "LOG_NOT_READABLE"
