"""One list of findings out of what series and what logs say, a code of an attempt once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from trainer_runtime.core.finding import MOST_EVIDENCE, SEVERITIES, Finding


def merged(
    of_series: Sequence[Finding], of_log: Sequence[Finding], known: Collection[str] = ()
) -> list[Finding]:
    """The findings of one attempt, the log's causes first: they are in the order of causes.

    What both name by one code is one finding, and it bears the id that was told before (`known`),
    else the series' own: a guard's NaN and the line that the trainer printed of it are the same.
    """
    newest = {finding.code: finding for finding in of_series}
    explained = {code for finding in of_log for code in finding.led_to}
    found = [_one(newest.pop(finding.code, None), finding, known) for finding in of_log]
    told = {finding.id for finding in found}
    merged_codes = {finding.code for finding in of_log}
    rest = [
        finding
        for finding in of_series
        if finding.id not in told
        and finding.code not in explained
        and not (finding.code in merged_codes and _is_newest(finding, of_series))
    ]
    return [*found, *rest]


def _is_newest(finding: Finding, of_series: Sequence[Finding]) -> bool:
    return finding is [one for one in of_series if one.code == finding.code][-1]


def _one(series: Finding | None, log: Finding, known: Collection[str]) -> Finding:
    if series is None:
        return log
    takes_log_id = log.id in known and series.id not in known
    return replace(
        series,
        id=log.id if takes_log_id else series.id,
        severity=max(series.severity, log.severity, key=SEVERITIES.index),
        confidence=max(series.confidence, log.confidence),
        evidence=_evidence(series.evidence, log.evidence),
        patches=series.patches or log.patches,
        advice=series.advice or log.advice,
        led_to=log.led_to,
    )


def _evidence(*parts: Sequence[str]) -> tuple[str, ...]:
    """Both sides' lines: of the first so many that the second keeps room for two."""
    first, second = parts
    room = max(MOST_EVIDENCE - len(second), MOST_EVIDENCE - 2)
    lines = [*first[:room], *(line for line in second if line not in first)]
    return tuple(lines[:MOST_EVIDENCE])
