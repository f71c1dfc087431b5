"""What is wrong with a run and what to do about it, as a part of its status page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.protocol.command import command, names_command
from trainer_runtime.core.protocol.finding import Finding, Patch
from trainer_runtime.core.protocol.journal import Record
from trainer_runtime.core.protocol.lines import ATTACHED
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import ENDED_PLACEMENTS
from trainer_runtime.core.status.past_findings import is_over, over_in_words, past_findings

_MOST_FINDINGS = 6
_MOST_REMEDIES = 3
_MOST_PAST = 8
_LONGEST_EVIDENCE = 200
_GRAVEST_FIRST = {"critical": 0, "warning": 1, "info": 2}
_WHERE = "Commands are for the machine that this run was launched from."
Worded = Callable[[str], str]


def findings_section(
    record: Record, newest: Progress | None, config: RunConfig, worded: Worded | None = None
) -> str:
    """The open findings with their remedies, the gravest first, and those that are over; empty
    where there are none.

    A warning of the trainer is listed unless a finding covers it. `worded` gives advice with its
    commands as they can be called where it is shown; None where they can't be, which is said then.
    """
    items = record.findings.values()
    findings = [item.finding for item in items if not is_over(item, record, newest)]
    findings.sort(key=lambda finding: _GRAVEST_FIRST[finding.severity])
    codes = {finding.code for finding in findings}
    warned = [w for w in (newest.warnings[-3:] if newest else []) if w.code not in codes]
    past = over_in_words(past_findings(record, newest), record, _MOST_PAST)
    if not findings and not warned and past is None:
        return ""
    lines = ["## Findings", ""]
    for finding in findings[:_MOST_FINDINGS]:
        lines += _finding(finding, _Resuming(record, config), worded or str)
    if len(findings) > _MOST_FINDINGS:
        more = (worded or str)(command("diagnose", config.run_id))
        lines.append(f"- and {len(findings) - _MOST_FINDINGS} more: {more}")
    lines += [f"- `{warning.code}` at step {warning.step}." for warning in warned]
    lines += [f"- {past}"] if past is not None else []
    if worded is None and any(names_command(line) for line in lines):
        lines += ["", _WHERE]
    return "\n".join(lines) + "\n"


class _Resuming:
    """The commands that apply a patch to a run in its state; none to an attached one."""

    def __init__(self, record: Record, config: RunConfig) -> None:
        self._run = config.run_id
        self.is_possible = config.framework != ATTACHED
        self._ended = record.state in ENDED_PLACEMENTS

    def commands(self, finding: Finding, patch: Patch) -> str:
        resume = f"{command('resume', self._run, '--apply', f'{finding.id}:{patch.id}')}"
        return resume if self._ended else f"{command('stop', self._run)}, then {resume}"


def _finding(finding: Finding, resuming: _Resuming, worded: Worded) -> Iterable[str]:
    at = "" if finding.step is None else f" at step {finding.step:,}"
    named = f"`{finding.code}`{at} ({finding.id})"
    yield f"- **{finding.severity}** {named}: {finding.explanation}".rstrip(": ")
    for line in finding.evidence[:1]:
        yield f"  - seen: `{line[:_LONGEST_EVIDENCE].replace('`', chr(39))}`"
    patches = finding.patches[:_MOST_REMEDIES] if resuming.is_possible else ()
    for patch in patches:
        sets = ", ".join(f"{name}={json.dumps(value)}" for name, value in patch.set.items())
        what = ", ".join(filter(None, (patch.why.rstrip("."), sets)))
        yield f"  - {worded(resuming.commands(finding, patch))}: {what}"
    for advice in finding.advice[: _MOST_REMEDIES - len(patches)]:
        yield f"  - {advice}"
