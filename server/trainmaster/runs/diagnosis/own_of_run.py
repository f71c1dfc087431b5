"""The user's own kinds in the end of a run's log.

Hosts do not have them: they are tried here, on the mirror of the newest attempt.
"""

from __future__ import annotations

import os

from trainer_runtime.core.diagnosis.signatures import SignatureScan, find
from trainmaster.answers.diagnosis import FindingAnswer
from trainmaster.metrics.log_file import chunks_between, open_log
from trainmaster.runs.diagnosis.finding_answer import finding_answer
from trainmaster.runs.diagnosis.own_kinds import own_kinds
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace

_READ_BYTES = 1 << 20


def own_findings(workspace: Workspace, view: RunView) -> list[FindingAnswer]:
    """Findings of the user's kinds alone.

    Raises:
        UsageError: `KIND_INVALID`.
    """
    own = own_kinds(workspace.home.kinds)
    mirror = workspace.mirror.of(view.run.run_id, view.run.placement)
    path = mirror.path(f"attempts/{view.attempt}/train.log")
    if not own or not path.is_file():
        return []
    path = path.resolve()
    with open_log(path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(0, size - _READ_BYTES)
        scan = SignatureScan(begin, own=own)
        for chunk in chunks_between(path, file, begin, size):
            scan.feed(chunk)
    scan.finish()
    codes = {kind.code for kind in own}
    findings = find(scan.result(), placement=view.run.placement, attempt=view.attempt, own=own)
    return [
        finding_answer(finding, attempt=view.attempt)
        for finding in findings
        if finding.code in codes
    ]
