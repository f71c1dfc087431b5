"""What the events of trainer, journal and log mean to the detectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.detectors.watch import Watch
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.trainer_lines import Decided

Happening = Callable[[Board, Watch, int, Fields], None]


def _attempt_starting(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    attempt = fields.find_integer("attempt")
    if attempt is not None and attempt != board.ledger.attempt:
        watch.begin(board, attempt, board.step)
    board.finished = True  # while it is prepared no step is awaited


def _started(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.begin(board, fields.integer("attempt", board.ledger.attempt), step)
    board.target_step = fields.find_integer("target_step")


def _resumed(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.begin(board, board.ledger.attempt, step)


def _eval(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    watch.pace.pause(step, watch.stall.silent_s)
    watch.stall.alive(board, board.step)


def _checkpoint(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    action = fields.text("action", "saved")  # logs report nothing but the save
    board.checkpoint(action, step, fields.find_integer("size_bytes"))
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
    watch.nonfinite.told(board, fields.text("code", ""), step)


def _decision(board: Board, watch: Watch, step: int, fields: Fields) -> None:
    decided = Decided.of(fields)
    every = decided.value
    if decided.what != "checkpoint_every" or every is None:
        return
    with suppress(ValueError):
        seconds = parse_duration(every) if isinstance(every, str) else None
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
