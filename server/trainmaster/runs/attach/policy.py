"""Holds what is attached to its caller's policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from trainmaster.backends import LOCAL
from trainmaster.metrics.log_file import readable
from trainmaster.sync.workspace import Workspace
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import PolicyError


async def allow_watching(
    workspace: Workspace, host: str, path: str | None, confirm: Confirm | None
) -> None:
    """Check that the caller may watch a host and the log at `path` there, where one is known; a
    person is asked about what lies beyond the policy.

    Raises:
        UsageError: `LOG_NOT_READABLE`, the home keeps secrets in the file.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    checks: list[Callable[[], object]] = [partial(workspace.policy.check_host, host, "host")]
    if path is not None and host == LOCAL:
        checks.append(partial(readable, workspace, path, "log"))
    elif path is not None:
        checks.append(partial(workspace.policy.check_on_host, path, "log"))
    questions = []
    for check in checks:
        try:
            check()
        except PolicyError as error:
            if error.question is None or confirm is None:
                raise
            questions.append(error.question)
    if questions and confirm is not None:
        text = f"Attach to a training on {host}, and allow the agent to {'; to '.join(questions)}."
        await confirm(Quote("attach", json.dumps([host, questions]), text))
