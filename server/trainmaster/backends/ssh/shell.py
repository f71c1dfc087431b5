"""Commands through a login shell, whichever it is and whatever it prints.

What goes over the wire is `/bin/sh -c SCRIPT sh A B … FOLDER COMMAND…`. The script prints A and B
joined, as no shell that echoes its commands would, and its process number: replies count from
there on. Words that no login shell would pass on unharmed, and too many of them, go ahead of the
command's standard input instead, as one line (the letter) that the script reads.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.text import shown
from trainmaster.words.errors import HostError, UsageError

TIMED_OUT = 124
_BY_SIGNAL = 128
# sshd hands the line to the shell as one argument; Linux takes 131,072 bytes of one.
_LONGEST_LINE_BYTES = 100_000
_KEPT_NOISE_BYTES = 1 << 16
_UNHARMED = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:-"
) | frozenset(range(0x80, 0x100))
_SCRIPT = (
    'm="$1$2 $$";l=$3;shift 3;echo "$m";echo "$m" >&2;'
    'if [ "$l" ];then IFS= read -r w;n=$(printf "\\nx");n=${n%x};eval "set -- $w";fi;'
    'f=$1;shift;if [ "$f" ];then cd "$f"||exit 126;fi;exec "$@"'
)
_KILL = 'kill -KILL "$1"'


@dataclass(frozen=True, slots=True)
class Framed:
    """A command as it is sent: `line` for the login shell, `letter` ahead of all other input."""

    line: bytes
    letter: bytes
    marker: bytes


@dataclass(frozen=True, slots=True)
class Captured:
    """A command's end, its output as bytes."""

    code: int
    output: bytes
    errors: str


class Opening:
    """What comes before a command's own output or errors, taken off as it arrives.

    `pid` is the command's process number, None until the marker has come.
    """

    def __init__(self, marker: bytes) -> None:
        self.pid: int | None = None
        self.noise = b""
        self._marker = marker + b" "

    def take(self, data: bytes) -> bytes | None:
        """The command's own part of `data`; None as long as that has not begun."""
        self.noise += data
        begin = self.noise.find(self._marker)
        end = self.noise.find(b"\n", begin)
        if begin < 0 or end < 0:
            self.noise = self.noise[-_KEPT_NOISE_BYTES:]
            return None
        self.pid = int(self.noise[begin + len(self._marker) : end])
        own, self.noise = self.noise[end + 1 :], self.noise[:begin]
        return own


def frame(command: Sequence[str], folder: str | None) -> Framed:
    """The command as it goes over the wire.

    Raises:
        UsageError: `UNSAFE_NAME` where a word can't be an argument.
    """
    halves = ("tm", secrets.token_hex(8))
    entered = folder if folder is None or folder.startswith("/") else f"./{folder}"
    words = [wire_bytes(word) for word in (entered or "", *command)]
    called = ["/bin/sh", "-c", _SCRIPT, "sh", *halves]
    marker = "".join(halves).encode()
    line = _line([*(word.encode() for word in called), b"", *words])
    # No quoting makes tcsh pass a line's end on as the others do.
    if len(line) <= _LONGEST_LINE_BYTES and not any(b"\n" in word for word in words):
        return Framed(line, b"", marker)
    letter = b" ".join(_quoted(word) for word in words)
    return Framed(command_line([*called, "letter"]).encode(), letter + b"\n", marker)


def command_line(arguments: Sequence[str]) -> str:
    """The words as sh, bash, dash, zsh, fish and tcsh all read them; lines' ends not in tcsh.

    Raises:
        UsageError: `UNSAFE_NAME` where a word can't be an argument.
    """
    line = _line([wire_bytes(argument) for argument in arguments])
    return line.decode("utf-8", "surrogateescape")


def wire_bytes(text: str) -> bytes:
    """A word or path as the machine knows it: UTF-8, or the very bytes that it once gave.

    Raises:
        UsageError: `UNSAFE_NAME` where no machine could know it.
    """
    try:
        encoded = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise UsageError(
            "UNSAFE_NAME",
            f"{text[:100]!r} holds what no argument and no path can hold.",
            "Take the zero bytes and half characters out of it.",
        )
    return encoded


def exit_code(status: int | None, signal_name: str | None) -> int | None:
    """The code by which shells tell an end; None where the machine told of none."""
    if signal_name is not None:
        number = getattr(signal, f"SIG{signal_name}", signal.SIGKILL)
        return _BY_SIGNAL + int(number)
    return status


def kill_command(pid: int) -> list[str]:
    """The command that ends another; `kill` itself is no program on every machine."""
    return ["/bin/sh", "-c", _KILL, "sh", str(pid)]


def no_answer(timeout_s: float) -> str:
    """What stands in the errors of a command that did not end in time."""
    return f"no answer within {timeout_s:.0f} s"


def shell_unusable(name: str, noise: bytes) -> HostError:
    """The error for a login shell that ends before the command begins; `noise`: all it said."""
    lines = [shown(line).strip() for line in noise.splitlines()]
    told = " ".join(line for line in lines if line)[-300:]
    return HostError(
        "SHELL_UNUSABLE",
        f"The login shell of {name} lets no command through; "
        + (f"it says: {told}" if told else "it says nothing."),
        "Log in by hand and see that `ssh HOST true` works; give the user a usual shell.",
    )


def _line(words: Sequence[bytes]) -> bytes:
    return b" ".join(_escaped(word) for word in words)


def _escaped(word: bytes) -> bytes:
    if not word:
        return b"''"
    return b"".join(
        bytes([byte]) if byte in _UNHARMED else b"'\n'" if byte == 10 else bytes([92, byte])
        for byte in word
    )


def _quoted(word: bytes) -> bytes:
    """A word for the script's `eval`, on one line: `$n` is a line's end."""
    return b"'" + word.replace(b"'", b"'\\''").replace(b"\n", b"'\"$n\"'") + b"'"
