"""What a plan is made from besides the spec: facts about the host, the corpus, earlier runs.

They are measured by services, partly on other machines, and arrive as JSON; planning itself only
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict

from trainer_runtime.core.files import corpus

_BYTE = "byte"
# Of English text by the vocabularies of today's models; other languages and code take more tokens.
_BYTES_PER_TOKEN = 4


class Facts(BaseModel):
    """Immutable; fields that a newer probe adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class GpuFacts(Facts):
    """One GPU as nvidia-smi lists it; `capability` is its compute capability, None if unknown."""

    index: int
    name: str
    memory_gib: float
    memory_free_gib: float
    driver: str = ""
    capability: float | None = None


class TorchFacts(Facts):
    """PyTorch as the interpreter that would train imports it."""

    version: str
    cuda: str | None = None
    cuda_available: bool = False
    bf16_gpu: bool = False


class SessionFacts(Facts):
    """A place that gives its machine out in sessions, out of a weekly quota of accelerator hours.

    `hours`: how long a session may last, `usable_hours` what of it is left for training.
    `refresh_t`: when the quota starts anew, Unix seconds; None where that is not told.
    """

    hours: float
    usable_hours: float
    internet: bool
    quota_left_h: float
    quota_total_h: float
    refresh_t: float | None = None


class HostFacts(Facts):
    """The machine. `cores` counts what the quota grants, and may be a fraction.

    `root` is the host's folder for runs, `disk_free_gib` what its disk has left; `cache` is where
    runs share data, in the root where None, and `cache_free_gib` what its disk has left where that
    is another one.
    `measured_at` is Unix time in seconds. `c_compiler` and `venv_available` (whether the
    interpreter can make environments and install into them) are None where nobody looked; `pip` is
    its version of pip, `uv` the path of uv. `packages` are the versions of frameworks' packages
    that the interpreter has, None where nobody looked. `wheels`: where the spec's wheels lie once
    they were sent. `usd_per_hour` and `lease_end_t` (Unix time, at which it is gone) are a rented
    box's.
    """

    hostname: str
    root: str
    cpu_model: str = ""
    cores: float
    memory_total_gib: float
    memory_available_gib: float
    disk_free_gib: float
    gpus: tuple[GpuFacts, ...] = ()
    python_path: str = ""
    python_version: str = ""
    torch: TorchFacts | None = None
    bf16_cpu: bool = False
    venv_available: bool | None = None
    pip: str | None = None
    packages: dict[str, str] | None = None
    uv: str | None = None
    wheels: str | None = None
    root_writable: bool = True
    cache: str | None = None
    cache_free_gib: float | None = None
    cache_writable: bool = True
    c_compiler: bool | None = None
    usd_per_hour: float | None = None
    lease_end_t: float | None = None
    measured_at: float | None = None
    sessions: SessionFacts | None = None

    @property
    def cache_folder(self) -> str:
        return self.cache or f"{self.root.rstrip('/')}/cache"


class SourceFacts(Facts):
    """One source's files; `problem` says why there are none to count, where that is known.

    `path` is the spec's, with `host:` where it is the box's own. `sent_as`: what is sent to the box
    lies there by this path below the folder of its fingerprint; None for what is there anyway.
    `examples`: rows of a data set, 0 for running text and where nobody counted. `malformed`: what
    is wrong with its rows. `format` is the spec's.
    """

    name: str
    path: str
    sent_as: str | None = None
    files: int = 0
    size_bytes: int = 0
    tokens: int = 0
    examples: int = 0
    format: str = corpus.TEXT
    problem: str | None = None
    malformed: str | None = None


