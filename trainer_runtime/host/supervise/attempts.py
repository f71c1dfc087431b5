"""Computes what an attempt starts from: its configuration and the checkpoints it may resume."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer_runtime.core.checkpoints.checkpoint_index import CheckpointIndex, build_index
from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.config.rehost import PLACEMENT, rehosted
from trainer_runtime.core.decoding import DecodingError
from trainer_runtime.core.environment.setup_log import FIRST_STEP, setup_step
from trainer_runtime.core.files.durable import write_atomic
from trainer_runtime.core.files.regular import open_regular
from trainer_runtime.core.frameworks import launching
from trainer_runtime.core.policy.endings import Ending, EndReason, Exit
from trainer_runtime.core.policy.patch import PatchError, apply_sets
from trainer_runtime.core.policy.recovery import Decision
from trainer_runtime.core.policy.skipped_data import is_skipped
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.journal import AttemptRecord, Record
from trainer_runtime.core.protocol.journal_lines import AttemptPlan
from trainer_runtime.core.protocol.lineage import lineage_of
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import REHEARSED_KILL, DesiredState
from trainer_runtime.core.protocol.text import shown
from trainer_runtime.host.files.configs import NOTHING
from trainer_runtime.host.files.files import read_fields, read_json, write_json
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.files.secret_file import secret_values
from trainer_runtime.host.watch.watcher import Ended

_LAST_WORDS_BYTES = 2000
_SETUP_LOG_BYTES = 16_384
_LONGEST_LAST_WORDS = 300

# From the newest configuration, and the changes of the next attempt, to what it changes besides.
Resize = Callable[[RunConfig, Mapping[str, object]], Mapping[str, object]]


def as_it_is(_config: RunConfig, _sets: Mapping[str, object]) -> Mapping[str, object]:
    """Of a run on one host."""
    return {}


def write_config(run: RunFolder, record: Record, attempt: AttemptRecord) -> None:
    """Write the attempt's config.json: the last attempt's, with what was asked to change.

    Raises:
        OSError: it can't be written.
    """
    folder = run.attempt(attempt.number)
    folder.root.mkdir(parents=True, exist_ok=True)
    if folder.config.exists():
        return
    config = _base_config(run, record, attempt)
    try:
        config = apply_sets(config, attempt.set)
    except PatchError as error:
        # The client checks names before it asks; a newer one may know more than we do.
        folder.setup_log.write_text(f"{error}; left as it was\n")
    if attempt.skip and not is_skipped(_parsed(config), attempt.skip):
        config["data"] = {
            **config["data"],
            "skip": [*(config["data"].get("skip") or []), dict(attempt.skip)],
        }
    config["attempt"] = {
        "number": attempt.number,
        "resume": {"mode": attempt.mode, "candidates": attempt.candidates},
        "reason": attempt.why,
    }
    # The configuration comes last: what has one is whole.
    for name, text in launching.files(_parsed(config)).items():
        path = folder.root / name
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, text.encode())
    write_json(folder.config, config)


def candidates(
    run: RunFolder,
    progress: Mapping[int, Progress],
    config: RunConfig,
    desired: Desired,
) -> list[int]:
    """The steps to try, best choice first. Whether they verify is found out by the trainer. Of a
    run that came without checkpoints, those that its mirror in an object store may have."""
    if desired.mode == "scratch":
        return []
    if desired.mode == "step":
        return [int(desired.step or 0)]
    if desired.mode == "best":
        best = index(progress, config).best
        return [] if best is None else [best]
    on_disk = _manifests(run)
    if not on_disk and config.checkpoint.is_mirrored_to_store:  # it comes from another host
        there = [entry.step for entry in index(progress, config).entries if entry.verified]
        return sorted(there, reverse=True)
    lineage = lineage_of(_in_order(progress))
    return sorted(
        (step for step, attempt in on_disk.items() if lineage.is_live(attempt, step)),
        reverse=True,
    )


def superseded(
    progress: Mapping[int, Progress], config: RunConfig, tried: Sequence[int]
) -> list[int]:
    """The verified checkpoints that a start from the first of `tried` leaves behind and keeps."""
    return index(progress, config).kept_behind(tried[0] if tried else 0)


def still_there(
    run: RunFolder,
    progress: Mapping[int, Progress],
    config: RunConfig,
    mode: str,
    tried: list[int],
) -> list[int]:
    """`tried`, or the live steps up to its newest where the disk has none of it any more.

    So it is after a session that saved them and was lost with them. A step that was asked for by
    name is never replaced.
    """
    if mode != "latest" or not tried or set(tried) & set(_manifests(run)):
        return tried
    newest_first = candidates(run, progress, config, Desired(DesiredState.RUNNING, 0))
    return [step for step in newest_first if step <= max(tried)]


def next_number(run: RunFolder, record: Record) -> int:
    """The next attempt's number: no existing folder has it."""
    folders = (path.name for path in (run.root / "attempts").glob("*"))
    used = [int(name) for name in folders if name.isdigit()]
    return 1 + max([*used, *(attempt.number for attempt in record.attempts)], default=0)


