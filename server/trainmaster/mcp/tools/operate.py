"""Toolset `operate`: start, stop and resume runs. Each call is safe to cancel and to repeat."""

from __future__ import annotations

from typing import Annotated, Literal

from mcp.types import InputRequiredResult
from pydantic import Field

from trainmaster.answers.hosts import HostAddedAnswer
from trainmaster.answers.runs import (
    CleanAnswer,
    FetchAnswer,
    LaunchAnswer,
    RenderAnswer,
    StopAnswer,
)
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
from trainmaster.mcp.tools.adopt import ADOPT
from trainmaster.mcp.tools.alerts import CREATE_ALERT
from trainmaster.mcp.tools.inspect import INSPECT
from trainmaster.mcp.tools.sample import SAMPLE

_FETCH_BOUND_S = 35.0  # a call may take 45, and the last range takes its time


async def launch(
    context: ToolContext,
    *,
    spec: Spec,
    host: Host = "",
    set: Sets = (),
    rehearse: Annotated[str, Field(description="first, only, tiny; skip asks")] = "",
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Start a training, detached, if its plan is accepted. Over a GPU-hour `rehearse`: a short
    run that get_run judges; `first` continues.
    """
    from trainmaster.runs.launch.rehearse import launch_for_agent

    return await confirmed(
        context,
        lambda workspace, confirm: launch_for_agent(
            workspace,
            spec,
            rehearse,
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
    log: Annotated[str, Field(description="Path")] = "",
    tmux: Annotated[str, Field(description="Pane")] = "",
    screen: Annotated[str, Field(description="Session")] = "",
    pid: Annotated[str, Field(description="Its log is found")] = "",
    start: Annotated[
        Literal["start", "end"], Field(description="The whole log, or new lines")
    ] = "start",
    ends_after: Annotated[
        str, Field(description="How long a log may be silent; 15m if left out")
    ] = "",
    name: str = "",
    pattern: str = "",
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Follow a training that others started, by one of log, tmux, screen, pid: watched like any
    run, never stopped or resumed.
    """
    from trainmaster.runs import attach as attaching

    options = attaching.AttachOptions(
        log=log or None,
        tmux=tmux or None,
        screen=screen or None,
        pid=pid or None,
        start=start,
        name=name or None,
        ends_after=ends_after or None,
        pattern=pattern or None,
    )
    return await confirmed(
        context,
        lambda workspace, confirm: attaching.attach(
            workspace, host, options, idempotency_key=idempotency_key or None, confirm=confirm
        ),
    )


async def render(
    context: ToolContext,
    *,
    spec: Spec,
    folder: Annotated[str, Field(description="New, below the download folder")],
    host: Host = "",
    set: Sets = (),
) -> RenderAnswer:
    """Write the scripts and configuration that launch would place (train.py, config.json, ...) into
    a folder here; starts nothing.
    """
    from trainmaster.runs.download_folder import folder_below_downloads
    from trainmaster.runs.export.render_spec import render_spec

    workspace = workspace_of(context)
    target = folder_below_downloads(workspace, folder)
    return await render_spec(workspace, spec, target, host=host or None, sets=set)


async def export(
    context: ToolContext,
    *,
    spec: Spec,
    folder: Annotated[str, Field(description="New, below the download folder")],
    to: Literal["slurm", "skypilot", "kubernetes", "docker-compose"],
    image: Annotated[str, Field(description="Of the container")] = "",
    host: Host = "",
    set: Sets = (),
) -> RenderAnswer:
    """As render, with the file by which another engine trains it, unsupervised."""
    from trainmaster.runs.download_folder import folder_below_downloads
    from trainmaster.runs.export.export import export_spec

    workspace = workspace_of(context)
    target = folder_below_downloads(workspace, folder)
    return await export_spec(
        workspace, spec, target, to=to, image=image or None, host=host or None, sets=set
    )


async def stop(
    context: ToolContext,
    *,
    run_id: RunId,
    after_session: Annotated[bool, Field(description="At Kaggle: once its session ends")] = False,
) -> StopAnswer:
    """Stop a run: the trainer saves a checkpoint and ends; resume continues it. `pending`: its
    host not reached yet; delivered once it is.
    """
    from trainmaster.runs import stop as service

    return await service.stop(workspace_of(context), run_id, after_session=after_session)


async def resume(
    context: ToolContext,
    *,
    run_id: RunId,
    start: Annotated[
        str,
        Field(description="latest (default), best, scratch, or a step"),
    ] = "",
    set: Sets = (),
    apply: Annotated[str, Field(description="FINDING[:PATCH] of diagnose")] = "",
    host: Annotated[str, Field(description="Continue there, from the mirror")] = "",
    idempotency_key: IdempotencyKey = "",
) -> LaunchAnswer | InputRequiredResult:
    """Start a run that has ended again, as a new attempt from a verified checkpoint. `set` changes
    the last attempt's configuration, e.g. `steps=400` to train on. An earlier `start` asks the
    user.
    """
    from trainmaster.machines.renting.instances import advance_instance
    from trainmaster.runs.resume import resume as service

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
    name: Annotated[str, Field(description="For a spec's host")],
    address: Annotated[str, Field(description="[user@]address[:port], or OpenSSH's Host")],
    key: Annotated[str, Field(description="Path of a private key")] = "",
    jump: Annotated[str, Field(description="Hops, with commas")] = "",
    transport: Annotated[
        Literal["asyncssh", "openssh", "paramiko"],
        Field(description="openssh: for 2FA, GSSAPI, ProxyCommand"),
    ] = "asyncssh",
    root: Annotated[str, Field(description="Of runs")] = "~/.trainmaster",
    cache: Annotated[str, Field(description="Of what runs share")] = "",
    slurm: Annotated[
        str,
        Field(
            description="Login node: yes, or partition=P account= qos= constraint= gres= "
            "modules=M,N"
        ),
    ] = "",
) -> HostAddedAnswer | InputRequiredResult:
    """Add a machine reached over SSH; the user is asked. Nothing is kept where the connection
    fails. Then list_hosts with `check`.
    """
    from trainmaster.machines import host_registry as registry
    from trainmaster.machines.host_options import HostOptions, slurm_options

    options = HostOptions(
        key=key or None,
        jump=jump or None,
        root=root,
        cache=cache or None,
        transport=transport,
        **slurm_options(slurm),
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
        Field(description="Glob over the run's folder, or best, latest, final"),
    ],
    folder: Annotated[str, Field(description="Below the download folder; else the run's id")] = "",
) -> FetchAnswer:
    """Bring files of a run here (checkpoints, final model, logs), each checked by its digest, below
    the download folder. `more`: repeat the call to continue.
    """
    from trainmaster.runs import fetch as service

    return await service.fetch_below(
        workspace_of(context), run_id, pattern, folder, bound_s=_FETCH_BOUND_S
    )


async def clean_run(
    context: ToolContext,
    *,
    run_id: RunId,
    keep: Annotated[Words, Field(description="best, final")] = (),
) -> CleanAnswer | InputRequiredResult:
    """Remove for good what an ended run left on its host; its record stays, and what fetch_files
    brought. The user is asked.
    """
    from trainmaster.runs import clean

    return await confirmed(
        context,
        lambda workspace, confirm: clean.clean_agreed(
            workspace, run_id, keep=keep, confirm=confirm
        ),
    )


TOOLS = (
    Definition(launch, "Launch a training", STARTS_OUTSIDE),
    Definition(render, "Render a training's scripts", STARTS_OUTSIDE),
    Definition(export, "Export a training to another engine", STARTS_OUTSIDE),
    Definition(stop, "Stop a run", ENDS),
    Definition(resume, "Resume a run", SUPERSEDES),
    INSPECT,
    SAMPLE,
    Definition(attach, "Watch a training of others", STARTS),
    ADOPT,
    Definition(fetch_files, "Fetch files of a run", REPLACES),
    Definition(clean_run, "Remove what a run left", ENDS),
    Definition(add_host, "Add a host", STARTS_OUTSIDE),
    CREATE_ALERT,
)
