"""What the events of trainer, journal and log mean to the detectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.watch import Watch
from trainer_runtime.core.protocol.duration import parse_duration

Fields = Mapping[str, Any] | None
Happening = Callable[[Board, Watch, int, Fields], None]


def _attempt_starting(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    attempt = (fields or {}).get("attempt")
    if type(attempt) is int and attempt != board.ledger.attempt:
        watch.begin(board, attempt, board.step)
    board.finished = True  # while it is prepared no step is awaited


def _started(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    fields = fields or {}
    attempt = fields.get("attempt")
    watch.begin(board, attempt if type(attempt) is int else board.ledger.attempt, step)
    target = fields.get("target_step")
    board.target_step = target if type(target) is int else None


def _resumed(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.begin(board, board.ledger.attempt, step)


def _eval(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.pace.pause(step, watch.stall.silent_s)
    watch.stall.alive(board, board.step)


def _checkpoint(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    fields = fields or {}
    action = str(fields.get("action") or "saved")  # logs tell of nothing but the save
    board.checkpoint(action, step, fields.get("size_bytes"))
    if action == "saved":
        watch.pace.pause(step, watch.stall.silent_s)
        watch.checkpoints.saved(board, step)
        if board.saves <= (board.settings.keeps_checkpoints or 0):
            watch.disk.restart()  # what is kept as planned fills no disk
        watch.resumed.note(board, step, watch.spike.outlier.window)
    watch.stall.alive(board, board.step)


def _phase(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.new_phase(board)


def _warning(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.nonfinite.told(board, str((fields or {}).get("code")), step)


def _decision(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    fields = fields or {}
    if fields.get("what") != "checkpoint_every":
        return
    every = fields.get("value")
    try:
        seconds = parse_duration(every) if isinstance(every, str) else None
    except ValueError:
        return
    if isinstance(every, (int, str)):
        watch.checkpoints.decided(every, seconds)


def _ended(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    board.finished = True
    for code in ("stall", "checkpoint_overdue", "gpu_idle", "gpu_throttled"):
        board.ledger.close(code, board.step)


HAPPENINGS: Mapping[str, Happening] = {
    "attempt_starting": _attempt_starting,
    "started": _started,
    "resumed": _resumed,
    "eval": _eval,
    "checkpoint": _checkpoint,
    "phase": _phase,
    "warning": _warning,
    "decision": _decision,
    "completed": _ended,
    "attempt_ended": _ended,
}
