"""Sessions of tmux and screen: reads their content, and has further output written to a file.

A session that somebody else made is only ever read: no key is sent to it, and a pipe or a log that
somebody has set up is left as it is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.host.processes.identity import ProcessIdentity, identify, stat_fields
from trainer_runtime.host.processes.open_files import pids, variables_of
from trainer_runtime.host.processes.quick_commands import answer_of

_TIMEOUT_S = 10.0
_PANE = "#{pane_id}\t#{pane_pid}\t#{pane_tty}\t#{pane_pipe}\t#{pane_dead}\t#{session_name}"
_SCREEN_SESSION = re.compile(r"^\s*((\d+)\.(\S+))\s")
_SCREEN_SIZE = re.compile(r"\)/\((\d+),\d+\)")
_USUAL_SERVER = "default"
_PARENT, _GROUP, _TERMINAL, _FOREGROUND = 1, 2, 4, 5  # fields of /proc/PID/stat behind the name


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane of tmux, or a window of screen. `name` is what its program knows it by, `server` the
    socket where it is not the usual one; `pid` its first process; `piped`: written to a file or
    program already, by somebody else."""

    program: str
    name: str
    server: str | None
    pid: int
    tty: str
    piped: bool
    session: str

    def to_dict(self) -> dict[str, Any]:
        return {"program": self.program, "name": self.name, "server": self.server}


def tmux_panes(server: str | None = None) -> list[Pane]:
    """All panes of a user's tmux; none where none runs."""
    output = _ask([*_tmux(server), "list-panes", "-a", "-F", _PANE])
    panes = []
    for line in (output or "").splitlines():
        fields = line.split("\t")
        if len(fields) == 6 and fields[4] != "1":
            name, pid, tty, piped, _, session = fields
            panes.append(Pane("tmux", name, server, int(pid), tty, piped == "1", session))
    return panes


def tmux_pane(target: str, server: str | None = None) -> Pane | None:
    """The pane that a target (`session`, `session:window.pane`, `%3`) means to tmux."""
    output = _ask([*_tmux(server), "display-message", "-p", "-t", target, "#{pane_id}"])
    name = (output or "").strip()
    exact = _ask([*_tmux(server), "has-session", "-t", target]) is not None
    return next((pane for pane in tmux_panes(server) if pane.name == name and exact), None)


def tmux_servers() -> dict[str, str]:
    """The sockets of the user's other tmux servers (`tmux -L NAME`) by name."""
    folder = Path(os.environ.get("TMUX_TMPDIR") or "/tmp", f"tmux-{os.getuid()}")
    try:
        if folder.stat().st_uid != os.getuid():
            return {}
        sockets = sorted(path for path in folder.iterdir() if path.is_socket())
    except OSError:
        return {}
    return {path.name: str(path) for path in sockets if path.name != _USUAL_SERVER}


def tmux_wherever(target: str) -> list[Pane]:
    """What a target means to the user's usual tmux; else to those of others that know it.
    `SOCKET/TARGET` names one of them."""
    servers = tmux_servers()
    name, _, rest = target.partition("/")
    asked = [(None, target)] + [(path, target) for path in servers.values()]
    if rest and name in servers:
        asked = [(servers[name], rest)]
    panes = []
    for server, wanted in asked:
        pane = tmux_pane(wanted, server)
        if pane is not None:
            panes.append(pane)
            if server is None:
                break
    return panes


def screen_windows(session: str) -> list[Pane]:
    """The windows of a screen session of this name, with or without its pid before it."""
    windows = []
    for line in (_ask(["screen", "-ls"], codes=(0, 1)) or "").splitlines():
        match = _SCREEN_SESSION.match(line)
        if match is None or session not in (match.group(1), match.group(2), match.group(3)):
            continue
        for pid in pids():
            fields = stat_fields(pid)
            if fields is not None and int(fields[_PARENT]) == int(match.group(2)):
                window = variables_of(pid).get("WINDOW")
                if window is not None:
                    tty = _link(f"/proc/{pid}/fd/0")
                    name = f"{match.group(1)}:{window}"
                    logs = "log" in _screen_info(name).split()
                    windows.append(Pane("screen", name, None, pid, tty, logs, match.group(1)))
    return sorted(windows, key=lambda pane: int(pane.name.rpartition(":")[2]))


