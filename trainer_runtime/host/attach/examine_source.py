"""Resolves the log, pane, session or process that is to be watched on this machine.

Answers with the source as a run's config holds it, or with why it can't be watched and what its
owner can do about that.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.pattern_example import EXAMPLE
from trainer_runtime.core.files.protected import is_protected
from trainer_runtime.core.inputs.carriers import carrier_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.log_text import JUDGED_BYTES, is_binary
from trainer_runtime.host.attach.first_reading import first_reading
from trainer_runtime.host.attach.terminals import (
    Pane,
    foreground,
    screen_windows,
    tmux_panes,
    tmux_servers,
    tmux_wherever,
)
from trainer_runtime.host.processes.identity import ProcessIdentity, identify
from trainer_runtime.host.processes.open_files import (
    OpenFile,
    open_file,
    open_files,
    pids,
    readers_of_pipe,
    variables_of,
    writers,
)

_TAIL_BYTES = 1 << 16
_STDERR = 2
_DELETED = " (deleted)"  # behind the name that the link in /proc had
_LOG_ENDINGS = (".log", ".txt", ".out", ".err", ".jsonl")
_SUN_PATH = "tmux-"
# Names that others gave are only passed on where they can't be read as anything else.
_PLAIN = re.compile(r"[\w./@:+=,~-]{1,200}")


class RefusedError(Exception):
    """It can't be watched: `code` as in the operator's table of errors."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.refusal = {"code": code, "message": message, "fix": fix}


def examine_source(
    kind: str, target: str, begin: str, root: str | None = None, pattern: str | None = None
) -> dict[str, Any]:
    """`{"source": …}` for a `kind` (log, tmux, screen, pid), or `{"refused": …}` with an error.

    `begin`: `start` for everything written so far, `end` for new lines only. `root`: the folder of
    this host's runs, whose secrets are not shown under any name. `pattern`: the shape of its lines,
    which is tried on those that it has; `reading` of the source says what is understood of them.
    """
    try:
        examined = _EXAMINERS[kind](target)
        _refuse_secrets(examined.get("path"), root)
    except RefusedError as error:
        return {"refused": error.refusal}
    source = {"kind": kind, "target": target, "from": begin, "begin": 0, **examined}
    if begin == "end" and source.get("path"):
        source["begin"] = _last_line(Path(source["path"]))
    source["reading"] = reading = first_reading(source.get("path"), pattern)
    if pattern is not None and reading["lines"] and not reading["matched"]:
        return {"refused": _unmatched(target, reading["lines"]).refusal}
    return {"source": source}


def _unmatched(target: str, lines: int) -> RefusedError:
    return RefusedError(
        "PATTERN_MATCHES_NOTHING",
        f"The pattern matches none of the last {lines:,} lines with numbers of {target} on "
        f"{_here()}.",
        "Take a line of the log and replace its numbers by their names, as in "
        f"`{EXAMPLE}`; leave out what differs from line to line, or write {{any}} for it.",
    )


def _refuse_secrets(path: str | None, root: str | None) -> None:
    if path is not None and is_protected(Path(path), [Path(root)] if root else []):
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {_here()} holds secrets, keys or settings of Trainmaster.",
            "Give the path of the log that the training writes.",
        )


def _log(target: str) -> dict[str, Any]:
    path = Path(os.path.expanduser(target))  # keeps an unknown user
    path = path if path.is_absolute() else Path.home() / path
    _refuse_unreadable(path)
    return _of_log(path, writers(path))


def _pid(target: str) -> dict[str, Any]:
    pid = int(target) if target.isascii() and target.isdigit() and len(target) < 10 else 0
    process = identify(pid) if pid > 0 else None
    if process is None:
        raise RefusedError(
            "NO_SUCH_PROCESS",
            f"No process {target} runs on {_here()}.",
            "Find it there: `ps -eo pid,user,etime,args | grep train`; or attach to its log.",
        )
    try:
        os.listdir(f"/proc/{pid}/fd")
    except OSError:
        raise _not_owner(pid) from None
    for descriptor in (1, 2):
        output = open_file(pid, descriptor)
        if output is None or output.path == os.devnull:
            continue
        return _of_output(process, output)
    raise _nowhere(pid, "throws its output away")


