"""Commands that act: each call gets a line in the home's action log."""

from __future__ import annotations

import functools
import getpass
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


def acts(
    action: str,
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Mark a command as one that acts. `action`: what the log calls it.

    A dry run, a declined question and a tick without work get no line.
    """

    def decorate(command: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @functools.wraps(command)
        def logged(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
            from trainmaster.store.action_log import Face, discard_action, logged_action
            from trainmaster.store.private_home import open_home

            face: Face = "keeper" if action == "tick" and kwargs.get("every") else "cli"
            left: typer.Exit
            with logged_action(open_home(os.environ), face, _client(), action, kwargs):
                if kwargs.get("dry_run") or kwargs.get("only_print"):
                    discard_action()
                try:
                    return command(*args, **kwargs)
                except typer.Abort:
                    discard_action()
                    raise
                except typer.Exit as ended:  # the command's exit code, no failure of its own
                    left = ended
            raise left

        return logged

    return decorate


def _client() -> str:
    """The user, and whether a person or a program typed the command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user} ({'terminal' if sys.stdin.isatty() else 'program'})"
