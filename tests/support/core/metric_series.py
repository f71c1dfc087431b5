"""Synthetic metric series for the detector tests, and public logs where available."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path

from trainer_runtime.core.diagnosis.detectors import Detectors
from trainer_runtime.core.diagnosis.parse import LogEvent, LogParser, Parsed, Point
from trainer_runtime.core.protocol.finding import Finding

FIRST_T = 1_700_000_000.0
# Relative scatter of the loss from step to step, as in the public logs (0.6 to 2 %).
SCATTERS = (0.006, 0.009, 0.012, 0.016, 0.02)


def healthy(rng: random.Random, steps: int, scatter: float, blips: int = 0) -> list[float]:
    """A loss that falls by a power law, with single steps of up to 1.98 times it."""
    losses = [(3.0 + 7.5 * (step + 1) ** -0.35) * rng.gauss(1.0, scatter) for step in range(steps)]
    # At most one in four steps, as in the logs: two side by side would be a spike.
    for eighth in rng.sample(range(2, steps // 8), blips):
        losses[8 * eighth] *= rng.uniform(1.1, 1.98)
    return losses


def with_spike(losses: Sequence[float], at: int, length: int, factor: float) -> list[float]:
    return [loss * (factor if at <= i < at + length else 1.0) for i, loss in enumerate(losses)]


def feed(detectors: Detectors, losses: Iterable[float], first_step: int = 1) -> Detectors:
    for step, loss in enumerate(losses, first_step):
        detectors.point("loss", step, FIRST_T + step, loss)
    return detectors


def codes(findings: Iterable[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def all_codes(detectors: Detectors) -> list[str]:
    """The codes of open and closed findings."""
    return codes(detectors.findings(closed=True))


def public_logs() -> list[Path]:
    """Real logs, where available; they are not part of the project."""
    beside = Path(__file__).parents[4] / "shared" / "logs"
    folder = Path(os.environ.get("TRAINMASTER_LOGS") or beside) / "public"
    return sorted(path for path in folder.glob("*") if path.is_file())


def fed_from_log(path: Path) -> Detectors:
    """Detectors fed with the parsed points and events of a log's first rank."""
    parsed = _parsed(path)
    items: list[tuple[int, Point | LogEvent]] = [(one.line_offset, one) for one in parsed]
    items += [(event.line_offset, event) for event in parsed.events]
    detectors = Detectors()
    for _, one in sorted(items, key=itemgetter(0)):
        if one.rank != 0:
            continue
        if isinstance(one, Point):
            detectors.point(one.key, one.step, one.t, one.value)
        else:
            detectors.event(one.kind, step=one.step)
    return detectors


def losses_of_log(path: Path) -> list[float]:
    return [point.value for point in _parsed(path) if point.key == "loss" and point.rank == 0]


def _parsed(path: Path) -> Parsed:
    parser = LogParser()
    parsed = parser.feed(path.read_bytes())
    parsed.extend(parser.close())
    return parsed
