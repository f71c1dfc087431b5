"""The parent of a program that is run as it is: what `train.py` of its run calls.

It stands where a trainer of ours would. It starts the program in its own folder, whose output goes
straight into the log, and writes the attempt's events: from what the program reports
(`$TRAINMASTER_EVENTS`), else from its log. It has the program's checkpoints sealed, passes a stop
on, and ends as the program has ended.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.processes.parent_death import die_with_parent
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.attach.not_copied import NotCopied
from trainer_runtime.host.attach.reported import Report, Reports
from trainer_runtime.host.files.files import read_json
from trainer_runtime.host.files.layout import AttemptFolder, RunFolder
from trainer_runtime.host.files.write_room import WriteRoom
from trainer_runtime.host.processes.signals import Signals, die_by, received
from trainer_runtime.host.script.beginning import (
    Beginning,
    NoCheckpointError,
    begin,
    sealed_steps,
    unreported_prunings,
)
from trainer_runtime.host.script.command import (
    command_of,
    meeting_of,
    program_of,
    python_of,
    variables_between_nodes,
    variables_of,
)
from trainer_runtime.host.script.saves import Outcome, Saves
from trainer_runtime.host.script.seal import PRUNED
from trainer_runtime.host.script.step_times import StepTimes
from trainer_runtime.host.script.unmatched import Unmatched

_ALL_WITHIN_S = 60.0  # a save is judged in about a second
_POLL_S = 0.1
_KEPT_METRICS = 512
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_OURS = frozenset({ExitCode.SAVED_ON_SIGTERM, ExitCode.GUARD, ExitCode.UNUSABLE})


def run_script(config_path: Path) -> int:
    """Runs the program to its end; the attempt's exit code.

    Does not return where the program died by a signal: this process then dies by the same.
    """
    config = RunConfig.parse(config_path.read_bytes(), str(config_path))
    if config.script is None:
        print("unusable: the configuration names no program", file=sys.stderr, flush=True)
        return ExitCode.UNUSABLE
    run = RunFolder(Path.cwd())
    with received() as signals:
        try:
            relay = _Relay(run, config, config.script, config_path.parent.resolve())
            code = relay.run(signals)
        except (NoCheckpointError, FileNotFoundError, NotADirectoryError) as error:
            print(f"unusable: {error}", file=sys.stderr, flush=True)
            return ExitCode.UNUSABLE
    if code < 0:
        die_by(-code)
    return code


class _Relay:
    """One attempt of a program. `folder`: the attempt's, absolute."""

    def __init__(
        self, run: RunFolder, config: RunConfig, script: ScriptConfig, folder: Path
    ) -> None:
        self._run = run
        self._config = config
        self._script = script
        self._folder = folder
        self._base = run.root / script.folder  # an absolute folder stays what it is
        self._target = config.steps or None
        self._meeting = meeting_of(AttemptFolder(folder))
        self._stop_file = folder / "stop"
        self._stop_file.unlink(missing_ok=True)
        attempt = AttemptFolder(folder)
        attempt.reported.touch()
        self._reports = Reports(attempt.reported)
        room = WriteRoom(run, config.attempt.number, None)
        self._events = LogEvents(
            attempt, time.time, launched=True, pattern=script.pattern, room=room
        )
        self._not_read = NotCopied(self._events)
        settled = (read_json(folder / "environment.json") or {}).get("python")
        self._python = str(settled) if settled is not None else script.python
        self._reporting = False
        self._watches_stop = False
        self._complained = False
        self._step = 0
        self._steps = StepTimes(run, config.attempt.number)
        self._metrics: OrderedDict[str, dict[str, float]] = OrderedDict()
        self._saves: Saves | None = None
        every = config.checkpoint.every
        self._unmatched = Unmatched(script, self._base, self._events, every)
        self._start_step = 0
        self._shown: subprocess.Popen[bytes] | None = None
        self._asked_s: float | None = None
        self._saved_since_asked = False

    def run(self, signals: Signals) -> int:
        """Start the program, listen to it, and see it end."""
        python = self._python
        events = AttemptFolder(self._folder).reported
        variables = variables_of(self._run, Beginning(), events, self._stop_file, python)
        words = command_of(self._run, self._config, self._script, Beginning(), self._meeting)
        program = program_of(words, self._base, variables)
        if program is None:
            raise FileNotFoundError(f"the command {words[0]!r} is not there or can't be run")
        if self._script.saves is not None:
            self._saves = Saves(
                self._run,
                self._config,
                self._script.saves,
                self._base,
                python or python_of(program, variables),
            )
        beginning = self._begin()
        self._step = self._start_step = beginning.step
        variables = variables_of(self._run, beginning, events, self._stop_file, python)
        variables |= variables_between_nodes(self._meeting)
        words = command_of(self._run, self._config, self._script, beginning, self._meeting)
        child = _start([program, *words[1:]], self._base, variables, self._output())
        while child.poll() is None:
            self._poll(signals, child)
            signals.wait((), _POLL_S)
        return self._ended(child.returncode, signals)

    def _output(self) -> int | None:
        """Where the program's output goes: None for the log that it inherits. By hand it goes to
        the terminal and to a log beside the configuration."""
        if self._config.attempt.is_recorded:
            return None
        words = ["tee", "-a", str(AttemptFolder(self._folder).train_log)]
        self._shown = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        return None if self._shown.stdin is None else self._shown.stdin.fileno()

    def _begin(self) -> Beginning:
        """Seal what the attempt before has left, verify what to resume from, report the start."""
        resume = self._config.attempt.resume
        sealed, gone = sealed_steps(self._run), unreported_prunings(self._run)
        # Of several nodes, all resume from what the first one's supervisor has named.
        seals = resume.mode == "latest" and self._meeting.nodes == 1
        left = self._seal_left() if seals else []
        steps = list(sealed if resume.candidates is None else resume.candidates)
        if resume.mode == "latest":
            steps = sorted({*steps, *(item.answer["step"] for item in left if item.answer)})
            steps.reverse()
        beginning = begin(self._run, self._config, self._script, self._base, steps)
        torn = [
            (self._step_of_torn(item, max([*sealed, 0])), item.problem)
            for item in left
            if item.problem
        ]
        fields = {
            "step": beginning.step,
            "resumed_from": None if beginning.checkpoint is None else beginning.step,
            "saved_by": beginning.saved_by,
            "target_step": self._target,
            "skipped": [
                {"step": step, "reason": reason} for step, reason in (*beginning.skipped, *torn)
            ],
        }
        self._events.report("started", fields)
        self._report_pruned(gone)
        for item in left:
            if item.problem is None:
                self._take_outcome(item)
        return beginning

    def _seal_left(self, all_within_s: float = 0.0) -> list[Outcome]:
        """What was saved and not judged: the newest, and all others for which there is time."""
        outcomes: list[Outcome] = []
        all_until_s = time.monotonic() + all_within_s
        while self._saves is not None:
            everything = time.monotonic() < all_until_s
            if not self._saves.is_left(everything=everything):
                break
            outcome = self._saves.poll(
                self._steps.at, self._metrics, settled=True, everything=everything
            )
            if outcome is not None:
                outcomes.append(outcome)
            self._saves.wait(_POLL_S)
        return outcomes

    def _step_of_torn(self, item: Outcome, newest: int) -> int:
        return self._saves.step_of(item.place, newest + 1) if self._saves is not None else newest

    def _poll(self, signals: Signals, child: subprocess.Popen[bytes]) -> None:
        if signals.take():
            self._ask_to_stop(child)
        self._listen()
        if self._saves is not None:
            outcome = self._saves.poll(self._steps.at, self._metrics)
            if outcome is not None:
                self._take_outcome(outcome)
        self._notice(ended=False)

    def _notice(self, *, ended: bool) -> None:
        steps = self._step - self._start_step
        has_metrics = self._reporting or bool(self._metrics)
        self._unmatched.poll(self._saves, steps, has_metrics=has_metrics, ended=ended)

    def _ask_to_stop(self, child: subprocess.Popen[bytes]) -> None:
        """Ask the program once, by a file and by its signal; who watches the file gets no signal,
        which would end it before it has saved."""
        if self._asked_s is not None:
            return
        self._asked_s = time.monotonic()
        self._stop_file.touch()
        if self._watches_stop:
            return
        number = signal.Signals[f"SIG{self._script.stop_signal}"]
        with suppress(ProcessLookupError):
            if Path(self._script.command[0]).name in _SHELLS:  # they don't pass it on
                os.killpg(child.pid, number)
            else:
                child.send_signal(number)

    def _listen(self) -> bool:
        """Take in what is new of the reports and the log; False where nothing was."""
        reports = self._reports.read()
        for report in reports:
            self._take_report(report)
        if self._reports.unreadable and not self._complained:
            self._complained = True
            reason = f"{self._reports.unreadable} lines of TRAINMASTER_EVENTS can't be read"
            self._events.say("report_not_readable", reason)
        # One source of metrics: what the program reports itself, once it does.
        is_new = not self._reporting and self._events.advance(live=True)
        self._not_read.note(self._events.refusal, self._events.position, time.time())
        for step, values in self._events.take_recent().items():
            self._take_values(step, values)
        return bool(reports) or is_new

    def _take_report(self, report: Report) -> None:
        self._watches_stop = self._watches_stop or report.watches_stop
        if report.target is not None and self._config.steps == 0:
            self._target = report.target
            self._events.report("target", {"target_step": report.target})
        if report.step is None:
            return
        self._events.write_reported(report)
        for values in (report.trained, report.evaluated):
            if values:
                self._reporting = True
                self._take_values(report.step, values)
        self._step = report.step
        if report.checkpoint is not None and self._saves is not None:
            self._saves.announce(report.checkpoint, report.step)

    def _take_values(self, step: int, values: Mapping[str, float]) -> None:
        self._step = step
        self._steps.add(time.time(), step)
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._metrics.setdefault(str(step), {}).update(finite)
        while len(self._metrics) > _KEPT_METRICS:
            self._metrics.popitem(last=False)

    def _take_outcome(self, outcome: Outcome) -> None:
        """Report what became of a checkpoint."""
        answer = outcome.answer
        if outcome.problem is not None:
            step = self._step_of_torn(outcome, self._step)
            fields = {"step": step, "action": "failed", "reason": outcome.problem}
            self._events.report("checkpoint", fields)
            return
        saved = {name: answer[name] for name in ("step", "path", "size_bytes", "write_s")}
        saved["metrics"] = answer.get("metrics", {})
        self._events.report("checkpoint", {"action": "saved", **saved})
        self._events.report("checkpoint", {"action": "verified", "step": answer["step"]})
        self._report_pruned(answer.get("pruned", ()))
        self._saved_since_asked = self._saved_since_asked or self._asked_s is not None

    def _report_pruned(self, steps: Iterable[int]) -> None:
        for step in steps:
            self._events.report("checkpoint", {"action": "pruned", "step": step})
        (self._run.checkpoints / PRUNED).unlink(missing_ok=True)

    def _ended(self, code: int, signals: Signals) -> int:
        """Take in all that is left, and say by which code the attempt ends."""
        while self._listen():
            pass
        self._events.finish()
        # One that was asked to stop may have little time.
        for outcome in self._seal_left(_ALL_WITHIN_S if self._asked_s is None else 0.0):
            self._take_outcome(outcome)
        self._notice(ended=code == 0)
        self._asked_s = time.monotonic() if signals.take() else self._asked_s
        if code == 0 and self._is_at_target():
            self._events.report("completed", {"step": self._step, **self._final()})
            self._events.sync()
            return ExitCode.COMPLETE
        self._events.sync()
        if self._asked_s is not None and self._saved_since_asked:
            return ExitCode.SAVED_ON_SIGTERM
        # Those of ours would mean something else.
        return 1 if code in _OURS else code

    def _is_at_target(self) -> bool:
        """A program that ends by itself is complete, unless it was to go further."""
        if self._target is None:
            return self._asked_s is None
        if self._step == 0:  # none was read: the exit code alone counts
            return self._asked_s is None
        # Where steps are counted from 0 the last one is called one less.
        return self._step >= self._target - 1

    def _final(self) -> dict[str, str]:
        """The final model, as `final` of the run's folder."""
        if self._script.final is None:
            return {}
        source, place = self._base / self._script.final, self._run.root / "final"
        if not source.exists() or os.path.lexists(place):
            return {}
        if source.is_dir():
            saves = set() if self._saves is None else set(self._saves.matches())
            shutil.copytree(
                source,
                place,
                copy_function=_link_or_copy,
                ignore=lambda parent, names: [
                    name for name in names if Path(parent, name) in saves
                ],
            )
        else:
            place.mkdir()
            _link_or_copy(str(source), str(place / source.name))
        return {"final": "final"}


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _start(
    words: Sequence[str], base: Path, variables: Mapping[str, str], output: int | None
) -> subprocess.Popen[bytes]:
    """The program, leading a group of its own; it inherits the run's lock."""
    parent = os.getpid()

    def set_up() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        os.setpgid(0, 0)

    return subprocess.Popen(
        words,
        cwd=base,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        close_fds=False,
        preexec_fn=set_up,  # noqa: PLW1509 (there are no threads)
    )
