"""What a file's diagnosis could not judge: no finding does not prove health."""

from __future__ import annotations

from trainmaster.words.answers.metrics import LogCoverage

_FEWEST_LOSSES = 10  # fewer show no course


def unseen(coverage: LogCoverage, losses: int) -> list[str]:
    """Sentences for people, the weightiest first; `losses` is the number of training losses."""
    sentences = [_of_series(coverage, losses), _of_the_end(coverage)]
    return [sentence for sentence in sentences if sentence is not None]


def _of_series(coverage: LogCoverage, losses: int) -> str | None:
    if not coverage.keys:
        return "No metrics were understood: whether it learns was not judged."
    if losses == 0:
        return "No training loss was read: whether it learns was not judged."
    if losses < _FEWEST_LOSSES:
        points = "1 training loss was" if losses == 1 else f"{losses} training losses were"
        return f"Only {points} read: too few to judge their course."
    return None


def _of_the_end(coverage: LogCoverage) -> str | None:
    if coverage.ended:
        return None
    return (
        "The log has no closing line: whether the training continues or was cut off is not known."
    )
