"""Queries a hub of models and data sets over the HTTP API of Hugging Face's hub.

Nothing but configs and tokenizers comes here; weights and data are fetched by the machine that
trains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.protocol.text import cleaned
from trainmaster.errors.errors import PlanError
from trainmaster.settings.policy import UNBOUND, Policy

if TYPE_CHECKING:
    import httpx

DEFAULT_ENDPOINT = "https://huggingface.co"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
LARGEST_FILE_BYTES = 64 << 20
_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 10.0
_LONGEST_LICENSE = 100
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NO_HUB = "it answers what no hub answers"
_NOT_FOUND = ("RepoNotFound", "RevisionNotFound", "EntryNotFound")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model at one commit: `revision`; `files` are names and sizes; `parameters` by type of
    element, where the hub has counted them."""

    name: str
    revision: str
    files: tuple[tuple[str, int], ...]
    parameters: int | None


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A data set at one commit; `configs` and `license` are those of its card."""

    name: str
    revision: str
    files: tuple[tuple[str, int], ...]
    configs: tuple[Mapping[str, Any], ...]
    license: str | None = None


@dataclass(frozen=True, slots=True)
class Hub:
    """`token` is sent to this endpoint alone; `field`: the spec field named in errors. `policy`
    holds its redirections: the endpoint itself was checked with the spec."""

    endpoint: str
    token: str | None
    field: str
    policy: Policy = UNBOUND

    async def model(self, name: str, revision: str | None) -> HubModel:
        """The model of a name.

        Raises:
            PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`.
        """
        info = await self._info("models", name, revision)
        try:
            counted = (info.get("safetensors") or {}).get("total")
            return HubModel(name, _commit(info), _files(info), counted)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._unreachable(name, _NO_HUB) from None

    async def dataset(self, name: str, revision: str | None) -> HubDataset:
        """The data set of a name.

        Raises:
            PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`.
        """
        info = await self._info("datasets", name, revision)
        try:
            card = info.get("cardData") or {}
            configs = tuple(map(dict, card.get("configs") or []))
            return HubDataset(name, _commit(info), _files(info), configs, _license(card))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._unreachable(name, _NO_HUB) from None

    async def beginning(self, dataset: HubDataset, file: str, most_bytes: int) -> bytes:
        """The first bytes of one of a data set's files, which also shows that it may be read.

        Raises:
            PlanError: `HUB_GATED`, `HUB_UNREACHABLE`.
        """
        page = f"datasets/{dataset.name}"
        path = f"/{page}/resolve/{dataset.revision}/{quote(file)}"
        return await self._get(page, dataset.revision, path, first_bytes=most_bytes)

    async def _info(self, kind: str, name: str, revision: str | None) -> dict[str, Any]:
        if not _NAME.fullmatch(name) or (revision and not _REVISION.fullmatch(revision)):
            raise self._not_found(name, revision, "no name that the hub could have")
        path = f"/api/{kind}/{name}/revision/{quote(revision or 'main', safe='')}?blobs=true"
        page = name if kind == "models" else f"{kind}/{name}"
        content = await self._get(page, revision, path)
        try:
            return dict(decode_fields(content, page, max_bytes=MAX_DOCUMENT_BYTES).values)
        except ValueError:
            raise self._unreachable(page, _NO_HUB) from None

    async def file(self, model: HubModel, file: str) -> bytes:
        """The content of one of a model's small files.

        Raises:
            PlanError: `HUB_GATED`, `HUB_UNREACHABLE`.
        """
        path = f"/{model.name}/resolve/{model.revision}/{quote(file)}"
        return await self._get(model.name, model.revision, path)

    async def _get(
        self, name: str, revision: str | None, path: str, *, first_bytes: int | None = None
    ) -> bytes:
        """The answer; with `first_bytes`, no more of it than that."""
        import httpx

        timeout = httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}"} if self._may_have_token else {}
        if first_bytes is not None:
            headers["Range"] = f"bytes=0-{first_bytes - 1}"
        try:
            async with (
                httpx.AsyncClient(
                    timeout=timeout, follow_redirects=True, event_hooks={"request": [self._check]}
                ) as client,
                client.stream(
                    "GET", f"{self.endpoint.rstrip('/')}{path}", headers=headers
                ) as response,
            ):
                if response.status_code not in (200, 206):
                    code = response.headers.get("x-error-code", "")
                    raise self._refused(name, revision, response.status_code, code)
                content = bytearray()
                async for data in response.aiter_bytes():
                    content += data
                    if first_bytes is not None and len(content) >= first_bytes:
                        return bytes(content[:first_bytes])
                    if len(content) > LARGEST_FILE_BYTES:
                        raise self._unreachable(name, "its answer has no end")
                return bytes(content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(name, str(error) or type(error).__name__) from None

    async def _check(self, request: httpx.Request) -> None:
        """Raises:
        PolicyError: `POLICY_ENDPOINT`, the hub sends us to a server that may not be asked.
        """
        import httpx

        if request.url.netloc != httpx.URL(self.endpoint).netloc:
            self.policy.check_endpoint(str(request.url), self.field)

    def _refused(self, name: str, revision: str | None, status: int, code: str) -> PlanError:
        if status == 404 or code in _NOT_FOUND:
            return self._not_found(name, revision, "nothing that may be seen with these rights")
        if status in (401, 403):
            return self._gated(name)
        return self._unreachable(name, f"it answers {status}")

    @property
    def _may_have_token(self) -> bool:
        parts = urlsplit(self.endpoint)
        return self.token is not None and (parts.scheme == "https" or parts.hostname in _LOOPBACK)

    def _not_found(self, name: str, revision: str | None, what: str) -> PlanError:
        at = f" at {revision}" if revision else ""
        return PlanError(
            "HUB_NOT_FOUND",
            f"{self.endpoint} has {what} under {name!r}{at}.",
            "Check the name (owner/name) and the revision; for a private one list HF_TOKEN "
            "under secrets.",
            field=self.field,
        )

    def _gated(self, name: str) -> PlanError:
        rights = "The token in HF_TOKEN has no right to it" if self.token else "No token was sent"
        return PlanError(
            "HUB_GATED",
            f"{self.endpoint} doesn't give {name!r} to everybody. {rights}.",
            f"Accept its terms at {self.endpoint}/{name}, and list HF_TOKEN under secrets with a "
            "token of an account that accepted them.",
            field=self.field,
        )

    def _unreachable(self, name: str, cause: str) -> PlanError:
        return PlanError(
            "HUB_UNREACHABLE",
            f"{self.endpoint} could not be asked for {name!r}: {cause}.",
            "Try again; or give a folder instead (model.path, data.tokenizer, a source's path), or "
            'for a model set env: {HF_HUB_OFFLINE: "1"} for what the host has in its own cache.',
            retryable=True,
            field=self.field,
        )


def hub_of(
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    token: str | None,
    field: str,
    policy: Policy = UNBOUND,
) -> Hub:
    """The hub that a run with these `variables` (the spec's `env`) will ask.

    The token is sent only to the hub that this machine's own `environment` names: a spec is
    not trusted with it.
    """
    own = environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
    asked = variables.get("HF_ENDPOINT") or own
    return Hub(asked, token if asked == own else None, field, policy)


def is_offline(variables: Mapping[str, str]) -> bool:
    """Whether a run with these variables uses its machine's cache alone."""
    return variables.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")


def _license(card: Mapping[str, Any]) -> str | None:
    """A card names one licence, or several."""
    named = card.get("license")
    names = named if isinstance(named, list) else [named]
    text = ", ".join(name for name in names if isinstance(name, str))
    return cleaned(text, _LONGEST_LICENSE) or None


def _commit(info: Mapping[str, Any]) -> str:
    commit = str(info["sha"])
    if not _COMMIT.fullmatch(commit):
        raise ValueError(commit)
    return commit


def _files(info: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((str(sibling["rfilename"]), _size(sibling)) for sibling in info["siblings"])


def _size(sibling: Mapping[str, Any]) -> int:
    return int((sibling.get("lfs") or {}).get("size") or sibling.get("size") or 0)
