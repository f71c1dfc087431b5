"""Attaches to a log, pane, session or process of a host, as a run that watches it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.duration import ACCEPTED, parse_duration
from trainer_runtime.core.protocol.figures import number_text
from trainer_runtime.core.protocol.lines import ATTACHED
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.runs import LaunchAnswer
from trainmaster.backends import DEBUG, LOCAL, SourceExaminer
from trainmaster.errors.confirmation import Confirm, Quote, digest_of_request, open_questions
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.metrics.log_file import readable
from trainmaster.metrics.log_pattern import TEACH, taught_patterns
from trainmaster.plan.fields.annotations import NAME_PATTERN, refuse_unsafe_name
from trainmaster.runs.events.wait import until_attempt
from trainmaster.runs.launch.launch import launched
from trainmaster.runs.launch.record_run import record_run
from trainmaster.runs.upkeep.advance import advance
from trainmaster.store.control.idempotency import IdempotencyKey
from trainmaster.store.run import Run
from trainmaster.sync.workspace import Workspace

CONFIG_VERSION = 1
SILENCE_S = 900.0
_KINDS = ("log", "tmux", "screen", "pid")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40
_PLAIN_KEY = re.compile(r"[\w./-]{1,40}")
_PLAIN_LABEL = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """The source to watch: exactly one of `log`, `tmux`, `screen` and `pid`.

    `start`: from the `start` of its output so far, or only new output (`end`).
    `ends_after`: how long a log without a known writer may be silent before it counts as
    ended, as a duration; 15 minutes by default. `pattern`: the shape of its lines, where it is to
    be taught.
    """

    log: str | None = None
    tmux: str | None = None
    screen: str | None = None
    pid: str | None = None
    start: str = "start"
    name: str | None = None
    labels: Sequence[str] = ()
    ends_after: str | None = None
    pattern: str | None = None


async def attach(
    workspace: Workspace,
    host: str,
    options: AttachOptions,
    *,
    idempotency_key: str | None = None,
    confirm: Confirm | None = None,
) -> LaunchAnswer:
    """Follow a training that runs already. The same `idempotency_key` again finds the first run.
    `confirm`: who allows a log or a host beyond the caller's policy.

    Raises:
        UsageError: `BAD_ARGUMENT`, `UNSAFE_NAME`, `IDEMPOTENCY_CONFLICT`, `PATTERN_INVALID`,
            `PATTERN_TOO_SLOW`.
        HostError: `LOG_NOT_READABLE`, `NOT_OWNER`, `NO_SUCH_PROCESS`, `TMUX_NOT_FOUND`,
            `SCREEN_NOT_FOUND`, `PANE_TAKEN`, `PATTERN_MATCHES_NOTHING`; what keeps the host from
            being reached.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    kind, target = _chosen(options)
    _refuse_bad(host, options)
    if kind == "log" and host == LOCAL:
        target = os.path.abspath(os.path.expanduser(target))
    asked = _digest(host, kind, target, options)
    key = IdempotencyKey(idempotency_key, "attach", asked) if idempotency_key else None
    earlier = None if key is None else workspace.control.keys.result(key)
    if earlier is not None:
        await advance(workspace, earlier)
        return launched(workspace, earlier)
    log = target if kind == "log" else None
    was_asked = await allow_watching(workspace, host, log, asked, confirm)
    examiner = SourceExaminer.of(workspace.backend(host))
    source = await examiner.examine_source(kind, target, options.start, options.pattern)
    if kind == "pid":  # its log is known only now; a call asks once
        left = None if was_asked else confirm
        await allow_log(workspace, host, source.get("path"), asked, left)
    _refuse_watched(workspace, host, source)
    note = _noted(_understood(source, options.pattern), _watched_already(workspace, host, source))
    source = {name: value for name, value in source.items() if name != "reading"}
    source = {**source, "pattern": options.pattern, "ends_after_s": _silence_s(options.ends_after)}
    desired = Desired(DesiredState.RUNNING, generation=1, why=ATTACHED)
    run = await record_run(
        workspace,
        options.name or _name_of(source),
        lambda run_id, name: _new_run(run_id, name, host, source, options),
        desired,
        key,
    )
    if run is None:  # the same key, at the same moment, in another process
        return await attach(
            workspace, host, options, idempotency_key=idempotency_key, confirm=confirm
        )
    try:
        await advance(workspace, run.run_id)
        await until_attempt(workspace, run.run_id)
    except HostError:
        workspace.control.forget_unplaced(run.run_id)
        raise
    return launched(workspace, run.run_id).model_copy(update={"note": note})