def _of_output(process: ProcessIdentity, output: OpenFile) -> dict[str, Any]:
    if output.is_regular and output.path.endswith(_DELETED) and not os.path.exists(output.path):
        raise _deleted(process.pid, output)
    if output.is_regular:
        return _of_process_log(process, output.path)
    if stat.S_ISFIFO(output.mode):
        path = _behind_pipe(output.inode)
        if path is not None:
            return _of_process_log(process, path)
        raise _nowhere(process.pid, "writes into a pipe")
    if stat.S_ISCHR(output.mode):
        pane = _pane_of(process.pid, output.path)
        if pane is not None:
            return {**_of_pane(pane), "processes": [process.to_dict()]}
        raise _nowhere(process.pid, f"writes to the terminal {output.path}, in no tmux or screen")
    raise _nowhere(process.pid, "writes into a socket")


def _deleted(pid: int, output: OpenFile) -> RefusedError:
    link = f"/proc/{pid}/fd/{output.descriptor}"
    return RefusedError(
        "LOG_NOT_READABLE",
        f"Process {pid} on {_here()} writes to {output.path.removesuffix(_DELETED)}, which was "
        "deleted: no name leads to it any more.",
        f"While it runs, `nohup tail -c +1 -f {link} > NEW.log &` there copies its output into "
        "a new log; attach to that.",
    )


def _behind_pipe(inode: int) -> str | None:
    """The file that the reader of a pipe writes, as `tee` does; None where that isn't one."""
    written = [
        file
        for reader in readers_of_pipe(inode)
        for file in open_files(reader)
        if file.is_regular and file.writes
    ]
    named = {file.path for file in written if file.descriptor > _STDERR}
    paths = named or {file.path for file in written if file.descriptor < _STDERR}
    return paths.pop() if len(paths) == 1 else None


def _of_process_log(process: ProcessIdentity, path: str) -> dict[str, Any]:
    _refuse_unreadable(Path(path))
    return _of_log(Path(path), [process])


def _of_log(path: Path, processes: list[ProcessIdentity]) -> dict[str, Any]:
    return {"path": str(path), "processes": [process.to_dict() for process in processes]}


def _pane_of(pid: int, tty: str) -> Pane | None:
    """The pane that a process writes to, by what tmux and screen put into its environment."""
    variables = variables_of(pid)
    server = variables.get("TMUX", "").split(",")[0] or None
    candidates = [*tmux_panes(server), *(tmux_panes() if server else [])]
    if variables.get("STY"):
        candidates += screen_windows(variables["STY"])
    return next((pane for pane in candidates if pane.tty == tty), None)


def _tmux(target: str) -> dict[str, Any]:
    panes = tmux_wherever(target)
    if len(panes) > 1:
        sockets = _plain(Path(str(pane.server)).name for pane in panes)
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
        names = _plain([*(listed.session for listed in tmux_panes()), *others])
        there = f"Its sessions: {', '.join(names)}." if names else "It has no session."
        raise RefusedError(
            "TMUX_NOT_FOUND",
            f"tmux of {_me()} on {_here()} knows no {target!r}. {there}{_others_tmux()}",
            "Name a session, `session:window.pane` or a pane's id (`tmux list-panes -a` lists them "
            "there), with `SOCKET/` before it for `tmux -L SOCKET`.",
        )
    return _of_pane(panes[0])


def _screen(target: str) -> dict[str, Any]:
    session, _, window = target.partition(":")
    windows = screen_windows(session)
    chosen = [
        candidate for candidate in windows if not window or candidate.name.endswith(f":{window}")
    ]
    if not chosen:
        raise RefusedError(
            "SCREEN_NOT_FOUND",
            f"screen of {_me()} on {_here()} has no session {target!r}.",
            "`screen -ls` lists them there; name one as NAME, PID.NAME or NAME:WINDOW.",
        )
    if len(chosen) > 1:
        numbers = ", ".join(candidate.name.rpartition(":")[2] for candidate in chosen)
        raise RefusedError(
            "SCREEN_NOT_FOUND",
            f"{target!r} names several windows of screen: {numbers}.",
            f"Name one of them, e.g. `{session}:{chosen[0].name.rpartition(':')[2]}`.",
        )
    return _of_pane(chosen[0])


def _of_pane(pane: Pane) -> dict[str, Any]:
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
    return f" (perhaps {', '.join(named)})" if (named := _plain(files)[:3]) else ""


