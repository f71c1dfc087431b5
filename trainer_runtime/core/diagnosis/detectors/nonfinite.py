"""A loss or a gradient norm that is no number: `nan_loss`, `nan_grad`.

Critical at once, and to be resumed from before the onset: nanoGPT#215 saved at step 3000 and showed
NaN at 3010, and a checkpoint that was written in between is lost. HF Trainer's `nan_filter` prints
`loss 0` beside `grad_norm nan`: the gradient is what tells. Older versions print the zero alone:
three in a row where the loss was not small are taken for one. Under a loss scaler that can still go
down a gradient that overflows only makes it skip the step; a dozen in a row is no overflow any
more (a scale of 65,536 is at 16 by then).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.diagnosis.detectors.detector_context import Board
from trainer_runtime.core.diagnosis.remedies import OF_SERIES

_FINITE_AGAIN = 3  # points
_OVERFLOWS_IN_A_ROW = 12
_ZEROS_IN_A_ROW = 3
_NOT_SMALL = 0.1  # nats


@dataclass(slots=True)
class NonFinite:
    """`lost`: a loss was not finite, or 0, and has not been otherwise for long enough since."""

    lost: bool = False
    finite_losses: int = 0
    overflows: int = 0
    overflow_onset: int = 0
    zeros: int = 0
    zero_onset: int = 0

    def seen(self, board: Board, key: str, step: int, value: float) -> None:
        """Take in a value of `loss`, `val_loss` or `grad_norm` that is not finite."""
        if key == "grad_norm":
            self._gradient(board, step, value)
            return
        gradient = board.ledger.get("nan_grad")
        if gradient is not None and gradient.onset == step:
            board.ledger.withdraw("nan_grad")
        self.lost, self.finite_losses = True, 0
        self._open(board, "nan_loss", step, {"key": key, "value": str(value)})

    def told(self, board: Board, code: str, step: int) -> None:
        """The trainer's own guard says so."""
        if code in ("nan_loss", "nan_grad"):
            self._open(board, code, step, {})

    def finite(self, board: Board, step: int) -> None:
        """Take in a finite training loss that is not 0, while `lost`."""
        self.finite_losses += 1
        if self.finite_losses < _FINITE_AGAIN:
            return
        board.ledger.close("nan_loss", step)
        if self.zeros and not self.overflows:
            board.ledger.close("nan_grad", step)
        self.lost, self.zeros = False, 0

    def zero(self, board: Board, step: int) -> None:
        """Take in a training loss of exactly 0."""
        before = board.losses[-1][1] if board.losses else 0.0
        if self.zeros == 0 and before <= _NOT_SMALL:
            return
        if self.zeros == 0:
            self.zero_onset = step
        self.zeros += 1
        self.lost, self.finite_losses = True, 0
        if self.zeros == _ZEROS_IN_A_ROW and board.ledger.get("nan_grad") is None:
            self._open(board, "nan_grad", self.zero_onset, {"key": "loss", "value": "0"}, 0.7)

    def finite_gradient(self, board: Board, step: int) -> None:
        self.overflows = 0
        if board.ledger.get("nan_grad") is not None:
            board.ledger.close("nan_grad", step)

    def _gradient(self, board: Board, step: int, value: float) -> None:
        scaled = board.latest.get("loss_scale", 0.0) > 1 or board.settings.precision == "fp16"
        if self.overflows == 0:
            self.overflow_onset = step
        self.overflows += 1
        if scaled and self.overflows < _OVERFLOWS_IN_A_ROW:
            return
        loss = board.ledger.get("nan_loss")
        if loss is not None and loss.onset <= self.overflow_onset:
            return
        self._open(
            board, "nan_grad", self.overflow_onset, {"key": "grad_norm", "value": str(value)}
        )

    def _open(
        self, board: Board, code: str, step: int, values: dict[str, str], confidence: float = 1.0
    ) -> None:
        if board.ledger.get(code) is not None:
            return
        last = next(((s, v) for s, v in reversed(board.losses) if s < step), None)
        before = {} if last is None else {"last_finite_step": last[0], "last_finite_loss": last[1]}
        board.ledger.open(
            code,
            step,
            "critical",
            step=step,
            confidence=confidence,
            values={**values, **before, "lr": board.latest.get("lr")},
            remedies=OF_SERIES[code],
        )