def _chosen(options: AttachOptions) -> tuple[str, str]:
    sources = [(kind, value) for kind in _KINDS if (value := getattr(options, kind)) is not None]
    if len(sources) != 1 or not str(sources[0][1]).strip() or "\0" in str(sources[0][1]):
        raise UsageError(
            "BAD_ARGUMENT",
            f"Give one of {option('--log')}, {option('--tmux')}, {option('--screen')}, "
            f"{option('--pid')}: {_count(sources)}.",
            "Name the one source to watch (log, tmux, screen or pid), e.g. "
            f"{command('attach', '--log', 'PATH')}.",
            field="log",
        )
    return sources[0][0], str(sources[0][1])


def _digest(host: str, kind: str, target: str, options: AttachOptions) -> str:
    """What is asked for, so that a key of one request is not used for another."""
    asked = [host, kind, target, options.start, options.name, list(options.labels)]
    if options.pattern is not None:
        asked.append(options.pattern)
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _understood(source: ConfigDocument, pattern: str | None) -> str | None:
    """What the host understands of the lines that the log has already."""
    try:
        return _reading_in_words(source.get("reading") or {}, pattern)
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # not as a host of ours answers


def _reading_in_words(reading: Mapping[str, Any], pattern: str | None) -> str | None:
    lines = int(reading["lines"]) if reading else 0
    if not lines:
        return None if pattern is None else "The pattern is tried as the lines come."
    if "key" not in reading:
        return f"Of its {lines:,} lines with numbers so far, none holds metrics. {TEACH}"
    matched = int(reading["read" if pattern is None else "matched"])
    who = "Trainmaster reads" if pattern is None else "The pattern matches"
    key = reading["key"] if _PLAIN_KEY.fullmatch(reading["key"]) else "a metric"
    ends = [
        f"{number_text(float(value))} at step {int(step):,}"
        for step, value in (reading["first"], reading["last"])
    ]
    return f"{who} {matched:,} of {lines:,} lines with numbers: {key} {ends[0]} to {ends[1]}."


def _noted(*notes: str | None) -> str | None:
    return " ".join(note for note in notes if note) or None


def _count(sources: Sequence[tuple[str, str]]) -> str:
    if len(sources) > 1:
        return f"{' and '.join(kind for kind, _ in sources)} were given"
    return f"{sources[0][0]} names nothing" if sources else "none was given"


def _refuse_bad(host: str, options: AttachOptions) -> None:
    if options.start not in ("start", "end"):
        raise UsageError(
            "BAD_ARGUMENT",
            f"{options.start!r} is not a valid place to begin.",
            "Use start for all output so far, or end for new output.",
            field="from",
        )
    if options.name is not None:
        refuse_unsafe_name(options.name, "name for a run")
    taught_patterns(options.pattern)
    _labels(options.labels)
    _silence_s(options.ends_after)
    if host == DEBUG:
        raise UsageError(
            "BAD_ARGUMENT",
            "On debug nothing runs that others started.",
            f"Use local for this machine, or a host that {command('hosts')} lists.",
            field="host",
        )


def _labels(labels_given: Sequence[str]) -> dict[str, str]:
    labels = {}
    for item in labels_given:
        key, equals, value = item.partition("=")
        if not equals or not NAME_PATTERN.fullmatch(key) or not _PLAIN_LABEL.fullmatch(value):
            raise UsageError(
                "BAD_ARGUMENT",
                f"{item[:80]!r} is not a valid label.",
                "Write KEY=VALUE, e.g. experiment=baseline.",
                field="label",
            )
        labels[key] = value
    return labels


def _silence_s(text: str | None) -> float:
    if text is None:
        return SILENCE_S
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not seconds or seconds <= 0:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{text[:80]!r} is not a valid duration.",
            f"Write {ACCEPTED}.",
            field="ends-after",
        )
    return float(seconds)


