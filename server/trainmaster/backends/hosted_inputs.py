"""Examines data, models and tokenizers on a machine.

What an answer becomes is imported where it is read: most commands ask for none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trainer_runtime.core.decoding import Fields
from trainer_runtime.core.protocol.command import command
from trainmaster.backends.capabilities import InputExaminer
from trainmaster.backends.hosts.host import Host
from trainmaster.backends.hosts.runtime_call import Failure, Parsed, RuntimeCall, runtime_call

if TYPE_CHECKING:
    from trainer_runtime.core.files.corpus import AskedSource, Listing
    from trainer_runtime.core.files.model_folder import ModelFolder
    from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder

_TIMEOUT_S = 600.0


class HostedInputs(InputExaminer):
    """The inputs of `_host`."""

    _host: Host

    async def list_corpus(self, asked: Sequence[AskedSource]) -> Sequence[Listing]:
        sources = json.dumps([source.to_dict() for source in asked])
        return await self._ask("corpus", ["--asked", sources], _listings)

    async def has_shards(self, fingerprint: str) -> bool:
        arguments = ["--cache", await self._host.cache(), "--fingerprint", fingerprint]
        return await self._ask("corpus", arguments, lambda answer: answer.flag("cached"))

    async def examine_model(self, path: str) -> ModelFolder:
        from trainer_runtime.core.files.model_folder import ModelFolder

        arguments = ["--", "model", path]
        return await self._ask("input", arguments, ModelFolder.of)

    async def examine_tokenizer(self, path: str) -> TokenizerFolder:
        from trainer_runtime.core.files.tokenizer_folder import TokenizerFolder

        arguments = ["--", "tokenizer", path]
        return await self._ask("input", arguments, TokenizerFolder.of)

    async def cached_from_hub(self, name: str, revision: str | None) -> str | None:
        options = ["--revision", revision] if revision else []
        arguments = [*options, "--", "cached", name]
        return await self._ask("input", arguments, lambda answer: answer.find_text("path"))

    async def _ask(
        self, verb: str, arguments: Sequence[str], parse: Callable[[Fields], Parsed]
    ) -> Parsed:
        failure = Failure(
            f"{self._host.name} could not list its data and models",
            f"{command('hosts check', self._host.name)} finds the cause.",
        )
        call = RuntimeCall(verb, arguments, failure, _TIMEOUT_S)
        return await runtime_call(self._host, call, parse)


def _listings(answer: Fields) -> list[Listing]:
    from trainer_runtime.core.files.corpus import Listing

    return [Listing.of(item) for item in answer.sections("listed")]
