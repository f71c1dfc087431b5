"""What a diagnosis could not judge: no finding does not prove health."""

from __future__ import annotations

from trainmaster.answers.metrics import LogCoverage
from trainmaster.sync.run_view import RunView

_FEWEST_LOSSES = 10  # fewer show no course


def unseen(coverage: LogCoverage, losses: int) -> list[str]:
    """Sentences for people, the weightiest first; `losses` is the number of training losses."""
    sentences = [_of_series(coverage, losses), _of_the_end(coverage)]
    return [sentence for sentence in sentences if sentence is not None]


def unseen_of_run(view: RunView) -> list[str]:
    """The same of a run without a finding, from its newest attempt that trained."""
    progress = view.progress
    if progress is None:
        return ["It has not trained yet: nothing was judged."]
    sentences = []
    if not any(key == "loss" or key.endswith("_loss") for key in progress.last):
        sentences.append("No training loss was read: whether it learns was not judged.")
    elif progress.steps_done < _FEWEST_LOSSES:
        sentences.append(f"It took {progress.steps_done} steps: too few to judge their course.")
    if view.unreachable is not None:
        sentences.append("Its host was not reached: what happened since is not known.")
    return sentences


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
