"""Commands that report what is on the host, and change nothing there."""

from __future__ import annotations

import sys
from pathlib import Path

from trainer_runtime.commands.command import (
    CACHE,
    RUN,
    Argument,
    Command,
    Options,
    print_answer,
    run_folder,
)
from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.protocol.lines import ExitCode


def _facts(options: Options) -> int:
    from trainer_runtime.host.answer.facts import examine

    return print_answer(examine(Path(options.root), Path(options.cache) if options.cache else None))


def _left_runs(_options: Options) -> int:
    from trainer_runtime.host.answer.left_runs import left_runs

    return print_answer(left_runs(sys.stdin.read()))


def _source(options: Options) -> int:
    from trainer_runtime.host.attach.examine_source import examine_source

    return print_answer(
        examine_source(options.kind, options.target, options.begin, options.root, options.pattern)
    )


def _output(options: Options) -> int:
    from importlib.util import find_spec

    from trainer_runtime.host.environment.checkpoint_reader import become_reader

    become_reader(["output", "--", options.folder], Path(options.cache) if options.cache else None)
    if find_spec("torch") is None:
        print(f"{sys.executable} has no PyTorch", file=sys.stderr)
        return ExitCode.UNUSABLE
    from trainer_runtime.train.foreign.inspect import inspect_output

    return print_answer(inspect_output(options.folder, limited=True))


def _corpus(options: Options) -> int:
    from trainer_runtime.host.answer.examine_input import list_corpus

    return print_answer(list_corpus(options.asked, options.cache, options.fingerprint))


def _input(options: Options) -> int:
    from trainer_runtime.host.answer.examine_input import examine_input

    return print_answer(examine_input(options.kind, options.name, options.revision))


def _image(options: Options) -> int:
    from trainer_runtime.host.answer.ask_image import find

    return print_answer(find(options.name).to_dict())


def _reach(options: Options) -> int:
    from trainer_runtime.core.processes.reaching import Peer
    from trainer_runtime.host.answer import reach

    asked = decode_fields(sys.stdin.read(), "standard input")
    if options.how == "addresses":
        return print_answer(reach.addresses())
    nonce, within_s = asked.text("nonce"), asked.number("within_s")
    if options.how == "others":
        own, others = Peer.of(asked.section("own")), tuple(map(Peer.of, asked.sections("others")))
        return print_answer(reach.reach_others(own, others, nonce, within_s))
    port = asked.integer("port")
    if options.how == "listen":
        return print_answer(reach.listen(port, nonce, asked.texts("nodes"), within_s))
    name, candidates = asked.text("node"), asked.texts("addresses")
    return print_answer(reach.connect(name, candidates, port, nonce, within_s))


def _check(options: Options) -> int:
    from trainer_runtime.host.answer.check import check

    return print_answer(check(Path(options.root), Path(options.cache), options.within))


def _follow(options: Options) -> int:
    from trainer_runtime.host.answer.follow import follow

    return follow(sys.stdin.fileno(), sys.stdout.fileno())


def _files(options: Options) -> int:
    from trainer_runtime.host.answer.list_files import print_files

    return print_files(run_folder(options), options)


def _inspect(options: Options) -> int:
    from trainer_runtime.host.files.layout import RunFolder
    from trainer_runtime.host.watch.inspection import inspect, report

    run = RunFolder(run_folder(options))
    found = inspect(run, options.attempt, allow_py_spy=options.allow_py_spy)
    return print_answer(report(found).to_dict())


def _sample(options: Options) -> int:
    from trainer_runtime.core.answers.sampled import SampleRequest
    from trainer_runtime.host.answer.sample import sample

    request = SampleRequest.of(decode_fields(sys.stdin.read(), "standard input"))
    return print_answer(sample(run_folder(options), request))


def _average(options: Options) -> int:
    from trainer_runtime.core.answers.averaged import AverageRequest
    from trainer_runtime.host.answer.sample import average

    request = AverageRequest.of(decode_fields(sys.stdin.read(), "standard input"))
    return print_answer(average(run_folder(options), request))


def _verify(options: Options) -> int:
    from trainer_runtime.host.answer.verify import verify_checkpoints

    return print_answer(verify_checkpoints(run_folder(options)))


COMMANDS = {
    "facts": Command(
        "what this machine has to offer a training",
        _facts,
        (Argument.of("root"), Argument.of("cache", nargs="?")),
    ),
    "left-runs": Command(
        "which runs here a client does not know, given those that it knows", _left_runs, ()
    ),
    "source": Command(
        "find what is to be watched",
        _source,
        (
            Argument.of("--begin", choices=("start", "end"), default="start"),
            Argument.of("--root", help="the folder of this host's runs"),
            Argument.of("--pattern", help="the shape of the log's lines"),
            Argument.of("kind", choices=("log", "tmux", "screen", "pid")),
            Argument.of("target"),
        ),
    ),
    "output": Command(
        "recognise a training's output folder, and verify its checkpoints (needs PyTorch)",
        _output,
        (
            Argument.of("--cache", help="search there, too, for an interpreter that has PyTorch"),
            Argument.of("folder"),
        ),
    ),
    "corpus": Command(
        "list the documents at paths",
        _corpus,
        (
            Argument.of("--cache", help="where shards are kept"),
            Argument.of("--fingerprint", help="report whether these shards are complete"),
            Argument.of("--asked", default="[]", help="paths with format and method, as JSON"),
        ),
    ),
    "input": Command(
        "report which model or tokenizer a folder holds",
        _input,
        (
            Argument.of("--revision", help="of the hub's model"),
            Argument.of("kind", choices=("model", "tokenizer", "cached")),
            Argument.of("name"),
        ),
    ),
    "image": Command(
        "whether this machine has an image, without running anything of it",
        _image,
        (Argument.of("name"),),
    ),
    "reach": Command(
        "whether this machine and others reach one another, as standard input asks",
        _reach,
        (Argument.of("how", choices=("addresses", "listen", "connect", "others")),),
    ),
    "check": Command(
        "what stands between this machine and a training",
        _check,
        (
            Argument.of("root"),
            CACHE,
            Argument.of("--within", type=float, default=60.0, metavar="SECONDS"),
        ),
    ),
    "follow": Command("stream new data of runs' files, as standard input asks", _follow, ()),
    "files": Command(
        "list what a pattern means in a run's folder",
        _files,
        (Argument.of("run"), Argument.of("pattern")),
    ),
    "digest": Command(
        "the sha256 of 64 MiB of one of a run's files",
        _files,
        (
            Argument.of("run"),
            Argument.of("path"),
            Argument.of("chunk", type=int),
            Argument.of("size", type=int),
        ),
    ),
    "inspect": Command(
        "report where an attempt's processes are, and what blocks them",
        _inspect,
        (
            Argument.of("run"),
            Argument.of("attempt", type=int),
            Argument.of("--allow-py-spy", action="store_true", help="also read a foreign process"),
        ),
    ),
    "average": Command(
        "write the average of checkpoints, as standard input asks (needs its environment)",
        _average,
        (RUN,),
    ),
    "sample": Command(
        "let a run's model write text, as standard input asks (needs its environment)",
        _sample,
        (RUN,),
    ),
    "verify": Command("read every byte of every checkpoint and report damage", _verify, (RUN,)),
}
