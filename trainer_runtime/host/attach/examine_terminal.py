"""Resolves the pane of tmux or window of screen that is to be watched on this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from trainer_runtime.host.attach.source_refusal import (
    RefusedError,
    account,
    account_of,
    plain,
    this_host,
)
from trainer_runtime.host.attach.terminals import (
    Pane,
    foreground,
    screen_windows,
    tmux_panes,
    tmux_servers,
    tmux_wherever,
)
from trainer_runtime.host.processes.identity import stat_fields
from trainer_runtime.host.processes.open_files import open_files, pids, variables_of

_SUN_PATH = "tmux-"


def examine_tmux(target: str) -> dict[str, Any]:
    panes = tmux_wherever(target)
    if len(panes) > 1:
        sockets = plain(Path(str(pane.server)).name for pane in panes)
        raise RefusedError(
            "TMUX_NOT_FOUND",
            f"{target!r} is of several servers of tmux: {', '.join(sockets)}.",
            f"Name one as SOCKET/TARGET, e.g. `{sockets[0]}/{target}`.",
        )
    if not panes:
        others = [
            f"{name}/{pane.session}"
            for name, path in tmux_servers().items()
            for pane in tmux_panes(path)
        ]
        names = plain([*(listed.session for listed in tmux_panes()), *others])
        there = f"Its sessions: {', '.join(names)}." if names else "It has no session."
        raise RefusedError(
            "TMUX_NOT_FOUND",
            f"tmux of {account()} on {this_host()} knows no {target!r}. {there}{_others_tmux()}",
            "Name a session, `session:window.pane` or a pane's id (`tmux list-panes -a` lists them "
            "there), with `SOCKET/` before it for `tmux -L SOCKET`.",
        )
    return examine_pane(panes[0])


def examine_screen(target: str) -> dict[str, Any]:
    session, _, window = target.partition(":")
    windows = screen_windows(session)
    chosen = [
        candidate for candidate in windows if not window or candidate.name.endswith(f":{window}")
    ]
    if not chosen:
        raise RefusedError(
            "SCREEN_NOT_FOUND",
            f"screen of {account()} on {this_host()} has no session {target!r}.",
            "`screen -ls` lists them there; name one as NAME, PID.NAME or NAME:WINDOW.",
        )
    if len(chosen) > 1:
        numbers = ", ".join(candidate.name.rpartition(":")[2] for candidate in chosen)
        raise RefusedError(
            "SCREEN_NOT_FOUND",
            f"{target!r} names several windows of screen: {numbers}.",
            f"Name one of them, e.g. `{session}:{chosen[0].name.rpartition(':')[2]}`.",
        )
    return examine_pane(chosen[0])


def pane_of(pid: int, tty: str) -> Pane | None:
    """The pane that a process writes to, by what tmux and screen put into its environment."""
    variables = variables_of(pid)
    server = variables.get("TMUX", "").split(",")[0] or None
    candidates = [*tmux_panes(server), *(tmux_panes() if server else [])]
    if variables.get("STY"):
        candidates += screen_windows(variables["STY"])
    return next((pane for pane in candidates if pane.tty == tty), None)


def examine_pane(pane: Pane) -> dict[str, Any]:
    if pane.piped:
        raise RefusedError(
            "PANE_TAKEN",
            f"The output of {pane.session} ({pane.program} {pane.name}) is being written somewhere "
            f"already, and {pane.program} does that once.",
            f"Attach to the log that it goes to{_written_by(pane)}; or have its owner "
            f"set it up end it: {_end_of_pipe(pane)}.",
        )
    processes = [process.to_dict() for process in foreground(pane)]
    return {"path": None, "pane": pane.to_dict(), "processes": processes}


def _written_by(pane: Pane) -> str:
    """The file that a pane's pipe may write to: where the server's other children do."""
    if pane.program != "tmux":
        return ""
    parents = {pid: _parent(pid) for pid in pids()}
    server = parents.get(pane.pid)
    files = {
        file.path
        for pid, parent in parents.items()
        if parent == server or parents.get(parent) == server
        for file in open_files(pid)
        if file.is_regular and file.writes and file.descriptor in (1, 2)
    }
    return f" (perhaps {', '.join(named)})" if (named := plain(files)[:3]) else ""


def _end_of_pipe(pane: Pane) -> str:
    if pane.program == "tmux":
        server = f" -S {shlex.quote(pane.server)}" if pane.server else ""
        return f"`tmux{server} pipe-pane -t {shlex.quote(pane.name)}`"
    session, _, window = pane.name.rpartition(":")
    return f"`screen -S {shlex.quote(session)} -p {window} -X log off`"


def _parent(pid: int) -> int:
    fields = stat_fields(pid)
    return 0 if fields is None else int(fields[1])


def _others_tmux() -> str:
    """Whose tmux runs here besides."""
    folder = Path(os.environ.get("TMUX_TMPDIR", "/tmp"))
    try:
        users = {
            int(socket_folder.name[len(_SUN_PATH) :])
            for socket_folder in folder.glob(f"{_SUN_PATH}[0-9]*")
        }
    except (OSError, ValueError):
        return ""
    others = sorted(account_of(user) for user in users - {os.getuid()})
    return f" {', '.join(others)} may have one too: add the host as them." if others else ""
