"""Toolset `operate`: start, stop and resume runs. Each call is safe to cancel and to repeat."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.types import InputRequiredResult
from pydantic import Field

from trainmaster.mcp.alerts import CREATE_ALERT
from trainmaster.mcp.confirm import confirmed
from trainmaster.mcp.definition import (
    ENDS,
    REPLACES,
    STARTS,
    STARTS_OUTSIDE,
    SUPERSEDES,
    Definition,
    ToolContext,
    workspace_of,
)
from trainmaster.mcp.parameters import Host, IdempotencyKey, RunId, Sets, Spec, Words
from trainmaster.words.answers.hosts import HostAddedAnswer
from trainmaster.words.answers.runs import CleanAnswer, FetchAnswer, LaunchAnswer, StopAnswer

_FETCH_BOUND_S = 35.0  # a call may take 45, and the last range takes its time


async def launch(
    context: ToolContext,
    *,
    spec: Spec,
    host: Host = "",
    set: Sets = (),
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Start a training, detached; returns its run_id at once.

    Plans first and starts nothing where the plan is refused (see plan_run). Pass an
    idempotency_key: a call repeated after a lost answer then finds the run. Continue with
    wait_for_event.
    """
    from trainmaster.runs import launch as service

    return await confirmed(
        context,
        lambda workspace, confirm: service.launch(
            workspace,
            spec,
            host=host or None,
            sets=set,
            idempotency_key=idempotency_key or None,
            confirm=confirm,
        ),
    )


async def attach(
    context: ToolContext,
    *,
    host: Annotated[str, Field(description="Where it runs")] = "local",
    log: Annotated[str, Field(description="Path of its log")] = "",
    tmux: Annotated[str, Field(description="Its tmux pane")] = "",
    screen: Annotated[str, Field(description="Its screen session")] = "",
    pid: Annotated[str, Field(description="Its process, from which the log is found")] = "",
    start: Annotated[
        Literal["start", "end"], Field(description="The log's start, or only new lines")
    ] = "start",
    name: Annotated[str, Field(description="Of the run")] = "",
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Follow a training that somebody else started; give one of log, tmux, screen, pid.

    It is watched like any run, and can't be stopped or resumed.
    """
    from trainmaster.runs import attach as attaching

    options = attaching.AttachOptions(
        log=log or None,
        tmux=tmux or None,
        screen=screen or None,
        pid=pid or None,
        start=start,
        name=name or None,
    )
    return await confirmed(
        context,
        lambda workspace, confirm: attaching.attach(
            workspace, host, options, idempotency_key=idempotency_key or None, confirm=confirm
        ),
    )


async def stop(context: ToolContext, *, run_id: RunId, after_session: bool = False) -> StopAnswer:
    """Stop a run: the trainer saves a checkpoint and ends. Can be resumed; repeating is harmless.

    `pending: true` means that the host has not been reached yet; the stop is delivered when it is.
    after_session: at Kaggle, where no session can be ended.
    """
    from trainmaster.runs import stop as service

    return await service.stop(workspace_of(context), run_id, after_session=after_session)


async def resume(
    context: ToolContext,
    *,
    run_id: RunId,
    start: Annotated[
        str,
        Field(description="`latest` (default), `best`, `scratch`, or a checkpoint's step"),
    ] = "",
    set: Sets = (),
    apply: Annotated[
        str, Field(description="`FINDING[:PATCH]` of diagnose: take that patch's changes")
    ] = "",
    host: Annotated[str, Field(description="Continue there, from the mirror")] = "",
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Start a run that has ended again, as a new attempt from one of its verified checkpoints.

    `set` changes the last attempt's configuration, e.g. `steps=400` to train on. A damaged newest
    checkpoint is passed over; list_checkpoints gives the reason. An earlier `start` asks the user.
    """
    from trainmaster.machines.renting.instances import advance_instance
    from trainmaster.runs import resume as service

    return await confirmed(
        context,
        lambda workspace, confirm: service.resume(
            workspace,
            run_id,
            start=start or None,
            sets=set,
            apply=apply or None,
            host=host or None,
            refresh_instance=advance_instance,
            idempotency_key=idempotency_key or None,
            confirm=confirm,
        ),
    )


async def add_host(
    context: ToolContext,
    *,
    name: Annotated[str, Field(description="What it is called from now on, e.g. in a spec's host")],
    address: Annotated[
        str, Field(description="[user@]address[:port], or a Host of the user's OpenSSH config")
    ],
    key: Annotated[str, Field(description="A private key here")] = "",
    jump: Annotated[str, Field(description="Hosts to go through, as addresses with commas")] = "",
    transport: Annotated[
        Literal["asyncssh", "openssh", "paramiko"],
        Field(description="`openssh`: the system's own, for 2FA, GSSAPI, ProxyCommand"),
    ] = "asyncssh",
    root: Annotated[str, Field(description="Folder of the host for runs")] = "~/.trainmaster",
    cache: Annotated[str, Field(description="Folder of the host for what runs share")] = "",
) -> HostAddedAnswer | InputRequiredResult:
    """Add a machine that is reached over SSH; the user is asked. Pins its key; nothing is kept
    where the connection fails. Show its fingerprint to the user, then list_hosts with `check`.
    """
    from trainmaster.machines import registry

    options = registry.HostOptions(
        key=key or None, jump=jump or None, root=root, cache=cache or None, transport=transport
    )
    return await confirmed(
        context,
        lambda workspace, confirm: registry.add_host(
            workspace, name, address, options, confirm=confirm
        ),
    )


async def fetch_files(
    context: ToolContext,
    *,
    run_id: RunId,
    pattern: Annotated[
        str,
        Field(description="Glob over the run's folder, or `best`, `latest`, `final`"),
    ],
    folder: Annotated[
        str, Field(description="Below the settings' download folder; the run's id if left out")
    ] = "",
) -> FetchAnswer:
    """Bring files of a run here, each checked by its digest: checkpoints, final model, logs.

    They come to lie below the download folder that the settings name, nowhere else. `more: true`
    means that the time limit was reached: repeat the call to continue.
    """
    from trainmaster.runs import fetch as service

    return await service.fetch_below(
        workspace_of(context), run_id, pattern, folder, bound_s=_FETCH_BOUND_S
    )


async def clean_run(
    context: ToolContext,
    *,
    run_id: RunId,
    keep: Annotated[Words, Field(description="Any of `best`, `final`")] = (),
) -> CleanAnswer | InputRequiredResult:
    """Remove for good what an ended run left on its host; its record stays. The user is asked."""
    from trainmaster.runs import clean

    return await confirmed(
        context,
        lambda workspace, confirm: clean.clean_agreed(
            workspace, run_id, keep=keep, confirm=confirm
        ),
    )


TOOLS = (
    Definition(launch, "Launch a training", STARTS_OUTSIDE),
    Definition(attach, "Watch a training of others", STARTS),
    Definition(stop, "Stop a run", ENDS),
    Definition(resume, "Resume a run", SUPERSEDES),
    Definition(fetch_files, "Fetch files of a run", REPLACES),
    Definition(clean_run, "Remove what a run left", ENDS),
    Definition(add_host, "Add a host", STARTS_OUTSIDE),
    CREATE_ALERT,
)
