"""The command line: one small file per group of commands.

A command line imports the module of its command alone, and services are imported inside the
commands: `--help`, `status` and a refused command line come at once.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence

import typer

from trainer_runtime.core.files.private import make_private
from trainer_runtime.core.protocol.command import command
from trainmaster.cli.at_home import at_home
from trainmaster.cli.command_table import commands_for
from trainmaster.cli.output import emit_error
from trainmaster.errors.advice import Face, for_face, shown_by
from trainmaster.errors.errors import InternalError, TrainmasterError, UsageError, unusable_path
from trainmaster.home.own_program import command_line
from trainmaster.home.run_names import meaning_of, names_meant

DEBUG_VARIABLE = "TRAINMASTER_DEBUG"
INTERRUPTED = 130
# Set by a shell that asks for completions; what was typed is in others then.
_COMPLETING = "_TRAINMASTER_COMPLETE"
# The command without a word, and the options that don't make it another.
_ALONE = "overview"
_OF_EVERY = frozenset({"--json"})
_INTERRUPTED = f"Interrupted; the training continues. See {command('runs')}."


def main() -> None:
    """The `trainmaster` command; all that it creates in the home is its user's alone."""
    make_private()
    gc.freeze()  # what is imported stays
    try:
        code = run(sys.argv[1:])
    finally:
        gc.freeze()  # else the collection at exit walks all that was imported: 0.1 s
    sys.exit(code)


def run(arguments: Sequence[str], commands: typer.Typer | None = None) -> int:
    """Run one command line; its exit code: 0, 1 for an error, 2 for bad usage, 130 for Ctrl-C."""
    _write_utf8()
    as_json = "--json" in arguments
    try:
        shell = dict(os.environ)
        with at_home(arguments) as typed, shown_by(Face(command_line(os.environ, shell=shell))):
            with names_meant() as meant:
                code = _answered(typed, commands, as_json)
            for name, run_name in meant.items():
                print(meaning_of(name, run_name), file=sys.stderr)
            if code == INTERRUPTED:
                print(for_face(_INTERRUPTED), file=sys.stderr)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends; that must find somebody to take it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _answered(typed: Sequence[str], commands: typer.Typer | None, as_json: bool) -> int:
    """The exit code of what was typed, once it is answered."""
    try:
        _refuse_undecodable(typed)
        words = _with_default(typed) if commands is None else list(typed)
        return _run(commands or commands_for(words), words)
    except TrainmasterError as error:
        emit_error(error, as_json)
        return 2 if error.code == "BAD_ARGUMENT" else 1


def _with_default(words: Sequence[str]) -> list[str]:
    """What was typed; `overview` where no command was, and no shell asks."""
    if _COMPLETING in os.environ or any(word not in _OF_EVERY for word in words):
        return list(words)
    return [_ALONE, *words]


def _run(commands: typer.Typer, arguments: list[str]) -> int:
    """Raises: TrainmasterError, for whatever goes wrong; BrokenPipeError."""
    try:
        return commands(arguments, prog_name="trainmaster", standalone_mode=False) or 0
    except (TrainmasterError, BrokenPipeError):
        raise
    except typer.TyperException as error:
        raise _bad_usage(error) from error
    except typer.Abort as error:
        raise UsageError("BAD_ARGUMENT", "Not confirmed; nothing was done.", "Answer y.") from error
    except Exception as error:
        if (refused := unusable_path(error)) is not None:
            raise refused from error
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        raise _defect(error) from error


def _refuse_undecodable(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in argument):
            raise UsageError(
                "BAD_ARGUMENT",
                f"The argument {argument[:80]!r} is not UTF-8, or holds a zero byte.",
                "Write it in UTF-8; rename a file whose name is not.",
            )


def _bad_usage(error: typer.TyperException) -> UsageError:
    context: typer.Context | None = getattr(error, "ctx", None)
    path = context.command_path.partition(" ")[2] if context else ""
    return UsageError("BAD_ARGUMENT", error.format_message(), f"See {command(path, '--help')}.")


def _defect(error: Exception) -> InternalError:
    return InternalError(
        "INTERNAL",
        f"Trainmaster failed with {type(error).__name__}.",
        f"Run it again with {DEBUG_VARIABLE}=1 for the traceback, and report that.",
    )


def _write_utf8() -> None:
    """Whatever the locale says: JSON is UTF-8, and a name's letter must not end a command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
