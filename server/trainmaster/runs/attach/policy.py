"""Holds what is attached to its caller's policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from trainmaster.backends import LOCAL
from trainmaster.metrics.log_file import readable
from trainmaster.sync.workspace import Workspace
from trainmaster.words.confirmation import Confirm, Quote
from trainmaster.words.errors import PolicyError


async def allow_watching(
    workspace: Workspace, host: str, path: str | None, confirm: Confirm | None
) -> bool:
    """Check that the caller may watch a host and the log at `path` there, where one is known; a
    person is asked about what lies beyond the policy. True if one was.

    Raises:
        UsageError: `LOG_NOT_READABLE`, the home keeps secrets in the file.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    return await _allow(
        host,
        [partial(workspace.policy.check_host, host, "host"), *_of_log(workspace, host, path)],
        confirm,
    )


async def allow_log(
    workspace: Workspace, host: str, path: str | None, confirm: Confirm | None
) -> None:
    """The same for the log alone, where it is found only later.

    Raises: as `allow_watching`.
    """
    await _allow(host, _of_log(workspace, host, path), confirm)


def _of_log(workspace: Workspace, host: str, path: str | None) -> list[Callable[[], object]]:
    if path is None:
        return []
    if host == LOCAL:
        return [partial(readable, workspace, path, "log")]
    return [partial(workspace.policy.check_on_host, path, "log")]


async def _allow(
    host: str, checks: Sequence[Callable[[], object]], confirm: Confirm | None
) -> bool:
    questions = []
    for check in checks:
        try:
            check()
        except PolicyError as error:
            if error.question is None or confirm is None:
                raise
            questions.append(error.question)
    if not questions or confirm is None:
        return False
    text = f"Attach to a training on {host}, and allow the agent to {'; to '.join(questions)}."
    await confirm(Quote("attach", json.dumps([host, questions]), text))
    return True
