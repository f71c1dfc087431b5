"""Calls to Kaggle through its official client; no other module imports that.

Runs in the worker process: the import calls Kaggle, prints, and may exit.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import kaggle
from kaggle.api.kaggle_api_extended import KaggleApi
from kagglesdk.datasets.types.dataset_api_service import ApiGetDatasetStatusRequest
from kagglesdk.kernels.types.kernels_api_service import (
    ApiGetKernelRequest,
    ApiListKernelSessionOutputRequest,
)
from requests.adapters import HTTPAdapter

from trainer_runtime.core.files.names import safe_names
from trainmaster.backends.kaggle.client import MOST_OUTPUTS, KernelState
from trainmaster.backends.kaggle.download_output import fetch_blob
from trainmaster.backends.kaggle.error_mapping import (
    KeysMissingError,
    RefusedError,
    cleaned,
    http_status,
    is_absent,
)
from trainmaster.backends.kaggle.log_stream import LogStream

_Found = TypeVar("_Found")

_CONNECT_S, _ANSWER_S = 15.0, 90.0
# A log's stream is silent while the kernel is; Kaggle ends it earlier than this.
_SILENCE_S = 300.0
_FILES_A_PAGE = 100
# A listing that repeats its page for ever ends here.
_MOST_PAGES = 10 * MOST_OUTPUTS // _FILES_A_PAGE
# Assumed validity of the URLs of output files.
_ADDRESSES_HOLD_S = 300.0
_STATES: dict[str, KernelState] = {
    "QUEUED": "queued",
    "NEW_SCRIPT": "queued",
    "RUNNING": "running",
    "CANCEL_REQUESTED": "running",
    "COMPLETE": "complete",
    "ERROR": "error",
    "CANCEL_ACKNOWLEDGED": "cancelled",
}
_OVER = ("complete", "error", "cancelled")
_CODE_FILE = "kernel.py"


class _Bounded(HTTPAdapter):
    """Sets timeouts for requests without one."""

    def send(
        self, request: Any, stream: bool = False, timeout: Any = None, *others: Any, **more: Any
    ) -> Any:
        bound_s = (_CONNECT_S, _SILENCE_S if stream else _ANSWER_S)
        return super().send(request, stream, timeout or bound_s, *others, **more)


class _Api(KaggleApi):  # type: ignore[misc]
    def build_kaggle_client(self) -> Any:
        client = super().build_kaggle_client()
        http = client.http_client()
        http.__enter__()
        for scheme in ("http://", "https://"):
            http._session.mount(scheme, _Bounded())
        return client

    def _upload_file(self, file_name: str, *arguments: Any, **settings: Any) -> Any:
        """Raise for a failed upload, which the client ignores."""
        sent = super()._upload_file(file_name, *arguments, **settings)
        if sent is None:
            raise ConnectionError(f"{file_name} could not be sent")
        return sent


class Official:
    """The worker's requests: each method is one, and returns JSON."""

    def __init__(self) -> None:
        self._api = _Api()
        self._signing_in = threading.Lock()
        self._signed_in = False
        self._streams: dict[str, LogStream] = {}
        self._streams_lock = threading.Lock()
        self._addresses: dict[str, tuple[float, Mapping[str, str]]] = {}

    def account(self) -> str:
        return self._call_signed_in(lambda: str(self._api.config_values["username"]))

    def push(
        self, metadata: Mapping[str, Any], code: str, timeout_s: int, accelerator: str | None
    ) -> Mapping[str, Any]:
        """`metadata`: kernel-metadata.json without the owner and the file of `code`."""
        ref = f"{self.account()}/{metadata['slug']}"
        fields = {key: value for key, value in metadata.items() if key != "slug"}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, _CODE_FILE).write_text(code, encoding="utf-8")
            document = {"id": ref, "code_file": _CODE_FILE, **fields}
            Path(folder, "kernel-metadata.json").write_text(json.dumps(document))
            saved = self._call_signed_in(
                lambda: self._api.kernels_push(folder, timeout=str(timeout_s), acc=accelerator)
            )
        if saved.error:
            raise RefusedError(saved.error)
        self._end_stream(ref)
        kinds = ("dataset", "kernel", "model", "competition")
        sources = [name for kind in kinds for name in getattr(saved, f"invalid_{kind}_sources")]
        version = int(saved.version_number or 0)
        return {"ref": ref, "version": version, "url": saved.url, "invalid": sources}

    def status(self, ref: str) -> Mapping[str, Any] | None:
        answer = self._unless_absent(lambda: self._api.kernels_status(ref))
        if answer is None:
            return None
        message = cleaned(answer.failure_message) if answer.failure_message else None
        return {"state": _STATES[answer.status.name], "message": message}

    def kernel(self, ref: str, marker: str) -> Mapping[str, Any] | None:
        def asked() -> Any:
            with self._api.build_kaggle_client() as client:
                request = ApiGetKernelRequest()
                request.user_name, request.kernel_slug = ref.split("/")
                return client.kernels.kernels_api_client.get_kernel(request)

        kernel = self._unless_absent(asked)
        if kernel is None:
            return None
        source = (kernel.blob.source if kernel.blob else None) or ""
        version = kernel.metadata.current_version_number
        return {"version": version, "title": kernel.metadata.title, "marked": marker in source}

    def log(self, ref: str, after: int, wait_s: float) -> Mapping[str, Any]:
        self._sign_in()
        try:
            try:
                page = self._stream(ref, after).page(after, wait_s)
            except LookupError:
                page = self._stream(ref, after).page(after, wait_s)
        except Exception as error:
            if is_absent(error):
                return {"events": [], "next_index": after, "ended": False}
            raise
        return {
            "events": list(page.events),
            "next_index": page.next_index,
            "ended": page.ended,
        }

    def outputs(self, ref: str) -> Sequence[str]:
        return sorted(self._list_outputs(ref))

    def fetch_output(self, ref: str, name: str, path: str) -> None:
        """Download an output file; an expired URL is requested again once."""
        listed_t, addresses = self._addresses.get(ref, (0.0, {}))
        is_known = name in addresses and time.monotonic() - listed_t < _ADDRESSES_HOLD_S
        try:
            if is_known:
                fetch_blob(addresses[name], Path(path))
                return
        except Exception as error:
            if http_status(error) is None:
                raise
        listed = self._list_outputs(ref)
        if name not in listed:
            raise RefusedError(f"{ref} has no output file {name}")
        fetch_blob(listed[name], Path(path))

    def quota(self) -> Mapping[str, Any]:
        answer = self._call_signed_in(self._api.quota_view)
        gpu, refresh = answer.gpu_quota, answer.quota_refresh_time
        used, reserved, total = (
            part.total_seconds() if part else 0.0
            for part in (gpu.time_used, gpu.time_reserved, gpu.total_time_allowed)
        )
        refresh_t = refresh.replace(tzinfo=timezone.utc).timestamp() if refresh else None
        return {
            "used_s": used,
            "total_s": total,
            "refresh_t": refresh_t,
            "reserved_s": reserved,
        }

    def save_dataset(self, slug: str, title: str, folder: str) -> str:
        """Create it, or its next version; folders are sent as archives, which Kaggle unpacks."""
        ref = f"{self.account()}/{slug}"
        is_there = self.dataset_state(slug) not in (None, "deleted")
        with tempfile.TemporaryDirectory() as staged:
            for entry in Path(folder).iterdir():
                Path(staged, entry.name).symlink_to(entry.resolve())
            document = {"id": ref, "title": title, "licenses": [{"name": "other"}]}
            Path(staged, "dataset-metadata.json").write_text(json.dumps(document))
            if is_there:
                saved = self._call_signed_in(
                    lambda: self._api.dataset_create_version(
                        staged, title, quiet=True, delete_old_versions=True, dir_mode="zip"
                    )
                )
            else:
                saved = self._call_signed_in(
                    lambda: self._api.dataset_create_new(staged, quiet=True, dir_mode="zip")
                )
        if saved.error:
            raise RefusedError(saved.error)
        return ref

    def dataset_state(self, slug: str) -> str | None:
        owner = self.account()

        def asked() -> Any:
            with self._api.build_kaggle_client() as client:
                request = ApiGetDatasetStatusRequest()
                request.owner_slug, request.dataset_slug = owner, slug
                return client.datasets.dataset_api_client.get_dataset_status(request)

        answer = self._unless_absent(asked)
        return None if answer is None else str(answer.status.name.lower())

    def datasets(self, search: str) -> Mapping[str, Any]:
        datasets: dict[str, Any] = {}
        token: str | None = None
        while token != "":
            asked = partial(
                self._api.dataset_list_with_response,
                mine=True,
                search=search,
                page_size=_FILES_A_PAGE,
                page_token=token,
            )
            page = self._call_signed_in(asked)
            for item in page.datasets or ():
                updated = item.last_updated.timestamp() if item.last_updated else None
                state = {"total_bytes": item.total_bytes, "updated_t": updated}
                datasets[item.ref.split("/")[-1]] = {"ref": item.ref, "title": item.title, **state}
            token = page.next_page_token or ""
        return datasets

    def remove_dataset(self, slug: str) -> None:
        owner = self.account()
        self._unless_absent(lambda: self._api.dataset_delete(owner, slug, no_confirm=True))

    def _list_outputs(self, ref: str) -> Mapping[str, str]:
        addresses = dict(islice(self._output_pages(ref), MOST_OUTPUTS))
        outputs = {name: addresses[name] for name in safe_names(addresses, MOST_OUTPUTS)}
        self._addresses[ref] = (time.monotonic(), outputs)
        return outputs

    def _output_pages(self, ref: str) -> Iterator[tuple[str, str]]:
        token = ""
        for _ in range(_MOST_PAGES):
            request = ApiListKernelSessionOutputRequest()
            request.user_name, request.kernel_slug = ref.split("/")
            request.page_size, request.page_token = _FILES_A_PAGE, token

            def asked(request: Any = request) -> Any:
                with self._api.build_kaggle_client() as client:
                    return client.kernels.kernels_api_client.list_kernel_session_output(request)

            page = self._call_signed_in(asked)
            for file in page.files or ():
                if file.file_name and file.url:
                    yield file.file_name, file.url
            token = page.next_page_token or ""
            if not token:
                return

    def _stream(self, ref: str, after: int) -> LogStream:
        with self._streams_lock:
            stream = self._streams.get(ref)
            if stream is None or not stream.serves(after):
                if stream is not None:
                    stream.close()
                stream = self._streams[ref] = self._open_stream(ref, after)
            return stream

    def _open_stream(self, ref: str, after: int) -> LogStream:
        def is_over() -> bool:
            answer = self.status(ref)
            return answer is not None and answer["state"] in _OVER

        return LogStream(lambda: self._api.kernels_logs_stream(ref), is_over, after)

    def _end_stream(self, ref: str) -> None:
        with self._streams_lock:
            stream = self._streams.pop(ref, None)
        if stream is not None:
            stream.close()

    def _call_signed_in(self, call: Callable[[], _Found]) -> _Found:
        """The result of a call. A call refused for its credentials is made once more with fresh
        ones: a session's token expires."""
        self._sign_in()
        try:
            return call()
        except Exception as error:
            if http_status(error) != 401:
                raise
        self._signed_in = False
        self._sign_in()
        return call()

    def _unless_absent(self, call: Callable[[], _Found]) -> _Found | None:
        try:
            return self._call_signed_in(call)
        except Exception as error:
            if is_absent(error):
                return None
            raise

    def _sign_in(self) -> None:
        with self._signing_in:
            if self._signed_in:
                return
            if not self._api.config_values and getattr(kaggle.api, "_authenticated", False):
                self._api.config_values = dict(kaggle.api.config_values)
            else:
                try:
                    self._api.authenticate()
                except SystemExit:
                    raise KeysMissingError from None
            self._signed_in = True
