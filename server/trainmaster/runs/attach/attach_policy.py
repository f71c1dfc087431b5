"""Holds what is attached to its caller's policy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from trainmaster.backends import LOCAL
from trainmaster.errors.confirmation import Confirm, Quote, digest_of_request, open_questions
from trainmaster.metrics.log_file import readable
from trainmaster.sync.workspace import Workspace


async def allow_watching(
    workspace: Workspace, host: str, path: str | None, asked: str, confirm: Confirm | None
) -> bool:
    """Check that the caller may watch a host and the log at `path` there, where one is known; a
    person is asked about what lies beyond the policy. True if one was. `asked`: the whole request.

    Raises:
        UsageError: `LOG_NOT_READABLE`, the home keeps secrets in the file.
        PolicyError: `POLICY_FILE`, `POLICY_HOST`.
        SpendError: `CONFIRMATION_REQUIRED`, `CONFIRMATION_DECLINED`.
    """
    of_host: Callable[[], object] = partial(workspace.policy.check_host, host, "host")
    checks = [of_host, *_of_log(workspace, host, path)]
    return await _allow(host, path, asked, checks, confirm)


async def allow_log(
    workspace: Workspace, host: str, path: str | None, asked: str, confirm: Confirm | None
) -> None:
    """The same for the log alone, where it is found only later.

    Raises: as `allow_watching`.
    """
    await _allow(host, path, asked, _of_log(workspace, host, path), confirm)


def _of_log(workspace: Workspace, host: str, path: str | None) -> list[Callable[[], object]]:
    if path is None:
        return []
    if host == LOCAL:
        return [partial(readable, workspace, path, "log")]
    return [partial(workspace.policy.check_on_host, path, "log")]


async def _allow(
    host: str,
    path: str | None,
    asked: str,
    checks: Sequence[Callable[[], object]],
    confirm: Confirm | None,
) -> bool:
    questions = open_questions(checks, confirm)
    if not questions or confirm is None:
        return False
    text = f"Attach to a training on {host}, and allow the agent to {'; to '.join(questions)}."
    leads = os.path.realpath(path) if path is not None and host == LOCAL else path
    identity = digest_of_request(host, path, leads, asked, questions)
    await confirm(Quote("attach", identity, text))
    return True