def restart_plan(
    run: RunFolder,
    progress: Mapping[int, Progress],
    config: RunConfig,
    attempt: AttemptRecord,
    decision: Decision,
) -> AttemptPlan:
    """What a restart after `attempt` resumes from and changes."""
    mode: str = "latest"
    tried: list[int] | None = None
    if decision.resume_from == "scratch":
        mode, tried = "scratch", []
    elif decision.reason == REHEARSED_KILL:
        mode, tried = "step", [int(decision.resume_from)]  # and no newer one that a program left
    elif isinstance(decision.resume_from, int):
        newest_first = candidates(run, progress, config, Desired(DesiredState.RUNNING, 0))
        tried = [step for step in newest_first if step <= decision.resume_from]
    elif progress[attempt.number].started_at_step is None:
        # It never came to its start, and has not used up its checkpoint to resume from.
        mode, tried = attempt.mode, attempt.candidates
    return AttemptPlan(
        why=decision.why or decision.reason,
        mode=mode,
        candidates=None if tried is None else tuple(tried),
        set=decision.set,
        skip=decision.skip,
        by=decision.by,
    )


def index(progress: Mapping[int, Progress], config: RunConfig) -> CheckpointIndex:
    """The run's checkpoint index, from all attempts' events."""
    return build_index(_in_order(progress), config.checkpoint.metric)


def complete_events(run: RunFolder, attempt: int, end: Exit, config: RunConfig) -> None:
    """Write what a program has reported and its relay, which was killed, has not."""
    if config.script is not None and end.code is None and end.prepared:
        # It imports the log parser, which few runs need.
        from trainer_runtime.host.attach.unwritten_events import write_left_events

        with suppress(OSError):  # of a full disk: the next attempt says so
            write_left_events(run.attempt(attempt), config.script.pattern)


def in_step(run: RunFolder, attempt: int, end: Exit) -> Exit:
    """`end` with the step of the preparation that it came in, where it came in one."""
    if end.prepared:
        return end
    try:
        tail = _tail(run.attempt(attempt).setup_log, _SETUP_LOG_BYTES)
    except OSError:
        return end
    step = setup_step([line for raw in tail.split(b"\n") if (line := shown(raw))])
    return replace(end, step=step.name if step is not None else FIRST_STEP)


def on_nodes(run: RunFolder, attempt: int, end: Exit) -> Exit:
    """`end` with what node 0 of several has found out about the other nodes' part in it."""
    record = read_fields(run.attempt(attempt).nodes_end)
    if record is None:
        return end
    lost, node, rank = (
        record.find_text("lost"),
        record.find_text("node"),
        record.find_integer("rank"),
    )
    if lost is not None:
        silent = spoken_duration(record.number("silent_s", 0.0))
        # Whatever its ranks ended by since, node 0 did that itself.
        return replace(end, code=None, signal=None, lost=lost, where=f"not heard of for {silent}")
    where = f"node {node}" if rank is None else f"rank {rank} on node {node}"
    problem = record.find_text("problem")
    if problem is not None:  # that node's part never began, and this one's was ended for it
        end = replace(end, code=1, signal=None, prepared=False)
        where += f": {shown(problem.encode())[:_LONGEST_LAST_WORDS]}"
    return replace(end, where=where, elsewhere=node != _first_node(run))


