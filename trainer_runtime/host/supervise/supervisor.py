"""The supervisor: brings a run to where `desired.json` wants it, attempt by attempt.

Stateless over the run's files. One per run by `flock`; anyone may start another at any time, which
folds the run's history, finds what still runs and resumes from there. `tick` is one check and at
most one act; nobody need be connected.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from trainer_runtime.core.policy.endings import Ending, EndReason, Exit, classify
from trainer_runtime.core.policy.intervention import INTERVENTIONS, intervention, restarts_after
from trainer_runtime.core.policy.recovery import Action, decide
from trainer_runtime.core.policy.rehearsal import rehearsed_end
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.journal_lines import AttemptPlan
from trainer_runtime.core.protocol.states import (
    ENDED_PLACEMENTS,
    REHEARSED,
    REHEARSED_KILL,
    AttemptState,
    DesiredState,
    PlacementState,
)
from trainer_runtime.host.checkpoints.mirror import CheckpointMirror, PinnedCheckpoints
from trainer_runtime.host.files.configs import newest_config
from trainer_runtime.host.files.files import read_fields
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import remove_secrets
from trainer_runtime.host.lease.deadlines import Deadlines
from trainer_runtime.host.processes.processes import Processes
from trainer_runtime.host.supervise import attempts
from trainer_runtime.host.supervise.given_up import end_given_up, is_wanted
from trainer_runtime.host.supervise.heartbeat import Heartbeat
from trainer_runtime.host.supervise.history import SNAPSHOT_EVERY, open_history
from trainer_runtime.host.supervise.long_logs import LongLogs
from trainer_runtime.host.supervise.old_regions import OldRegions
from trainer_runtime.host.supervise.publish import Publisher
from trainer_runtime.host.watch.stalls import Inspect, StallInspector, no_verdict
from trainer_runtime.host.watch.telemetry import Telemetry


class Supervisor:
    """One run's supervisor. `processes`, `clock` and `telemetry` are what it sees the world by;
    `nodes`: of a run on several hosts, the state of each; `resize`: what follows from it."""

    def __init__(
        self,
        run: RunFolder,
        processes: Processes,
        clock: Callable[[], float],
        telemetry: Telemetry,
        *,
        window: bool = True,
        inspect: Inspect = no_verdict,
        nodes: Callable[[Iterable[str]], Mapping[str, str]] = lambda _: {},
        resize: attempts.Resize = attempts.as_it_is,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self._run = run
        self._nodes, self._resize = nodes, resize
        self._processes = processes
        self._clock = clock
        self._telemetry = telemetry
        self._history = history = open_history(run, clock, snapshot_every)
        self._journal, self._events, self._watch = history.journal, history.events, history.watch
        self._progress = history.events.progress
        self._config = newest_config(run, self._journal.record)
        self._configured_attempt: int | None = None
        self._publisher = Publisher(run, clock, window=window)
        record = self._journal.record
        self._mirror = CheckpointMirror(run, clock, self._journal.write, record.mirrored_step)
        self._alerts = history.alerts
        self._prepared_attempt: int | None = None
        self._stalls = StallInspector(run, self._watch, inspect)
        self._pinned = PinnedCheckpoints(run)
        self._deadlines = Deadlines(run)
        self._old_regions = OldRegions(run, clock)
        self._long_logs = LongLogs(run, clock, self._journal.write)
        self._heard_t = record.heartbeat_t
        self._unseen = record.current.number if record.current else None
        self._heartbeat = Heartbeat(self._journal.write, telemetry, clock)
        history.recall(self._heartbeat.beat_meanwhile)
        self._journal.write("started", {"pid": os.getpid()})
        for attempt in self._journal.record.attempts:
            if attempt.state is AttemptState.RUNNING:
                self._publisher.show(attempt.number)

    def tick(self) -> bool:
        """Evaluate once and do what is due; True when there is nothing left to do."""
        if self._act(self._journal.record, self._desired()):
            return True
        self._alerts.poll(self._journal.record, self._progress)
        self._heartbeat.beat()
        self._record_nodes()
        self._publish()
        self._history.keep()
        self._old_regions.poll(self._progress)
        return False

    def _act(self, record: Record, desired: Desired) -> bool:
        """Take the first action that is due; True when there is nothing left to do."""
        attempt = record.current
        if attempt is not None and attempt.state is not AttemptState.ENDED:
            self._events.read(attempt.number)
            self._evaluate(attempt)
            self._advance(attempt, desired)
            self._mirror_checkpoints()
            self._long_logs.poll(attempt.number)
        elif attempt is not None and record.undecided:
            self._decide(attempt)
        elif end_given_up(self._run, self._journal, desired):
            return False
        elif self._continues_elsewhere(desired):
            self._publish(final=True)
            return True
        elif desired.generation > record.generation:
            self._take_up(desired)
        elif record.state in ENDED_PLACEMENTS:
            return self._close_record(record)
        else:
            self._wait_for_restart(record, desired)
        return False

    def _close_record(self, record: Record) -> bool:
        """Finish alerts and copies of an ended run, then close its journal; True once closed."""
        mirrored = record.closed or self._mirror_checkpoints(last=True)
        if mirrored or not self._config.checkpoint.is_mirrored_to_store:  # which asks for keys
            remove_secrets(self._run, record.generation)
        alerts_done = record.closed or self._alerts.poll(record, self._progress, last=True)
        if not (mirrored and alerts_done):
            return False
        self._alerts.forget(record)
        self._publish(final=True)
        if not record.closed:
            self._journal.write("closed", {})
        return True

    def _wait_for_restart(self, record: Record, desired: Desired) -> None:
        """Between two attempts: stop if that is wanted, or begin the planned one once it is due."""
        if desired.state is DesiredState.STOPPED:
            self._enter(PlacementState.STOPPED, "stopped", None, desired.generation)
        elif self._lease_over(desired):
            self._enter(PlacementState.STOPPED, EndReason.LEASE_OVER.value, None)
        elif record.pending is not None and self._clock() >= (record.restart_due_t or 0.0):
            self._restart(record.pending)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, and its journal is closed."""
        return self._journal.record.closed

    @property
    def journal_lines(self) -> int:
        """How many lines the journal has: it grows by whatever a tick decides."""
        return self._journal.record.last_seq + 1

    def has_newer_request(self) -> bool:
        """Whether something was asked for that this supervisor could answer, and has not."""
        fields = read_fields(self._run.desired)
        if fields is None or self._continues_elsewhere(desired := Desired.of(fields)):
            return False
        return desired.generation > self._journal.record.generation

    def close(self) -> None:
        self._telemetry.close()
        self._mirror.close()
        self._publisher.close()
        self._history.close()

    def _desired(self) -> Desired:
        fields = read_fields(self._run.desired)
        if fields is None:
            raise FileNotFoundError(f"{self._run.desired} can't be read")
        return Desired.of(fields)

    def _continues_elsewhere(self, desired: Desired) -> bool:
        """Whether the session is over, and the next one's supervisor continues; any may stop it."""
        over = self._deadlines.session_over(self._progress.values(), self._clock())
        return over and is_wanted(self._journal.record, desired)

    def _take_up(self, desired: Desired) -> None:
        """Answer a newer request, with no attempt alive."""
        stopped, state = desired.state is DesiredState.STOPPED, self._journal.record.state
        if stopped or self._lease_over(desired):
            why = "stopped" if stopped else EndReason.LEASE_OVER.value
            if state in ENDED_PLACEMENTS and (stopped or state is not PlacementState.STOPPED):
                self._journal.write("acknowledged", {"generation": desired.generation})
            else:
                self._enter(PlacementState.STOPPED, why, None, desired.generation)
            return
        mode = "step" if desired.mode == "best" else desired.mode
        candidates = self._candidates(desired)
        plan = AttemptPlan(desired.why, mode, candidates, desired.set, desired.skip)
        self._begin(desired.generation, plan)

    def _candidates(self, desired: Desired) -> tuple[int, ...]:
        return tuple(attempts.candidates(self._run, self._progress, self._config, desired))

    def _restart(self, plan: AttemptPlan) -> None:
        generation = self._journal.record.generation
        if plan.candidates is None:
            desired = Desired(DesiredState.RUNNING, generation, mode=plan.mode)
            plan = replace(plan, candidates=self._candidates(desired))
        self._begin(generation, plan)

    def _begin(self, generation: int, plan: AttemptPlan) -> None:
        number = attempts.next_number(self._run, self._journal.record)
        candidates = attempts.still_there(
            self._run, self._progress, self._config, plan.mode, list(plan.candidates or ())
        )
        fields = {
            "attempt": number,
            "generation": generation,
            "why": plan.why,
            "mode": plan.mode,
            "candidates": candidates,
            "superseded": attempts.superseded(self._progress, self._config, candidates),
            "set": {**plan.set, **self._resize(self._config, plan.set)},
            "skip": None if plan.skip is None else dict(plan.skip),
            "by": plan.by,
        }
        self._journal.write("attempt_starting", fields)
        if self._journal.record.state is not PlacementState.RECOVERING:
            self._enter(PlacementState.PREPARING, None, None, generation)

    def _advance(self, attempt: AttemptRecord, desired: Desired) -> None:
        self._configure(attempt)
        if self._was_lost(attempt) or self._ended_by_request(attempt, desired):
            return
        if attempt.state is AttemptState.STARTING and not self._is_started(attempt):
            return
        observation = self._processes.observe(attempt.number)
        if observation.end is not None:
            self._finish(attempt, observation.end)
        elif observation.state == "running" and attempt.state is AttemptState.STARTING:
            self._journal.write("attempt_running", {"attempt": attempt.number})
            self._publisher.show(attempt.number)
            if attempt.terminated_t is None:
                self._enter(PlacementState.RUNNING, None, None)

    def _was_lost(self, attempt: AttemptRecord) -> bool:
        """Whether it ended with its machine while no supervisor ran: that time does not count."""
        unseen, self._unseen = self._unseen, None
        if unseen != attempt.number:
            return False
        end = self._processes.observe(attempt.number).end
        if end is None or not end.rebooted:
            return False
        self._finish(attempt, end)
        return True

    def _configure(self, attempt: AttemptRecord) -> None:
        if self._configured_attempt != attempt.number:
            attempts.write_config(self._run, self._journal.record, attempt)
            self._config = newest_config(self._run, self._journal.record)
            self._configured_attempt = attempt.number

    def _is_started(self, attempt: AttemptRecord) -> bool:
        """Bring a starting attempt one step on; True once its trainer was started."""
        number = attempt.number
        if self._processes.observe(number).state != "absent":
            return True
        if self._prepared_attempt == number:
            self._processes.start(number)
            return True
        self._processes.prepare(number)
        code = self._processes.prepared(number)
        if code == 0:
            self._prepared_attempt = number
            self._journal.write("prepared", {"attempt": number})
        elif code is not None:
            end = Exit(code if code >= 0 else None, -code if code < 0 else None, prepared=False)
            self._finish(attempt, end)
        return False

    def _ended_by_request(self, attempt: AttemptRecord, desired: Desired) -> bool:
        """End the attempt where it is not wanted any more; True if it was ended just now."""
        why = self._unwanted(desired) or self._intervention(attempt)
        if why is None:
            return False
        if attempt.terminated_t is None:
            self._journal.write("attempt_signalled", {"attempt": attempt.number, "why": why})
            restarts = restarts_after(why, self._config)
            state = PlacementState.RECOVERING if restarts else PlacementState.STOPPING
            self._enter(state, why, None, desired.generation)
        # What it would save pushes out what a rewind needs.
        spoilt = why in INTERVENTIONS or why == REHEARSED_KILL
        if spoilt or self._clock() > self._deadlines.kill_t(attempt, desired.grace_s):
            self._processes.kill(attempt.number)
        else:  # each time: hold may not have had a trainer yet that could hear it
            self._processes.terminate(attempt.number)
        if attempt.state is AttemptState.RUNNING:
            return False
        if self._processes.observe(attempt.number).state == "absent":
            self._processes.kill(attempt.number)
            self._finish(attempt, Exit(None, None, prepared=False))
            return True
        return False

    def _unwanted(self, desired: Desired) -> str | None:
        if desired.state is DesiredState.STOPPED:
            return EndReason.STOPPED.value
        progress, now = self._progress.values(), self._clock()
        return self._deadlines.passed(self._journal.record, self._config, desired, progress, now)

    def _lease_over(self, desired: Desired) -> bool:
        progress = self._progress.values()
        return self._deadlines.lease_over(self._config, desired, progress, self._clock())

    def _evaluate(self, attempt: AttemptRecord) -> None:
        now = self._clock()
        self._watch.poll(now)
        if attempt.state is AttemptState.RUNNING:  # until then it may need what was held before
            self._pinned.pin(self._watch.wanted_checkpoints)
        self._stalls.inspect_if_due(attempt.number, self._watch.findings, now)

    def _intervention(self, attempt: AttemptRecord) -> str | None:
        if attempt.terminated_why in (*INTERVENTIONS, REHEARSED, REHEARSED_KILL):
            return attempt.terminated_why
        if attempt.state is not AttemptState.RUNNING or attempt.terminated_t is not None:
            return None
        progress = self._progress[attempt.number]
        rehearsed = rehearsed_end(self._config, self._journal.record.attempts, progress)
        return rehearsed or intervention(self._watch.findings, self._config)

    def _finish(self, attempt: AttemptRecord, end: Exit) -> None:
        self._processes.kill(attempt.number)  # whatever the trainer left behind
        attempts.complete_events(self._run, attempt.number, end, self._config)
        self._events.read(attempt.number)
        progress = self._progress[attempt.number]
        end = attempts.in_step(self._run, attempt.number, end)
        end = attempts.on_nodes(self._run, attempt.number, end)
        ending = classify(end, progress, attempt.terminated_why)
        verified_step = attempts.index(self._progress, self._config).resume_from
        self._diagnose(attempt, end, ending)
        account = attempts.account_of_end(self._run, end, ending, progress)
        heard = {"heard_t": self._heard_t} if end.rebooted else {}
        self._journal.write("attempt_ended", {**account, "verified_step": verified_step, **heard})
        self._decide(attempt)

    def _diagnose(self, attempt: AttemptRecord, end: Exit, ending: Ending) -> None:
        """Record why it ended before recording that it did: an ended attempt is not read again."""
        telemetry = self._journal.record.telemetry
        ended = attempts.ended(self._run, attempt, end, ending, telemetry)
        self._watch.end(ended, self._clock())

    def _decide(self, attempt: AttemptRecord) -> None:
        """Act on the end of the newest attempt, from what the journal says of it."""
        progress = self._progress[attempt.number]
        ending = Ending(EndReason(attempt.reason), attempt.detail or "")
        record = self._journal.record
        findings = [open_finding.finding for open_finding in record.open_findings]
        decision = decide(ending, record.attempts, progress, self._config, findings)
        if decision.action is Action.RESTART:
            self._enter(decision.state, decision.reason, decision.detail)
            plan = attempts.restart_plan(self._run, self._progress, self._config, attempt, decision)
            due_t = self._clock() + decision.delay_s
            self._journal.write("restart_planned", {"due_t": due_t, **plan.to_dict()})
            return
        desired = self._desired()
        answered = desired.generation if desired.state is DesiredState.STOPPED else None
        self._enter(decision.state, decision.reason, decision.detail, answered)

    def _enter(
        self,
        state: PlacementState,
        reason: str | None,
        detail: str | None,
        generation: int | None = None,
    ) -> None:
        fields: dict[str, Any] = {"state": state.value, "reason": reason, "detail": detail}
        if generation is not None:
            fields["generation"] = generation
        self._journal.write("state", fields)

    def _mirror_checkpoints(self, *, last: bool = False) -> bool:
        """True where no checkpoint waits for a second copy."""
        return self._mirror.poll(
            self._config,
            lambda: attempts.index(self._progress, self._config).standing,
            last=last,
        )

    def _record_nodes(self) -> None:
        """Record which of the run's nodes are connected, where it has several."""
        recorded = self._journal.record.nodes
        for name, state in self._nodes(tuple(recorded)).items():
            if recorded.get(name) != state:
                self._journal.write("node", {"name": name, "state": state})

    def _publish(self, *, final: bool = False) -> None:
        self._publisher.publish(
            self._journal.record, list(self._progress.values()), self._config, final=final
        )