def _end_of_pipe(pane: Pane) -> str:
    if pane.program == "tmux":
        server = f" -S {shlex.quote(pane.server)}" if pane.server else ""
        return f"`tmux{server} pipe-pane -t {shlex.quote(pane.name)}`"
    session, _, window = pane.name.rpartition(":")
    return f"`screen -S {shlex.quote(session)} -p {window} -X log off`"


def _refuse_unreadable(path: Path) -> None:
    """Raises:
    RefusedError: `LOG_NOT_READABLE`, with what its owner can do.
    """
    for folder in reversed(path.parents):
        if os.path.exists(folder) and not os.access(folder, os.X_OK):
            raise _closed(folder, "--x", "the folder")
    if not os.path.exists(path):  # also for a name that is too long
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"There is no {path} on {_here()}.{_beside(path)}",
            "Give the path of the log that the training writes, absolute or below your home "
            "there; `readlink /proc/PID/fd/1` names it for a process.",
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {_here()} is {what}.{_inside(path)}",
            "Give the path of the log itself: a file that only grows.",
        )
    if not os.access(path, os.R_OK):
        raise _closed(path, "r--", "the log")
    with path.open("rb") as file:
        head = file.read(JUDGED_BYTES)
    if (carrier := carrier_of(head)) is not None:
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {_here()} wraps a log in {carrier.removeprefix('a ')}, which can't be "
            "followed.",
            "Follow its text: in tmux, as `docker logs -f NAME > FILE` or as the program's own "
            f"log. {command('diagnose', 'FILE')} reads such a file whole.",
        )
    if is_binary(head):
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {_here()} is not text: it holds binary data.",
            "Give the path of the text that the training prints; metrics can't be read from "
            "anything else.",
        )


def _closed(path: Path, right: str, what: str) -> RefusedError:
    owner = _name(path.stat().st_uid)
    letter = right.strip("-")
    quoted = shlex.quote(str(path))
    return RefusedError(
        "LOG_NOT_READABLE",
        f"{what.capitalize()} {path} belongs to {owner} on {_here()}, and {_me()} may not read it.",
        f"As {owner} there: `setfacl -m u:{_me()}:{letter} {quoted}`, or, to let everybody, "
        f"`chmod o+{letter} {quoted}`; or add the host again as {owner}@….",
    )


def _not_owner(pid: int) -> RefusedError:
    owner = _name(os.stat(f"/proc/{pid}").st_uid)
    return RefusedError(
        "NOT_OWNER",
        f"Process {pid} on {_here()} belongs to {owner}; {_me()} may not see where it writes.",
        f"As {owner} there: `readlink /proc/{pid}/fd/1` names its log, `chmod o+r LOG` opens it; "
        f"then attach to that log. Or add the host again as {owner}@….",
    )


def _nowhere(pid: int, what: str) -> RefusedError:
    written = _plain(
        file.path
        for file in open_files(pid)
        if file.is_regular and file.writes and file.path.endswith(_LOG_ENDINGS)
    )
    also = f" It also has open: {', '.join(written[:3])}." if written else ""
    return RefusedError(
        "LOG_NOT_READABLE",
        f"Process {pid} on {_here()} {what}: there is nothing to follow.{also}",
        "If it logs to a file as well, attach to that log; "
        "next time start it in tmux, or with its output in a file.",
    )


def _last_line(path: Path) -> int:
    """Where the last line begins that the log has not ended; its length where all are ended."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        return start + file.read(size - start).rfind(b"\n") + 1


def _beside(path: Path) -> str:
    """The logs near the path that was given."""
    try:
        names = _plain(log.name for log in path.parent.iterdir() if log.suffix in _LOG_ENDINGS)
    except OSError:
        return ""
    return f" There are: {', '.join(names[:5])}." if names else ""


def _inside(path: Path) -> str:
    return _beside(path / "-") if path.is_dir() else ""


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
    others = sorted(_name(user) for user in users - {os.getuid()})
    return f" {', '.join(others)} may have one too: add the host as them." if others else ""


def _plain(names: Iterable[str]) -> list[str]:
    """Those that are plain, each once, sorted."""
    return sorted({name for name in names if _PLAIN.fullmatch(name)})


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(text[text.rfind(")") + 2 :].split()[1])


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _me() -> str:
    return _name(os.getuid())


def _here() -> str:
    return os.uname().nodename


_EXAMINERS = {"log": _log, "pid": _pid, "tmux": _tmux, "screen": _screen}
