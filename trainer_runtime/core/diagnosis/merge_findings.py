"""One list of findings out of what series and what a log say: a code of an attempt once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from trainer_runtime.core.protocol.finding import MOST_EVIDENCE, SEVERITIES, Finding

_NOTHING: Mapping[str, str] = MappingProxyType({})


def merged(
    of_series: Sequence[Finding],
    of_log: Sequence[Finding],
    told: Mapping[str, str] = _NOTHING,
) -> list[Finding]:
    """The open findings of one attempt: critical ones first, then the log's in order of causes.

    What both name by one code (the newest of it) is one: a guard's NaN and the line that the
    trainer printed of it are the same. It keeps the id under which the code was told before
    (`told`), else has the series'.
    What a cause of the log explains (`led_to`) is left out.
    """
    newest = {finding.code: finding for finding in of_series}
    explained = {code for finding in of_log for code in finding.led_to}
    found = [_one(newest.get(finding.code), finding, told) for finding in of_log]
    with_log = [newest[finding.code] for finding in of_log if finding.code in newest]
    found += [
        finding
        for finding in of_series
        if finding.code not in explained and all(finding is not one for one in with_log)
    ]
    return sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))


def _one(series: Finding | None, log: Finding, told: Mapping[str, str]) -> Finding:
    if series is None:
        return replace(log, id=told.get(log.code, log.id))
    return replace(
        series,
        id=told.get(log.code, series.id),
        severity=max(series.severity, log.severity, key=SEVERITIES.index),
        confidence=max(series.confidence, log.confidence),
        evidence=_both(series.evidence, log.evidence),
        patches=series.patches or log.patches,
        advice=series.advice or log.advice,
        led_to=log.led_to,
    )


def _both(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The lines of both; of the first so many that there is room for two of the second."""
    added = [line for line in second if line not in first]
    kept = first[: MOST_EVIDENCE - min(2, len(added))]
    return (*kept, *added)[:MOST_EVIDENCE]
