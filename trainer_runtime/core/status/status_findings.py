"""What is wrong with a run and what to do about it, as a part of its status page."""

from __future__ import annotations

import json
from collections.abc import Iterable

from trainer_runtime.core.protocol.finding import Finding
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.progress import Progress

_MOST_FINDINGS = 6
_MOST_REMEDIES = 3
_LONGEST_EVIDENCE = 200
_GRAVEST_FIRST = {"critical": 0, "warning": 1, "info": 2}


def findings_section(record: Record, newest: Progress | None, run_id: str) -> str:
    """The open findings with their remedies, the gravest first; empty where there are none.

    A warning of the trainer is listed unless a finding covers it.
    """
    found = [item.finding for item in record.open_findings]
    found.sort(key=lambda finding: _GRAVEST_FIRST[finding.severity])
    codes = {finding.code for finding in found}
    warned = [w for w in (newest.warnings[-3:] if newest else []) if w.code not in codes]
    if not found and not warned:
        return ""
    lines = ["## Findings", ""]
    for finding in found[:_MOST_FINDINGS]:
        lines += _finding(finding, run_id)
    if len(found) > _MOST_FINDINGS:
        lines.append(f"- and {len(found) - _MOST_FINDINGS} more: `trainmaster diagnose {run_id}`")
    lines += [f"- `{warning.code}` at step {warning.step}." for warning in warned]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding, run_id: str) -> Iterable[str]:
    at = "" if finding.step is None else f" at step {finding.step:,}"
    yield f"- **{finding.severity}** `{finding.code}`{at}: {finding.explanation}".rstrip(": ")
    for line in finding.evidence[:1]:
        yield f"  - seen: `{line[:_LONGEST_EVIDENCE].replace('`', chr(39))}`"
    patches = finding.patches[:_MOST_REMEDIES]
    for patch in patches:
        sets = ", ".join(f"{name}={json.dumps(value)}" for name, value in patch.set.items())
        what = ", ".join(filter(None, (patch.why.rstrip("."), sets)))
        yield f"  - `trainmaster resume {run_id} --apply {finding.id}:{patch.id}`: {what}"
    for advice in finding.advice[: _MOST_REMEDIES - len(patches)]:
        yield f"  - {advice}"
