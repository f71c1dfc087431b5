"""Metrics of runs and files, alone or beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainmaster.metrics.selection import Selection, bad_argument
from trainmaster.metrics.series_query import Ruler, Told, answer_of
from trainmaster.metrics.sources import Source, wanted_keys
from trainmaster.words.answers.metrics import BestRun, MetricsAnswer, MetricSeries

# Families of metrics of which more is better, and of which less is; of others neither is said.
_OF_SPEED = ("tokens_per_s", "samples_per_s", "mfu", "tflops")
_OF_QUALITY = ("accuracy", "mean_token_accuracy", "margin", "reward", "rewards")
_HIGHER = frozenset((*_OF_SPEED, *_OF_QUALITY, *(f"val_{name}" for name in _OF_QUALITY)))
# A summary is to stay within 250 tokens: each point of a series takes some 20.
_POINTS_OF_ALL, _FEWEST_POINTS = 6, 2
_MOST_NAMED = 12
_LOWER = frozenset(["loss", "val_loss", "perplexity", "val_perplexity", "step_time_s"])


def is_better_higher(key: str) -> bool | None:
    """Whether more of a metric is better; None where that is not for us to say."""
    family = key.partition("/")[0]
    if family in _HIGHER:
        return True
    return False if family in _LOWER else None


def metrics_of(
    sources: Sequence[Source], keys: Sequence[str], most: int | None, asked: Selection
) -> MetricsAnswer:
    """The series of one or several sources; of several also which one has the best value.

    `most`: how many points each, 0 for as many as a summary has room for, None for all.

    Raises:
        UsageError: `BAD_ARGUMENT` for a key that a source doesn't have, or that can't be told so.
    """
    wanted = {source.name: wanted_keys(source, keys) for source in sources}
    rulers = _rulers(sources, wanted, asked)
    end = max((ruler.end() for ruler in rulers.values()), default=0.0)
    compared = end if len(sources) > 1 and rulers else None
    if most == 0:
        most = max(_FEWEST_POINTS, _POINTS_OF_ALL // max(1, sum(map(len, wanted.values()))))
    answers: dict[str, dict[str, MetricSeries]] = {}
    for source in sources:
        answers[source.name] = {
            key: answer_of(
                source.series(key),
                Told(
                    _fit(source, key, asked),
                    most,
                    rulers.get(source.name),
                    compared,
                    _since_t(source, asked),
                ),
            )
            for key in wanted[source.name]
        }
    coverages = {source.name: source.coverage() for source in sources}
    covered = {name: coverage for name, coverage in coverages.items() if coverage is not None}
    notes = [note for source in sources for note in _notes(source, wanted[source.name])]
    notes += [note for source in sources for note in _empty(source, answers[source.name])]
    return MetricsAnswer(
        runs=answers,
        form=asked.form,
        best=(_best(answers) or None) if asked.rate is None else None,
        coverage=covered or None,
        notes=notes or None,
    )


def _notes(source: Source, wanted: Sequence[str]) -> list[str]:
    """What the source tells itself, and what it has where it has no losses."""
    known = source.keys()
    if wanted or not known:
        return source.notes(wanted)
    has = ", ".join(known[:_MOST_NAMED]) + (", ..." if len(known) > _MOST_NAMED else "")
    return [f"{source.name}: it tells no loss; name one of {has}.", *source.notes(wanted)]


def _empty(source: Source, answers: Mapping[str, MetricSeries]) -> list[str]:
    """Which series have points, but none of the part that was asked for."""
    notes = []
    for key, answer in answers.items():
        whole = None if answer.n else source.series(key).whole()
        if whole is not None:
            where = (
                ""
                if source.is_by_time(key)
                else f"; its steps are {whole.first_x} to {whole.last_x}"
            )
            notes.append(f"{source.name}: {key} has nothing in the part that was asked for{where}.")
    return notes


def _rulers(
    sources: Sequence[Source], wanted: Mapping[str, Sequence[str]], asked: Selection
) -> dict[str, Ruler]:
    """By source, where its points stand on the axis that was asked for."""
    if asked.axis is None:
        return {}
    return {source.name: _ruler(source, wanted[source.name], asked) for source in sources}


def _ruler(source: Source, wanted: Sequence[str], asked: Selection) -> Ruler:
    assert asked.axis is not None
    known = source.keys()
    if asked.axis == "tokens":
        if "tokens" not in known and known:
            raise bad_argument(
                "x", f"{source.name} tells no tokens.", "Lay it out on step or time."
            )
        return Ruler(asked.axis, source.series("tokens"))
    clocks = [key for key in ("loss", *wanted) if key in known]
    steps = [key for key in clocks if not source.is_by_time(key)]
    ruler = Ruler(asked.axis, source.series((steps or clocks or ["loss"])[0]))
    if asked.axis == "time" and known and source.end_t() is None:
        raise _no_times(source, "x")
    return ruler


def _fit(source: Source, key: str, asked: Selection) -> Selection:
    """The selection, where it makes sense for this key."""
    by_step = (asked.from_step, asked.to_step, asked.at) != (None, None, None)
    if source.is_by_time(key) and (by_step or asked.axis in ("step", "tokens")):
        raise bad_argument(
            "key",
            f"{key} is measured by time, not by step.",
            "Choose its part with --since, and lay it out on time.",
        )
    return asked


def _since_t(source: Source, asked: Selection) -> float | None:
    if asked.since_s is None:
        return None
    end = source.end_t()
    if end is None:
        if not source.keys():
            return None
        raise _no_times(source, "since")
    return end - asked.since_s


def _no_times(source: Source, field: str) -> Exception:
    return bad_argument(field, f"The lines of {source.name} carry no times.", "Go by steps.")


def _best(answers: Mapping[str, Mapping[str, MetricSeries]]) -> dict[str, BestRun]:
    """By key, the best finite value of several sources."""
    best: dict[str, BestRun] = {}
    if len(answers) < 2:
        return best
    for name, by_key in answers.items():
        for key, series in by_key.items():
            higher = is_better_higher(key)
            value, step = (series.max, series.max_step) if higher else (series.min, series.min_step)
            if higher is None or value is None or step is None:
                continue
            known = best.get(key)
            if known is None or (value > known.value if higher else value < known.value):  # type: ignore[operator]
                best[key] = BestRun(run=name, step=step, value=value)
    return best
