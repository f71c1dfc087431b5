"""How a trainer's process ended: what is known besides its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_SHELL_SIGNALS = range(129, 160)
_MOSTLY_FREE = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known besides the log; every field may be missing.

    `lost`: which machine of several is lost, and how that is known. `where`: of which rank or
    machine of several the code or signal is; `elsewhere`: not of the one that has the log and the
    telemetry.
    `terminated_why`: why the supervisor ended it (`stopped`, `time_limit`), as in
    `AttemptRecord.terminated_why`. `completed`: a `completed` event and a verified last checkpoint.
    `running`: it has not ended. `dmesg`: the kernel's messages since the attempt's start.
    `telemetry`: the last sample (`disk_free_gib`, `host_mem_gib`, and `host_mem_total_gib` where
    known).
    """

    code: int | None = None
    signal: int | None = None
    terminated_why: str | None = None
    completed: bool = False
    running: bool = False
    lost: str | None = None
    where: str | None = None
    elsewhere: bool = False
    dmesg: tuple[bytes, ...] = ()
    telemetry: Mapping[str, float] = field(default_factory=dict)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, even if a shell or launcher turned it into an exit code."""
        if self.signal is not None:
            return self.signal
        if self.code is None:
            return None
        if self.code < 0:
            return -self.code
        return self.code - 128 if self.code in _SHELL_SIGNALS else None

    @property
    def had_memory(self) -> bool:
        """Whether most of the host's memory was free in the last sample: who or what sent a SIGKILL
        is not known then, but lack of memory did not."""
        used = self.telemetry.get("host_mem_gib")
        total = self.telemetry.get("host_mem_total_gib")
        is_measured = used is not None and total and not self.elsewhere
        return bool(is_measured) and used < _MOSTLY_FREE * total  # type: ignore[operator]

    @property
    def succeeded(self) -> bool:
        """Whether it ended successfully."""
        return self.completed or (self.code == 0 and self.signal is None)