class CorpusFacts(Facts):
    """The sources in the spec's order. `cached`: the host already holds their shards; `listing`:
    the digest of the files of those that are sent; `estimated`: nobody has counted the tokens."""

    sources: tuple[SourceFacts, ...]
    fingerprint: str
    listing: str | None = None
    cached: bool = False
    estimated: bool = False

    @property
    def tokens(self) -> int:
        return sum(source.tokens for source in self.sources)

    @property
    def examples(self) -> int:
        return sum(source.examples for source in self.sources)

    @property
    def sent(self) -> tuple[SourceFacts, ...]:
        return tuple(source for source in self.sources if source.sent_as is not None)

    @classmethod
    def of(
        cls,
        listed: Sequence[corpus.Source],
        tokenizer: str,
        seq_len: int,
        form: str = corpus.SHARDS,
        *,
        sent_as: Mapping[str, str] | None = None,
    ) -> Self:
        """The facts of sources whose files were listed; `sent_as` by name of those that are sent to
        the box. `tokenizer` is byte, or the digest of another one.

        Tokens of text are counted for the byte tokenizer: one per byte, and one that ends each
        file. Others are estimated.
        """
        sent = sent_as or {}
        estimated = tokenizer != _BYTE or any(one.format != corpus.TEXT for one in listed)
        per_token = 1 if tokenizer == _BYTE else _BYTES_PER_TOKEN
        ready = {one.name for one in listed if one.format == "tokens"}
        sources = tuple(
            SourceFacts(
                name=source.name,
                path=source.path,
                sent_as=sent.get(source.name),
                files=len(source.files),
                size_bytes=source.size_bytes,
                tokens=source.size_bytes // (2 if source.name in ready else per_token)
                + len(source.files),
                format=source.format,
            )
            for source in listed
        )
        uploads = [source for source in listed if source.name in sent]
        return cls(
            sources=sources,
            fingerprint=corpus.fingerprint(listed, tokenizer, seq_len, form),
            listing=corpus.listing_digest(uploads) if uploads else None,
            estimated=estimated,
        )


class FolderFacts(Facts):
    """A folder that a training starts from: a model's or a tokenizer's.

    `path` or `hub` is the spec's, `revision` the hub's commit. `sent_as`: what is sent from here or
    fetched from the hub comes to lie under this name below the box's folder for models; None for
    what lies there anyway. `files` are names and sizes of what comes, `listing` the digest by which
    what is sent is known again. `problem` says why it can't be used, under an error's `code`.
    """

    path: str | None = None
    hub: str | None = None
    revision: str | None = None
    sent_as: str | None = None
    files: tuple[tuple[str, int], ...] = ()
    listing: str | None = None
    problem: str | None = None
    code: str | None = None

    @property
    def size_bytes(self) -> int:
        """Of everything that comes to the box."""
        return sum(size for _, size in self.files) if self.sent_as is not None else 0

    def folder(self, cache: str) -> str:
        """Where the box reads it; `cache` is the box's."""
        if self.sent_as is not None:
            return f"{cache}/models/{self.sent_as}"
        return (self.path or "").removeprefix(corpus.ON_BOX)


class ModelFacts(FolderFacts):
    """Existing weights, as their folder's or the hub's config.json tells them; None: not told.

    `kind` is hf or litgpt, by the layout. `tied`: input and output embedding are one matrix.
    `max_positions`: the longest sequence that they were made for. `matrices`: see
    `core.files.model_folder`.
    """

    kind: str = "hf"
    model_type: str = ""
    parameters: int | None = None
    n_layer: int | None = None
    n_head: int | None = None
    n_kv_head: int | None = None
    d_model: int | None = None
    d_ff: int | None = None
    vocab_size: int | None = None
    tied: bool | None = None
    max_positions: int | None = None
    weights_bytes: int = 0
    matrices: tuple[str, ...] = ()
    has_tokenizer: bool = False
    chat_template: bool = False


class TokenizerFacts(FolderFacts):
    """A tokenizer other than the byte tokenizer. `digest` tells what it makes of texts;
    `vocab_size` is None where nobody looked. `of_model`: it lies in the model's folder, and comes
    with it."""

    digest: str = ""
    vocab_size: int | None = None
    of_model: bool = False


class Throughput(Facts):
    """What one earlier run reached; `flops_per_s` by the count of `architecture.flops_per_token`.

    `device` is `cpu` or the GPU's name.
    """

    device: str
    precision: str
    flops_per_s: float


class Calibration(Facts):
    """Measured throughput on this host, the newest first."""

    measured: tuple[Throughput, ...] = ()

    def flops_per_s(self, device: str, precision: str) -> float | None:
        """The newest figure for a device and precision, or None."""
        for entry in self.measured:
            if (entry.device, entry.precision) == (device, precision):
                return entry.flops_per_s
        return None
