"""Examines data, models and tokenizers on a machine.

What an answer becomes is imported where it is read: most commands ask for none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, Parsed, RuntimeCall, runtime_call

if TYPE_CHECKING:
    from trainer_runtime.core.files.corpus import AskedSource, Listing
    from trainer_runtime.core.files.model_folder import ModelFolder
    from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder

_TIMEOUT_S = 600.0


async def list_corpus(host: Host, asked: Sequence[AskedSource]) -> list[Listing]:
    """The documents at each of these paths of the machine.

    Raises:
        HostError: no usable answer.
    """
    sources = json.dumps([source.to_dict() for source in asked])
    return await _ask(host, "corpus", ["--asked", sources], _listings)


async def has_shards(host: Host, fingerprint: str) -> bool:
    """Whether the machine's cache holds the shards of a fingerprint, whole.

    Raises:
        HostError: no usable answer.
    """
    arguments = ["--cache", await host.cache(), "--fingerprint", fingerprint]
    return await _ask(host, "corpus", arguments, lambda answer: answer.flag("cached"))


async def examine_model(host: Host, path: str) -> ModelFolder:
    """The model in a folder of the machine.

    Raises:
        HostError: no usable answer.
    """
    from trainer_runtime.core.files.model_folder import ModelFolder

    arguments = ["--", "model", path]
    return await _ask(host, "input", arguments, lambda answer: ModelFolder.from_dict(answer.values))


async def examine_tokenizer(host: Host, path: str) -> TokenizerFolder:
    """The tokenizer in a folder of the machine.

    Raises:
        HostError: no usable answer.
    """
    from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder

    arguments = ["--", "tokenizer", path]
    return await _ask(
        host, "input", arguments, lambda answer: TokenizerFolder.from_dict(answer.values)
    )


async def cached_from_hub(host: Host, name: str, revision: str | None) -> str | None:
    """The folder of a model in the machine's cache of the hub; None where it has none.

    Raises:
        HostError: no usable answer.
    """
    options = ["--revision", revision] if revision else []
    return await _ask(host, "input", [*options, "--", "cached", name], _path)


def _listings(answer: Fields) -> list[Listing]:
    from trainer_runtime.core.files.corpus import Listing

    return [Listing.from_dict(dict(item.values)) for item in answer.sections("listed")]


def _path(answer: Fields) -> str | None:
    return answer.find_text("path")


async def _ask(
    host: Host, verb: str, arguments: Sequence[str], parse: Callable[[Fields], Parsed]
) -> Parsed:
    failure = Failure(
        f"{host.name} could not list its data and models",
        f"{command('hosts check', host.name)} finds the cause.",
    )
    call = RuntimeCall(verb, arguments, failure, _TIMEOUT_S)
    return await runtime_call(host, call, parse)
