"""What a further node of a job is asked before anything starts: connections, versions, GPUs."""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Mapping
from typing import TextIO

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.processes.reaching import Peer
from trainer_runtime.host.answer import reach
from trainer_runtime.host.answer.facts import gpu_names
from trainer_runtime.host.nodes.unauthenticated import MOST_UNAUTHENTICATED

LONGEST_SKEW_S = 5.0


def meet(asked: TextIO, answers: TextIO) -> int:
    """Connect to the job's first node, and say what came of it and what has to be the same on all;
    once all nodes have, connect to each of the others, as they do; the exit code."""
    with socket.create_server(("", 0), backlog=MOST_UNAUTHENTICATED) as listener:
        request = decode_fields(asked.readline(), "standard input")
        name, nonce, within_s = (
            request.text("node"),
            request.text("nonce"),
            request.number("within_s"),
        )
        candidates, port = request.texts("addresses"), request.integer("port")
        connection = reach.connect(name, candidates, port, nonce, within_s)
        _answer(answers, {**connection, "port": listener.getsockname()[1], **alike()})
        line = asked.readline()
        if line:  # the first node has not ended
            others = tuple(map(Peer.of, decode_fields(line, "standard input").sections("others")))
            unreached = reach.reach_from(listener, name, others, nonce, within_s)
            _answer(answers, {"unreached": unreached})
    return 0


def _answer(answers: TextIO, answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


def alike() -> Mapping[str, str]:
    """What the nodes of a training have to have in common, by its name in sentences."""
    version = platform.python_version().rpartition(".")[0]
    return {"Python": version, "GPUs": ", ".join(gpu_names()) or "none"}
