"""Asking a machine what data, models and tokenizers it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from trainer_runtime.core.files.corpus import AskedSource, Listing
from trainmaster.backends.hosts.host import Host
from trainmaster.words.errors import HostError

_TIMEOUT_S = 600.0


async def list_corpus(host: Host, asked: Sequence[AskedSource]) -> list[Listing]:
    """The documents at each of these paths of the machine.

    Raises:
        HostError: it can't be asked.
    """
    told = await _ask(host, "corpus", ["--asked", json.dumps([one.to_list() for one in asked])])
    return [Listing.from_dict(item) for item in told["listed"]]


async def has_shards(host: Host, fingerprint: str) -> bool:
    """Whether the machine's cache holds the shards of a fingerprint, whole.

    Raises:
        HostError: it can't be asked.
    """
    told = await _ask(host, "corpus", ["--cache", await host.cache(), "--fingerprint", fingerprint])
    return bool(told["cached"])


async def examine_input(host: Host, kind: str, name: str, revision: str | None) -> dict[str, Any]:
    """A model's or a tokenizer's folder of the machine, or its cache of the hub.

    Raises:
        HostError: it can't be asked.
    """
    at = ["--revision", revision] if revision else []
    return await _ask(host, "input", [*at, "--", kind, name])


async def _ask(host: Host, command: str, arguments: Sequence[str]) -> dict[str, Any]:
    done = await host.run(
        [await host.python(), "-m", "trainer_runtime", command, *arguments],
        folder=await host.runtime(),
        timeout_s=_TIMEOUT_S,
    )
    try:
        told: dict[str, Any] = json.loads(done.output)
    except ValueError as error:
        last = (done.errors or done.output).strip()[-300:] or f"exit code {done.code}"
        raise HostError(
            "INTERNAL",
            f"{host.name} could not say what data it has: {last}",
            f"`trainmaster hosts check {host.name}` looks for the cause.",
            retryable=True,
        ) from error
    return told