def _first_node(run: RunFolder) -> str | None:
    """The name of the node that this is, of several."""
    fields = read_fields(run.nodes)
    return None if fields is None else fields.sections("nodes")[0].text("name")


def account_of_end(run: RunFolder, end: Exit, ending: Ending, progress: Progress) -> dict[str, Any]:
    """How an attempt ended, as the journal records it."""
    is_lost = end.rebooted and progress.first_event_t is None
    return {
        "attempt": progress.attempt,
        "reason": ending.reason.value,
        "detail": ending.detail,
        "last_words": last_words(run, progress.attempt, end.prepared),
        "code": end.code,
        "signal": end.signal,
        "last_step": None if is_lost else progress.step,
        "started_at_step": progress.started_at_step,
    }


def ended(
    run: RunFolder,
    attempt: AttemptRecord,
    end: Exit,
    ending: Ending,
    telemetry: Mapping[str, object],
) -> Ended:
    """How an attempt ended, as the diagnosis takes it."""
    return Ended(
        end.code,
        end.signal,
        completed=ending.reason is EndReason.COMPLETED,
        prepared=end.prepared,
        since_t=attempt.starting_t,
        pids=pids(run, attempt.number),
        telemetry=telemetry,
        lost=None if end.lost is None else f"node {end.lost}: {end.where}",
        where=end.where,
        elsewhere=end.elsewhere,
    )


def last_words(run: RunFolder, attempt: int, prepared: bool) -> str | None:
    """The last line that the preparation or the trainer printed, harmless and cut."""
    folder = run.attempt(attempt)
    path = folder.train_log if prepared else folder.setup_log
    mask = Mask(secret_values(run).values())
    try:
        # From so far before that a value which begins there is known as a whole.
        tail = _tail(path, _LAST_WORDS_BYTES + mask.reach_bytes)
    except OSError:
        return None
    tail = mask.apply(tail, final=True)[-_LAST_WORDS_BYTES:]
    lines = [words for line in tail.split(b"\n") if (words := shown(line).strip())]
    return lines[-1][:_LONGEST_LAST_WORDS] if lines else None


def pids(run: RunFolder, attempt: int) -> tuple[int, ...]:
    """The processes of an attempt that are on record: hold's, the trainer's, each rank's."""
    folder = run.attempt(attempt)
    noted = [*(read_json(folder.process) or {}).values()]
    noted += [read_json(path) for path in sorted(folder.ranks.glob("*.json"))]
    values = [entry.get("pid") for entry in noted if isinstance(entry, dict)]
    return tuple(pid for pid in values if isinstance(pid, int))


def _in_order(progress: Mapping[int, Progress]) -> list[Progress]:
    return [progress[number] for number in sorted(progress)]


def _tail(path: Path, size_bytes: int) -> bytes:
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size_bytes))
        return file.read(size_bytes)


def _parsed(document: ConfigDocument) -> RunConfig:
    """Without values where it can't be used, which the trainer then says."""
    try:
        return RunConfig.parse(document)
    except DecodingError:
        return NOTHING


def _base_config(run: RunFolder, record: Record, attempt: AttemptRecord) -> dict[str, Any]:
    planned = read_json(run.config)
    for earlier in reversed(record.attempts):
        if earlier.number < attempt.number:
            config = read_json(run.attempt(earlier.number).config)
            if config is None:
                continue
            if planned is None or planned.get(PLACEMENT) == config.get(PLACEMENT):
                return config
            return rehosted(config, planned)
    if planned is None:
        raise FileNotFoundError(f"{run.config} can't be read")
    return planned


def _manifests(run: RunFolder) -> dict[int, int]:
    """The attempt that saved each step whose folder has a manifest."""
    attempts: dict[int, int] = {}
    if not run.checkpoints.is_dir():
        return attempts
    for folder in run.checkpoints.glob("step-*"):
        manifest = read_json(folder / "manifest.json")
        step, attempt = (manifest or {}).get("step"), (manifest or {}).get("attempt", 1)
        if type(step) is int and type(attempt) is int:
            attempts[step] = attempt
        elif folder.name[5:].isdigit():
            # Damaged: the trainer is to see it too, and to say why it passes it over.
            attempts[int(folder.name[5:])] = 1
    return attempts
