"""Downloads a model, tokenizer or data set from the hub with the environment's huggingface_hub.

`python -m trainer_runtime.train.data.fetch_from_hub REQUEST`, started by `host.prepare.inputs`:
exactly the files and the revision of the plan, into a folder that keeps partial downloads. A data
set's files get the time that its listing has, by which a changed source is known.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer_runtime.core.config import InputConfig
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, decode_fields
from trainer_runtime.core.protocol.lines import ExitCode
from trainer_runtime.train.data.fetch_progress import progress, size_bytes

_NOT_NOW = 1
_FOR_GOOD = (401, 403, 404)
_TERMS = "accept its terms on its page, and list HF_TOKEN under secrets"


def main(request_path: str) -> int:
    """Fetch the files of a request. Returns 77 for permanent failures, 1 for temporary ones.

    An interrupted fetch is resumed as long as every try makes progress.
    """
    document = decode_fields(
        Path(request_path).read_bytes(), "request", max_bytes=MAX_DOCUMENT_BYTES
    )
    request = InputConfig.of(document)
    folder = Path(request.folder)
    with progress(request.what, folder, request.size_bytes):
        while True:
            before = size_bytes(folder)
            code, reason = _fetch(request, folder)
            if code != _NOT_NOW or size_bytes(folder) <= before:
                break
            print(f"{reason} Resuming.", flush=True)
    if reason:
        print(reason, flush=True)
    return code


def _fetch(request: InputConfig, folder: Path) -> tuple[int, str]:
    """The exit code, and why it isn't 0."""
    name = str(request.hub)
    try:
        import huggingface_hub
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
    except ImportError as error:
        return ExitCode.UNUSABLE, f"The environment lacks {error.name}, which fetches {name}."
    try:
        huggingface_hub.snapshot_download(
            name,
            repo_type=request.repo_type,
            revision=request.revision,
            local_dir=folder,
            allow_patterns=[glob.escape(file) for file, _ in request.files],
        )
    except (GatedRepoError, RepositoryNotFoundError):
        return ExitCode.UNUSABLE, f"Cannot access gated repo {name}: {_TERMS}."
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        code = ExitCode.UNUSABLE if status in _FOR_GOOD else _NOT_NOW
        return code, f"{_unreached(name)} It answers {status}."
    except Exception as error:  # those of the client's HTTP library, whichever that is
        return _NOT_NOW, f"{_unreached(name)} {_cause(error)}"
    missing = _missing(folder, request.files)
    if missing:
        return _NOT_NOW, f"{name} came without {missing[0]} as it was planned with."
    if request.repo_type == "dataset":
        for file, _ in request.files:
            os.utime(folder / file, ns=(0, 0))
    return 0, ""


def _unreached(name: str) -> str:
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    return f"We couldn't connect to '{endpoint}' to load {name}."


def _cause(error: BaseException) -> str:
    """The innermost error: the client's own message is advice for other situations."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _missing(folder: Path, files: Sequence[tuple[str, int]]) -> list[str]:
    """The files that are missing or differ from the hub's size."""
    return [
        name
        for name, size in files
        if not (folder / name).is_file() or (folder / name).stat().st_size != size
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
