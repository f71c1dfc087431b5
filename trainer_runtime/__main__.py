"""`python3 -m trainer_runtime COMMAND`: commands that client and `train.sh` call on the host."""

from __future__ import annotations

import argparse
import gc
import sys

from trainer_runtime.commands import answers, scheduler, supervision, upkeep
from trainer_runtime.core.files.private import make_private

# Most commands end before they could collect anything, and the rest collect a few MB later.
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
# They inherit the one of their parent: a supervisor that `start` began, which is private, or
# a Kaggle session and train.sh, whose files are for others to read.
_KEEP_UMASK = ("supervise", "session", "hold", "prepare", "train", "ranks", "mirror", "seal")
COMMANDS = {
    **supervision.COMMANDS,
    **scheduler.COMMANDS,
    **answers.COMMANDS,
    **upkeep.COMMANDS,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words).parse_args(words)
    if options.command not in _KEEP_UMASK:
        make_private()
    return COMMANDS[options.command].run(options)


def _parser(words: list[str]) -> argparse.ArgumentParser:
    """Of the command that is named alone where one is: all of them take longer than most run."""
    named = [name for name in words[:1] if name in COMMANDS]
    parser = argparse.ArgumentParser(prog="trainer_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in named or COMMANDS:
        added = commands.add_parser(name, help=COMMANDS[name].help)
        for argument in COMMANDS[name].arguments:
            added.add_argument(argument.name, **argument.settings)
    return parser


if __name__ == "__main__":
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    code = main()
    gc.freeze()  # else the collection at exit walks all that was imported
    sys.exit(code)
