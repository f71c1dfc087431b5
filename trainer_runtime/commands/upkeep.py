"""Commands that tidy, copy and notify."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainer_runtime.commands.command import (
    CACHE,
    Argument,
    Command,
    Options,
    print_answer,
    run_folder,
)
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES


def _collect(options: Options) -> int:
    from trainer_runtime.host.answer.gc import collect

    named = sys.stdin.read() if options.named else ""
    cache, runs = Path(options.cache), Path(options.runs)
    return print_answer(collect(cache, runs, named, dry_run=options.dry_run).to_dict())


def _try_folder(options: Options) -> int:
    from trainer_runtime.host.answer.try_folder import try_folder

    return print_answer(try_folder(Path(options.path), write=options.write))


def _try_image(options: Options) -> int:
    from trainer_runtime.core.config import RunConfig
    from trainer_runtime.host.answer.ask_image import check

    asked = decode_fields(sys.stdin.read(), "standard input", max_bytes=MAX_DOCUMENT_BYTES)
    config = RunConfig.parse(asked.section("config").values)
    return print_answer(check(config, asked.texts("lines"), Path(options.cache)).to_dict())


def _remove(options: Options) -> int:
    from trainer_runtime.core.files.durable import remove_tree

    return print_answer({"freed_bytes": remove_tree(Path(options.path))})


def _mirror(options: Options) -> int:
    run = run_folder(options)
    if options.destination.startswith(STORES):
        from trainer_runtime.host.prepare.store_mirror import mirror_to_store

        return mirror_to_store(run, options.destination, options.name)
    from trainer_runtime.host.checkpoints import copy

    return copy.main(run, Path(options.destination), options.name)


def _lease(options: Options) -> int:
    from trainer_runtime.host.lease import timer

    root = Path(os.path.realpath(options.root))
    if options.start:
        return print_answer(timer.ensure_timer(root).to_dict())
    return print_answer(timer.timer_status(root).to_dict()) if options.report else timer.keep(root)


def _alert(options: Options) -> int:
    from trainer_runtime.host.alerts import post

    return post.main()


COMMANDS = {
    "gc": Command(
        "remove from the cache what no run uses",
        _collect,
        (
            CACHE,
            Argument.of("runs"),
            Argument.of("--dry-run", action="store_true", help="only report"),
            Argument.of("--named", action="store_true", help="what standard input names stays too"),
        ),
    ),
    "try": Command(
        "whether a folder can be written",
        _try_folder,
        (
            Argument.of("--write", action="store_true", help="by writing there, for a moment"),
            Argument.of("path"),
        ),
    ),
    "try-image": Command(
        "whether a run could train in its image, as standard input describes it",
        _try_image,
        (CACHE,),
    ),
    "remove": Command(
        "remove a file or folder, and report the bytes freed", _remove, (Argument.of("path"),)
    ),
    "mirror": Command(
        "copy checkpoints to another disk, or to an object store",
        _mirror,
        (Argument.of("run"), Argument.of("destination"), Argument.of("name", nargs="*")),
    ),
    "lease": Command(
        "keep the lease of the instance that a root is on, and end the instance with it",
        _lease,
        (
            Argument.of("root"),
            Argument.of("--start", action="store_true", help="make sure that one does, detached"),
            Argument.of("--report", action="store_true", help="only report its status"),
        ),
    ),
    "alert": Command("post a message that standard input describes", _alert, ()),
}
