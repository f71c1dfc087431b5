"""Merge an attempt's findings from series and from its log: each code appears once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from trainer_runtime.core.protocol.finding import MOST_EVIDENCE, SEVERITIES, Finding

_ZERO_FOR_NAN = re.compile(r"""['"]loss['"]: '?0(?:\.0*)?'?[,}]""")
_NONE_REPORTED: Mapping[str, str] = MappingProxyType({})


def merge_findings(
    of_series: Sequence[Finding],
    of_log: Sequence[Finding],
    reported_ids: Mapping[str, str] = _NONE_REPORTED,
) -> list[Finding]:
    """The open findings of one attempt by severity, the log's first in order of causes.

    Findings of both with the same code (of series: the newest) are merged: a guard's NaN and the
    trainer's log line about it are the same problem. A merged finding keeps the id under which its
    code was reported before (`reported_ids`, by code), else the series' id. Symptoms that a cause
    of the log explains (`led_to`) are left out.
    """
    newest = {finding.code: finding for finding in of_series}
    explained = {code for finding in of_log for code in finding.led_to}
    merged = [
        _merge_pair(newest.get(log_finding.code), log_finding, reported_ids)
        for log_finding in of_log
    ]
    with_log = [newest[finding.code] for finding in of_log if finding.code in newest]
    hidden = _hidden_nan(of_log)
    merged += [
        _quoting(finding, hidden)
        for finding in of_series
        if finding.code not in explained
        and all(finding is not log_finding for log_finding in with_log)
    ]
    return sorted(merged, key=lambda finding: -SEVERITIES.index(finding.severity))


def _hidden_nan(of_log: Sequence[Finding]) -> str | None:
    """The line in which Trainer's filter prints 0 for a loss that is NaN, beside its gradient."""
    lines = (line for finding in of_log if finding.code == "nan_grad" for line in finding.evidence)
    return next((line for line in lines if _ZERO_FOR_NAN.search(line)), None)


def _quoting(finding: Finding, line: str | None) -> Finding:
    """A loss of NaN with the line as the log has it, in which no such loss stands."""
    if line is None or finding.code != "nan_loss" or not finding.evidence:
        return finding
    return replace(finding, evidence=(line, *finding.evidence[1:]))


def _merge_pair(series: Finding | None, log: Finding, reported_ids: Mapping[str, str]) -> Finding:
    if series is None:
        return replace(log, id=reported_ids.get(log.code, log.id))
    return replace(
        series,
        id=reported_ids.get(log.code, series.id),
        severity=max(series.severity, log.severity, key=SEVERITIES.index),
        confidence=max(series.confidence, log.confidence),
        evidence=_merge_evidence(series.evidence, log.evidence),
        patches=series.patches or log.patches,
        advice=series.advice or log.advice,
        led_to=log.led_to,
    )


def _merge_evidence(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The lines of both, leaving room for at least two of the second."""
    added = [line for line in second if line not in first]
    kept = first[: MOST_EVIDENCE - min(2, len(added))]
    return (*kept, *added)[:MOST_EVIDENCE]
