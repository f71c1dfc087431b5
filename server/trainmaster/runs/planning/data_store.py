"""Lists the sources that lie in object stores; what they hold is fetched by the host.

A process of this interpreter asks, with fsspec and a store's own client: where those are not
installed, or this machine has no keys, the host lists the objects itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, Fields, decode_fields
from trainer_runtime.core.files.corpus import AskedSource, CorpusFile, Listing
from trainer_runtime.core.inputs.object_store import StoreAddress, own_variables
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import PlanError
from trainmaster.home.assets import find_assets
from trainmaster.plan.corpus_facts import StoreFiles, revision_of
from trainmaster.runs.planning.data_hub import (
    CHECKED_BYTES,
    FetchedListing,
    compression_by_name,
    with_begin,
)
from trainmaster.store.detached import SAFELY

_MODULE = "trainer_runtime.train.data.list_store"
_WITHIN_S = 25
_LONGEST_REASON = 300
_CODES = {"refused": "STORE_REFUSED", "missing": "STORE_NOT_FOUND"}


async def list_store(
    address: StoreAddress,
    asked: AskedSource,
    field: str,
    *,
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
) -> FetchedListing:
    """A source's objects; without a list where this machine can't ask for one.

    `variables`: the spec's `env`; `secrets`: the run's, by name. `field`: named in errors.

    Raises:
        PlanError: `STORE_NOT_FOUND`, `STORE_REFUSED`.
    """
    keys, named = own_variables(address, secrets), own_variables(address, variables)
    environment = {**_of_this_machine(address, named), **named, **keys}
    answer = await _ask(address, asked.format, environment)
    obstacle, reason = answer.find_text("obstacle"), answer.find_text("reason") or ""
    # Keys of this machine's own may have fewer rights than the host's.
    if obstacle == "missing" or (obstacle == "refused" and keys):
        raise PlanError(
            _CODES[obstacle],
            f"`{field}` is {asked.path!r}: {cleaned(reason, _LONGEST_REASON)}.",
            f"Check the name, the endpoint and the keys ({', '.join(address.store.keys)} under "
            "secrets); for a single object give its whole key.",
            field=field,
        )
    if obstacle is not None:
        return _listed_by_host(address, asked, cleaned(reason, _LONGEST_REASON))
    problem = answer.find_text("problem")
    if problem is not None:
        return FetchedListing(Listing(asked.path, problem=cleaned(problem, _LONGEST_REASON)))
    return await _listed(answer, asked)


def _of_this_machine(address: StoreAddress, named: Mapping[str, str]) -> dict[str, str]:
    """This machine's environment; without its keys where a spec names another server or account,
    which would be shown them."""
    own = dict(os.environ)
    if all(own.get(name) == value for name, value in named.items()):
        return own
    keys = own_variables(address, own)
    return {name: value for name, value in own.items() if name not in keys}


async def _listed(answer: Fields, asked: AskedSource) -> FetchedListing:
    rows = answer.rows("objects", "name", "size_bytes", "etag")
    files = tuple((row.text("name"), row.integer("size_bytes")) for row in rows)
    etags = tuple(row.text("etag") for row in rows)
    listing = Listing(
        answer.text("root"),
        is_folder=True,
        files=tuple(CorpusFile(name, size, 0) for name, size in files),
        compression=compression_by_name(name for name, _ in files),
    )
    revision = revision_of([asked.path, asked.format, *zip(files, etags, strict=True)])
    fetched = StoreFiles(
        url=asked.path, revision=revision, format=asked.format, files=files, etags=etags
    )
    begin = base64.b64decode(answer.text("begin"))
    return FetchedListing(await in_thread(with_begin, listing, asked, begin), fetched)


def _listed_by_host(address: StoreAddress, asked: AskedSource, reason: str) -> FetchedListing:
    revision = revision_of([asked.path, asked.format, time.time_ns()])
    files = StoreFiles(url=asked.path, revision=revision, format=asked.format, unlisted=reason)
    return FetchedListing(Listing(str(address), is_folder=True), files)


async def _ask(address: StoreAddress, data_format: str, environment: Mapping[str, str]) -> Fields:
    """The answer of a process, which does not survive."""
    runtime = str(find_assets().runtime.parent)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *SAFELY, "-m", _MODULE),
        env={**environment, "PYTHONPATH": runtime},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    request = {"url": str(address), "format": data_format, "first_bytes": CHECKED_BYTES}
    try:
        async with asyncio.timeout(_WITHIN_S):
            output, _ = await process.communicate(json.dumps(request).encode())
    except TimeoutError:
        return _obstacle(f"{address}: no answer within {_WITHIN_S} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        return _obstacle(f"{address}: listing it ended with exit code {process.returncode}")
    return decode_fields(output, "the list of objects", max_bytes=MAX_DOCUMENT_BYTES)


def _obstacle(reason: str) -> Fields:
    return decode_fields(json.dumps({"obstacle": "unreachable", "reason": reason}), "the answer")
