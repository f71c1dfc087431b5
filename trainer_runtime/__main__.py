"""`python3 -m trainer_runtime COMMAND`: what the operator's side and `train.sh` call on the box."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "prepare":
        from trainer_runtime.box import prepare

        return prepare.main(options.config)
    if options.command == "facts":
        from trainer_runtime.box.facts import examine

        print(json.dumps(examine(Path(options.root))))
        return 0
    if options.command == "remove":
        from trainer_runtime.core.durable import remove_tree

        print(json.dumps({"freed_bytes": remove_tree(Path(options.path))}))
        return 0
    folder = Path(options.run).resolve()
    if options.command == "supervise":
        from trainer_runtime.box.start import supervise

        return supervise(folder)
    if options.command == "start":
        from trainer_runtime.box.start import start_detached

        answer = start_detached(folder)
        print(json.dumps(answer))
        return 1 if "error" in answer else 0
    if options.command == "hold":
        from trainer_runtime.box.hold import hold

        return hold(folder, options.attempt)
    from trainer_runtime.box.verify import verify_checkpoints

    print(json.dumps(verify_checkpoints(folder)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trainer_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("prepare", help="build the data's shards into the cache")
    prepare.add_argument("config")
    facts = commands.add_parser("facts", help="what this machine has to offer a training")
    facts.add_argument("root")
    remove = commands.add_parser("remove", help="remove a file or folder, and tell what that freed")
    remove.add_argument("path")
    for name, text in (
        ("supervise", "supervise a run in the foreground"),
        ("start", "make sure that a supervisor runs, detached"),
        ("verify", "read every byte of every checkpoint and tell what is damaged"),
    ):
        commands.add_parser(name, help=text).add_argument("run", nargs="?", default=".")
    hold = commands.add_parser("hold", help="run one attempt's trainer (the supervisor calls it)")
    hold.add_argument("run")
    hold.add_argument("attempt", type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())