def begin_capture(pane: Pane, history: Path, spool: Path, *, with_history: bool) -> str | None:
    """Have a pane's history written to one file and what follows to the other; why it can't be.

    tmux and screen do both in one go: nothing of what the pane shows falls between the two. The
    program that writes them outlives the caller; the lock on `history` is held till it ends.
    """
    if pane.program == "tmux":
        command = _tmux_capture(pane, spool, with_history)
    else:
        command = _screen_capture(pane, history, spool, with_history)
    errors = history.with_name(f"{history.name}.err")
    with history.open("ab") as output, errors.open("wb") as error_output:
        fcntl.flock(output, fcntl.LOCK_EX)
        output.truncate(0)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=error_output,
                timeout=_TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode != 0:
        return errors.read_text(errors="replace").strip()[-300:] or f"exit code {done.returncode}"
    deadline = time.monotonic() + _TIMEOUT_S / 2
    while not spool.exists():  # both programs have another one make it
        if time.monotonic() > deadline:
            return "nothing is written yet"
        time.sleep(0.01)
    return None


def width_of(pane: Pane) -> int | None:
    """The columns at which a window of screen breaks lines; None where they aren't broken."""
    if pane.program == "tmux":
        return None
    match = _SCREEN_SIZE.search(_screen_info(pane.name))
    return int(match.group(1)) if match else None


def end_capture(pane: Pane) -> None:
    """Stop what `begin_capture` started, if it still runs."""
    if pane.program == "tmux":
        _ask([*_tmux(pane.server), "pipe-pane", "-t", pane.name])
    else:
        session, _, window = pane.name.rpartition(":")
        _ask(["screen", "-S", session, "-p", window, "-X", "log", "off"])


def foreground(pane: Pane) -> list[ProcessIdentity]:
    """The job in a pane's foreground; the pane's own first process where that waits for one."""
    fields = stat_fields(pane.pid)
    group = int(fields[_FOREGROUND]) if fields is not None else -1
    processes = []
    for pid in pids():
        stat = stat_fields(pid)
        if stat is None or fields is None or stat[_TERMINAL] != fields[_TERMINAL]:
            continue
        process = identify(pid)
        if process is not None and int(stat[_GROUP]) == group:
            processes.append(process)
    own = identify(pane.pid)
    return processes or ([own] if own is not None else [])


def whole_history(program: str, width: int | None, data: bytes) -> bytes:
    """A pane's lines as they were printed: without the blank ones below the last.

    tmux reports its cursor's position: an incomplete line is to be continued. screen breaks
    lines at its `width`.
    """
    begun = False
    if program == "tmux" and data:
        data, _, column = data.rstrip(b"\n").rpartition(b"\n")
        begun = column.strip() not in (b"", b"0")
    lines = [line.rstrip() for line in data.replace(b"\r", b"").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    text = b"\n".join(lines) + (b"" if begun or not lines else b"\n")
    return text if width is None else re.sub(rb"(?m)^(.{%d})\n" % width, rb"\1", text)


def _tmux(server: str | None) -> list[str]:
    return ["tmux", *(["-S", server] if server else [])]


def _tmux_capture(pane: Pane, spool: Path, with_history: bool) -> list[str]:
    # tmux expands formats in it, and % too: as strftime does.
    written = shlex.quote(str(spool)).replace("%", "%%").replace("#", "##")
    pipe = ["pipe-pane", "-t", pane.name, f"exec cat >> {written}"]
    show = ["capture-pane", "-p", "-J", "-S", "-", "-t", pane.name]
    column = ["display-message", "-p", "-t", pane.name, "#{cursor_x}"]
    shown = [*show, ";", *column, ";"] if with_history else []
    return [*_tmux(pane.server), *shown, *pipe]


def _screen_capture(pane: Pane, history: Path, spool: Path, with_history: bool) -> list[str]:
    session, _, window = pane.name.rpartition(":")
    show = [f"hardcopy -h {_screen_quoted(history)}"] if with_history else []
    return [
        *("screen", "-S", session, "-p", window, "-X", "eval"),
        *show,
        f"logfile {_screen_quoted(spool)}",
        "logfile flush 1",
        "log on",
    ]


def _screen_quoted(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def _screen_info(name: str) -> str:
    session, _, window = name.rpartition(":")
    return _ask(["screen", "-S", session, "-p", window, "-Q", "info"]) or ""


def _ask(command: Sequence[str], codes: Sequence[int] = (0,)) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    done = answer_of(command, within_s=_TIMEOUT_S, own_session=True)
    if done is None or done.returncode not in codes:
        return None
    return done.stdout.decode(errors="replace")


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
