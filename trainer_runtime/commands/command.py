"""What a command of the host's program is: help, arguments, and the function that runs it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Options = argparse.Namespace


class Argument(NamedTuple):
    """One of a command's arguments, as `argparse` takes it."""

    name: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, name: str, **settings: Any) -> Argument:
        """Its `settings` as keywords of `argparse.ArgumentParser.add_argument`."""
        return cls(name, settings)


class Command(NamedTuple):
    """`run` returns the exit code; what it needs it imports itself, since most runs need little."""

    help: str
    run: Callable[[Options], int]
    arguments: tuple[Argument, ...]


RUN = Argument.of("run", nargs="?", default=".")
CACHE = Argument.of("cache")


def run_folder(options: Options) -> Path:
    """Of the run that the command names."""
    return Path(os.path.realpath(options.run))


def print_answer(answer: object, code: int = 0) -> int:
    """Print `answer` as one line of JSON; `code`."""
    print(json.dumps(answer))
    return code
