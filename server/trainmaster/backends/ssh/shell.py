"""Run commands through any login shell, whatever it prints.

The wire format is `/bin/sh -c SCRIPT sh A B … FOLDER COMMAND…`. The script prints A and B joined,
which a shell that echoes its commands does not, and its pid: the command's output begins there.
Words that a login shell would change, and long commands, are sent before the command's standard
input instead, as one line (the letter) that the script reads.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from trainer_runtime.core.protocol.figures import spoken_duration
from trainer_runtime.core.protocol.text import shown
from trainmaster.errors.errors import HostError, UsageError

TIMED_OUT = 124
_BY_SIGNAL = 128
# sshd hands the line to the shell as one argument; Linux takes 131,072 bytes of one.
_LONGEST_LINE_BYTES = 100_000
_KEPT_NOISE_BYTES = 1 << 16
_LONGEST_PID = 10
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
    """Removes what precedes a command's own output or errors.

    `pid`: the command's pid, None until the marker has arrived.
    """

    def __init__(self, marker: bytes) -> None:
        self.pid: int | None = None
        self.noise = b""
        self._marker = marker + b" "

    def take(self, data: bytes) -> bytes | None:
        """The command's own part of `data`; None before the marker."""
        self.noise += data
        begin = self.noise.find(self._marker)
        end = self.noise.find(b"\n", begin)
        if begin < 0 or end < 0:
            self.noise = self.noise[-_KEPT_NOISE_BYTES:]
            return None
        pid = self.noise[begin + len(self._marker) : end]
        self.pid = int(pid) if pid.isdigit() and len(pid) <= _LONGEST_PID else None
        own, self.noise = self.noise[end + 1 :], self.noise[:begin]
        return own


def frame(command: Sequence[str], folder: str | None) -> Framed:
    """The command in wire format.

    Raises:
        UsageError: `UNSAFE_NAME`, a word can't be an argument.
    """
    halves = ("tm", secrets.token_hex(8))
    entered = folder if folder is None or folder.startswith("/") else f"./{folder}"
    words = [wire_bytes(word) for word in (entered or "", *command)]
    called = ["/bin/sh", "-c", _SCRIPT, "sh", *halves]
    marker = "".join(halves).encode()
    line = _line([*(word.encode() for word in called), b"", *words])
    # No quoting makes tcsh pass a newline like the others do.
    if len(line) <= _LONGEST_LINE_BYTES and not any(b"\n" in word for word in words):
        return Framed(line, b"", marker)
    letter = b" ".join(_quoted(word) for word in words)
    return Framed(command_line([*called, "letter"]).encode(), letter + b"\n", marker)


def command_line(arguments: Sequence[str]) -> str:
    """The words quoted for sh, bash, dash, zsh, fish and tcsh; newlines not for tcsh.

    Raises:
        UsageError: `UNSAFE_NAME`, a word can't be an argument.
    """
    line = _line([wire_bytes(argument) for argument in arguments])
    return line.decode("utf-8", "surrogateescape")


def wire_bytes(text: str) -> bytes:
    """A word or path as bytes: UTF-8, or the bytes that the machine sent.

    Raises:
        UsageError: `UNSAFE_NAME`, it can't be encoded.
    """
    try:
        encoded = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise UsageError(
            "UNSAFE_NAME",
            f"{text[:100]!r} contains characters that arguments and paths can't contain.",
            "Remove zero bytes and lone surrogates.",
        )
    return encoded


def exit_code(status: int | None, signal_name: str | None) -> int | None:
    """The exit code as shells report it; None if the machine reported none."""
    if signal_name is not None:
        number = getattr(signal, f"SIG{signal_name}", signal.SIGKILL)
        return _BY_SIGNAL + int(number)
    return status


def kill_command(pid: int) -> list[str]:
    """The command that kills a process; some machines have `kill` only as a shell builtin."""
    return ["/bin/sh", "-c", _KILL, "sh", str(pid)]


def no_answer(timeout_s: float) -> str:
    """The error text of a command that did not end in time."""
    return f"no answer within {spoken_duration(timeout_s)}"


def shell_unusable(name: str, noise: bytes) -> HostError:
    """The error for a login shell that ends before the command begins; `noise`: its output."""
    lines = [shown(line).strip() for line in noise.splitlines()]
    output = " ".join(line for line in lines if line)[-300:]
    return HostError(
        "SHELL_UNUSABLE",
        f"The login shell of {name} runs no command; "
        + (f"it printed: {output}" if output else "it printed nothing."),
        "Log in by hand and check that `ssh HOST true` works; set a standard shell for the user.",
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
    """A word for the script's `eval`, on one line: `$n` is a newline."""
    return b"'" + word.replace(b"'", b"'\\''").replace(b"\n", b"'\"$n\"'") + b"'"
