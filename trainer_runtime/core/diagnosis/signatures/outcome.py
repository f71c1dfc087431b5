"""How a trainer's process ended, beside what its log says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_SHELL_SIGNALS = range(129, 160)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known outside the log; everything may be missing.

    `asked`: what the supervisor ended it for (`stopped`, `time_limit`), as
    `AttemptRecord.terminated_why`. `completed`: a `completed` event and a verified last checkpoint.
    `kernel`: the kernel's messages since the attempt's start. `telemetry`: the last sample, by
    DESIGN's keys (`disk_free_gib`, `host_mem_gib`, and `host_mem_total_gib` where known).
    `running`: it has not ended.
    """

    code: int | None = None
    signal: int | None = None
    asked: str | None = None
    completed: bool = False
    running: bool = False
    kernel: tuple[bytes, ...] = ()
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, also where a shell or a launcher made an exit code of it."""
        if self.signal is not None:
            return self.signal
        if self.code is None:
            return None
        if self.code < 0:
            return -self.code
        return self.code - 128 if self.code in _SHELL_SIGNALS else None

    @property
    def well(self) -> bool:
        """It ended, and as it should."""
        return self.completed or (self.code == 0 and self.signal is None)