def _refuse_watched(workspace: Workspace, host: str, source: ConfigDocument) -> None:
    """Raises:
    HostError: `PANE_TAKEN`, another run watches the same pane.
    """
    for run in workspace.control.runs(only_open=True):
        if source.get("pane") is None or run.host != host or not run.is_attached:
            continue
        if (run.document.get("attached") or {}).get("pane") == source["pane"]:
            raise HostError(
                "PANE_TAKEN",
                f"Run {run.run_id} watches this pane already.",
                f"See {command('status', run.run_id)}; {command('clean', run.run_id)} ends that.",
            )


def _watched_already(workspace: Workspace, host: str, source: ConfigDocument) -> str | None:
    """A note naming another run that watches the same log."""
    path = source.get("path")
    if path is None:
        return None
    for run in workspace.control.runs(only_open=True):
        attached = run.config.attached
        if run.host == host and attached is not None and attached.path == path:
            again = f"{command('clean', run.run_id)} ends that"
            return f"Run {run.run_id} watches this log already; {again}."
    return None


def _new_run(
    run_id: str, name: str, host: str, source: ConfigDocument, options: AttachOptions
) -> Run:
    config = _config(run_id, name, host, source, _labels(options.labels))
    return Run(
        run_id=run_id,
        name=name,
        created_t=time.time(),
        host=host,
        spec="",
        document=config,
        plan={"decisions": [], "requirements": []},
        labels=config["labels"],
    )


def _config(
    run_id: str, name: str, host: str, source: ConfigDocument, labels: Mapping[str, str]
) -> dict[str, Any]:
    """The resolved configuration of an attached run: how it trains is not known."""
    return {
        "config_version": CONFIG_VERSION,
        "run_id": run_id,
        "name": name,
        "framework": ATTACHED,
        "host": host,
        "attached": dict(source),
        "steps": None,
        "data": {},
        "checkpoint": {"metric": "val_loss", "mirror": None},
        "recovery": {"max_restarts": 0, "on_crash": "stop"},
        "limits": {"max_runtime_s": None},
        "secrets": [],
        "labels": dict(labels),
    }


def _name_of(source: ConfigDocument) -> str:
    """A name from the source: the log's name, with its folder's where it is generic."""
    path = source.get("path")
    if path and source["kind"] != "pid":
        folder, file = os.path.split(str(path))
        stem = file.partition(".")[0]
        generic = stem in ("train", "log", "output", "out", "stdout", "training", "nohup")
        words = f"{os.path.basename(folder)}-{stem}" if generic else stem
    else:
        words = f"{source['kind']}-{source['target']}"
    name = _NO_NAME.sub("-", words).strip("-._")[:_LONGEST_NAME].strip("-._")
    name = re.sub(r"\.{2,}", ".", name)
    return name if NAME_PATTERN.fullmatch(name) else ATTACHED


async def allow_watching(
    workspace: Workspace, host: str, path: str | None, asked: str, confirm: Confirm | None
) -> bool:
    """Check that the caller may watch a host and the log at `path` there, where one is known; a
    person is asked about what lies beyond the policy. True if one was. `asked`: the whole request.

    Raises:
        UsageError: `LOG_NOT_READABLE`, the home keeps secrets in the file.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    of_host: Callable[[], object] = partial(workspace.policy.check_host, host, "host")
    checks = [of_host, *_of_log(workspace, host, path)]
    return await _allow(host, path, asked, checks, confirm)


async def allow_log(
    workspace: Workspace, host: str, path: str | None, asked: str, confirm: Confirm | None
) -> None:
    """The same for the log alone, where it is found only later.

    Raises: as `allow_watching`.
    """
    await _allow(host, path, asked, _of_log(workspace, host, path), confirm)


def _of_log(workspace: Workspace, host: str, path: str | None) -> list[Callable[[], object]]:
    if path is None:
        return []
    if host == LOCAL:
        return [partial(readable, workspace, path, "log")]
    return [partial(workspace.policy.check_on_host, path, "log")]


async def _allow(
    host: str,
    path: str | None,
    asked: str,
    checks: Sequence[Callable[[], object]],
    confirm: Confirm | None,
) -> bool:
    questions = open_questions(checks, confirm)
    if not questions or confirm is None:
        return False
    text = f"Attach to a training on {host}, and allow the agent to {'; to '.join(questions)}."
    leads = os.path.realpath(path) if path is not None and host == LOCAL else path
    identity = digest_of_request(host, path, leads, asked, questions)
    await confirm(Quote("attach", identity, text))
    return True
