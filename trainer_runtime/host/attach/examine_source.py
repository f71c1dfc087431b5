"""Resolves the log, pane, session or process that is to be watched on this machine.

Answers with the source as a run's config holds it, or with why it can't be watched and what its
owner can do about that.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Any

from trainer_runtime.core.diagnosis.pattern_example import EXAMPLE
from trainer_runtime.core.files.protected import is_protected
from trainer_runtime.core.inputs.carriers import carrier_of
from trainer_runtime.core.protocol.command import command
from trainer_runtime.core.protocol.log_text import JUDGED_BYTES, is_binary
from trainer_runtime.host.attach.examine_terminal import (
    examine_pane,
    examine_screen,
    examine_tmux,
    pane_of,
)
from trainer_runtime.host.attach.first_reading import first_reading
from trainer_runtime.host.attach.source_refusal import (
    RefusedError,
    account,
    account_of,
    plain,
    this_host,
)
from trainer_runtime.host.processes.identity import ProcessIdentity, identify
from trainer_runtime.host.processes.open_files import (
    OpenFile,
    open_file,
    open_files,
    readers_of_pipe,
    writers,
)

_TAIL_BYTES = 1 << 16
_STDERR = 2
_DELETED = " (deleted)"  # behind the name that the link in /proc had
_LOG_ENDINGS = (".log", ".txt", ".out", ".err", ".jsonl")


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
        f"{this_host()}.",
        "Take a line of the log and replace its numbers by their names, as in "
        f"`{EXAMPLE}`; leave out what differs from line to line, or write {{any}} for it.",
    )


def _refuse_secrets(path: str | None, root: str | None) -> None:
    if path is not None and is_protected(Path(path), [Path(root)] if root else []):
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {this_host()} holds secrets, keys or settings of Trainmaster.",
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
            f"No process {target} runs on {this_host()}.",
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
        pane = pane_of(process.pid, output.path)
        if pane is not None:
            return {**examine_pane(pane), "processes": [process.to_dict()]}
        raise _nowhere(process.pid, f"writes to the terminal {output.path}, in no tmux or screen")
    raise _nowhere(process.pid, "writes into a socket")


def _deleted(pid: int, output: OpenFile) -> RefusedError:
    link = f"/proc/{pid}/fd/{output.descriptor}"
    return RefusedError(
        "LOG_NOT_READABLE",
        f"Process {pid} on {this_host()} writes to {output.path.removesuffix(_DELETED)}, which was "
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
            f"There is no {path} on {this_host()}.{_beside(path)}",
            "Give the path of the log that the training writes, absolute or below your home "
            "there; `readlink /proc/PID/fd/1` names it for a process.",
        )
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {this_host()} is {what}.{_inside(path)}",
            "Give the path of the log itself: a file that only grows.",
        )
    if not os.access(path, os.R_OK):
        raise _closed(path, "r--", "the log")
    with path.open("rb") as file:
        head = file.read(JUDGED_BYTES)
    if (carrier := carrier_of(head)) is not None:
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {this_host()} wraps a log in {carrier.removeprefix('a ')}, which can't be "
            "followed.",
            "Follow its text: in tmux, as `docker logs -f NAME > FILE` or as the program's own "
            f"log. {command('diagnose', 'FILE')} reads such a file whole.",
        )
    if is_binary(head):
        raise RefusedError(
            "LOG_NOT_READABLE",
            f"{path} on {this_host()} is not text: it holds binary data.",
            "Give the path of the text that the training prints; metrics can't be read from "
            "anything else.",
        )


def _closed(path: Path, right: str, what: str) -> RefusedError:
    owner = account_of(path.stat().st_uid)
    letter = right.strip("-")
    quoted = shlex.quote(str(path))
    return RefusedError(
        "LOG_NOT_READABLE",
        f"{what.capitalize()} {path} belongs to {owner} on {this_host()}, and {account()} may not "
        "read it.",
        f"As {owner} there: `setfacl -m u:{account()}:{letter} {quoted}`, or, to let everybody, "
        f"`chmod o+{letter} {quoted}`; or add the host again as {owner}@….",
    )


def _not_owner(pid: int) -> RefusedError:
    owner = account_of(os.stat(f"/proc/{pid}").st_uid)
    return RefusedError(
        "NOT_OWNER",
        f"Process {pid} on {this_host()} belongs to {owner}; {account()} may not see where it "
        "writes.",
        f"As {owner} there: `readlink /proc/{pid}/fd/1` names its log, `chmod o+r LOG` opens it; "
        f"then attach to that log. Or add the host again as {owner}@….",
    )


def _nowhere(pid: int, what: str) -> RefusedError:
    written = plain(
        file.path
        for file in open_files(pid)
        if file.is_regular and file.writes and file.path.endswith(_LOG_ENDINGS)
    )
    also = f" It also has open: {', '.join(written[:3])}." if written else ""
    return RefusedError(
        "LOG_NOT_READABLE",
        f"Process {pid} on {this_host()} {what}: there is nothing to follow.{also}",
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
        names = plain(log.name for log in path.parent.iterdir() if log.suffix in _LOG_ENDINGS)
    except OSError:
        return ""
    return f" There are: {', '.join(names[:5])}." if names else ""


def _inside(path: Path) -> str:
    return _beside(path / "-") if path.is_dir() else ""


_EXAMINERS = {"log": _log, "pid": _pid, "tmux": examine_tmux, "screen": examine_screen}
