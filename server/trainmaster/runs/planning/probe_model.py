"""Probes the model and the tokenizer that a spec names: here, on the host, or on the hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_runtime.core.config.objectives import OBJECTIVES
from trainer_runtime.core.decoding import MAX_DOCUMENT_BYTES, DecodingError, decode_fields
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.files.model_folder import (
    CONFIG_NAME,
    HF,
    LITGPT,
    ModelFolder,
    belongs,
    read_model_folder,
)
from trainer_runtime.core.files.tokenizer_folder import (
    BYTE,
    CHAT_TEMPLATE_NAME,
    JSON_NAME,
    SETTINGS_NAME,
    TokenizerFolder,
    holds_tokenizer,
    is_of_tokenizer,
    packages_to_read,
    read_tokenizer_folder,
    tokenizer_files,
)
from trainmaster.backends import HERE, Backend, InputExaminer
from trainmaster.calls.work_thread import in_thread
from trainmaster.errors.errors import PlanError
from trainmaster.home.paths import Home
from trainmaster.home.scratch_folder import scratch_folder
from trainmaster.plan import ModelFacts, TokenizerFacts, chosen_tokenizer
from trainmaster.plan.decisions.shapes import facts_of_config, named_weights, shape_facts
from trainmaster.plan.decisions.tokenizer import OWN, declared_tokenizer
from trainmaster.plan.named_models import find_model
from trainmaster.plan.spec import TrainingSpec
from trainmaster.plan.transformers_architectures import objective_of
from trainmaster.runs.planning.hf_config import (
    architecture_of_hf,
    has_experts,
    sizes_of_hf,
    sizes_of_litgpt,
)
from trainmaster.runs.planning.model_hub import (
    LARGEST_FILE_BYTES,
    Hub,
    HubModel,
    hub_of,
    is_offline,
)
from trainmaster.settings.policy import Policy
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.upload_folder import digest_of, files_at, plain_name


@dataclass(frozen=True, slots=True)
class _Probe:
    """The places of a spec's model and tokenizer. `by_name`: the hub's names are those of the table
    of published models, and nothing is fetched."""

    spec: TrainingSpec
    backend: Backend
    token: str | None
    policy: Policy
    home: Home
    by_name: bool = False

    @property
    def is_here(self) -> bool:
        """Whether the training runs on this machine."""
        return self.spec.host in HERE

    def hub(self, field: str) -> Hub:
        return hub_of(self.spec.env, os.environ, self.token, field, self.policy)


async def probe_inputs(
    workspace: Workspace,
    spec: TrainingSpec,
    backend: Backend,
    token: str | None,
    *,
    by_name: bool = False,
) -> tuple[ModelFacts | None, TokenizerFacts | None]:
    """The spec's model and tokenizer; None for a model trained from scratch, and for bytes.

    `token`: sent to a hub, where the spec's secrets hold one. `by_name`: nothing is fetched; what
    the hub has is known by its name.

    Raises:
        PlanError: `HUB_NOT_FOUND`, `HUB_GATED`, `HUB_UNREACHABLE`.
        HostError: the host can't be reached.
    """
    probe = _Probe(spec, backend, token, workspace.policy, workspace.home, by_name)
    model = await _model(probe)
    return model, await _tokenizer(probe, model)


async def _model(probe: _Probe) -> ModelFacts | None:
    model_spec = probe.spec.model
    if model_spec.path is not None:
        model_folder = await _model_folder(probe, model_spec.path)
        there = _placed(probe, model_spec.path, [name for name, _ in model_folder.files])
        return _facts(model_folder).model_copy(update={"path": model_spec.path, **there})
    if model_spec.hub is None:
        return shape_facts(probe.spec) if probe.spec.lacks_weights else None
    if probe.by_name:
        return named_weights(probe.spec)
    if is_offline(probe.spec.env):
        path = await _cached(probe, model_spec.hub, model_spec.revision, "model.hub")
        model_folder = await _model_folder(probe, path)
        return _facts(model_folder).model_copy(update={"path": path, "hub": model_spec.hub})
    hub = probe.hub("model.hub")
    return await _hub_model(hub, await hub.model(model_spec.hub, model_spec.revision))


async def _model_folder(probe: _Probe, path: str) -> ModelFolder:
    if probe.is_here or not path.startswith(ON_BOX):
        return await in_thread(read_model_folder, path.removeprefix(ON_BOX))
    examiner = InputExaminer.of(probe.backend, field="model")
    return await examiner.examine_model(path.removeprefix(ON_BOX))


def _facts(model_folder: ModelFolder) -> ModelFacts:
    described = (
        sizes_of_litgpt(model_folder.config)
        if model_folder.kind == LITGPT
        else _described(model_folder.config)
    )
    names, counted = {name for name, _ in model_folder.files}, _counted(model_folder.config)
    lacks_weights = model_folder.problem is not None and bool(model_folder.config)
    return ModelFacts(
        kind=model_folder.kind,
        files=model_folder.files,
        problem=None if lacks_weights else model_folder.problem,
        missing=f"`model.path` is {model_folder.path!r}: {model_folder.problem}."
        if lacks_weights
        else None,
        code=model_folder.code,
        parameters=model_folder.parameters or (None if counted is None else counted.parameters),
        weights_bytes=model_folder.weight_bytes,
        matrices=model_folder.matrices,
        has_tokenizer=holds_tokenizer(names),
        chat_template=CHAT_TEMPLATE_NAME in names,
        **described,
    )


def _described(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says of the model, as fields of `ModelFacts`.

    The sizes of a model with experts are those that its architecture is counted by; `d_ff` is None
    where it is not counted: its layers may be of several kinds.
    """
    described = {**sizes_of_hf(config), **architecture_of_hf(config)}
    counted = _counted(config) or ModelFacts()
    of_stacks, of_experts = ("gated", "decoder_layers"), ("d_ff", "d_head", "experts")
    named = of_experts if has_experts(config) else of_stacks
    return {**described, **{name: getattr(counted, name) for name in named}}


def _counted(config: Mapping[str, Any]) -> ModelFacts | None:
    """By a configuration alone; None where its architecture is not known."""
    arch = str(config.get("model_type"))
    if objective_of(arch) is None:
        return None
    try:
        return facts_of_config(arch, dict(config))
    except (TypeError, KeyError, ZeroDivisionError):  # a size that is none
        return None


async def _hub_model(hub: Hub, model: HubModel) -> ModelFacts:
    names = {name for name, _ in model.files}
    files = tuple((name, size) for name, size in model.files if belongs(name, names))
    weights = [(name, size) for name, size in files if name.endswith((".safetensors", ".bin"))]
    facts = ModelFacts(
        hub=model.name,
        revision=model.revision,
        sent_as=f"{plain_name(model.name, 'model')}-{model.revision[:12]}",
        files=files,
        weights_bytes=sum(size for _, size in weights),
        has_tokenizer=holds_tokenizer(names),
        chat_template=CHAT_TEMPLATE_NAME in names,
    )
    if CONFIG_NAME not in names:
        return facts.model_copy(
            update={"problem": "it has no config.json", "code": "MODEL_UNUSABLE"}
        )
    if not weights:
        problem = "it holds no weights: neither *.safetensors nor pytorch_model.bin"
        return facts.model_copy(update={"problem": problem, "code": "MODEL_UNUSABLE"})
    config = _object(await hub.file(model, CONFIG_NAME))
    count = model.parameters or _estimated(config, facts.weights_bytes)
    described = _described(config)
    return facts.model_copy(update={"kind": HF, "parameters": count, **described})


def _estimated(config: Mapping[str, Any], weights_bytes: int) -> int | None:
    """By the size of the files, where the config names the type of their elements."""
    element_bytes = {"float32": 4, "float16": 2, "bfloat16": 2}
    size = element_bytes.get(str(config.get("torch_dtype") or config.get("dtype")))
    return weights_bytes // size if size else None


async def _tokenizer(probe: _Probe, model: ModelFacts | None) -> TokenizerFacts | None:
    chosen = chosen_tokenizer(probe.spec)
    if chosen == BYTE:
        return None
    own = chosen == OWN or (probe.by_name and chosen == probe.spec.model.hub)
    if own and model is not None:
        return _unnamed_tokenizer(model)
    declared = declared_tokenizer(probe.spec)
    if declared is not None:
        return declared
    if model is not None and chosen in (probe.spec.model.path, probe.spec.model.hub):
        return await _own_tokenizer(probe, model)
    if chosen.startswith(("/", ON_BOX)):
        tokenizer_folder = await _tokenizer_folder(probe, chosen)
        there = _placed(probe, chosen, _sent_names(chosen))
        return _tokenizer_facts(tokenizer_folder).model_copy(update={"path": chosen, **there})
    if probe.by_name:
        named = find_model(chosen)
        size = None if named is None else named.vocab_size
        return TokenizerFacts(hub=chosen, vocab_size=size, digest="none")
    if is_offline(probe.spec.env):
        path = await _cached(probe, chosen, None, "data.tokenizer")
        tokenizer_folder = await _tokenizer_folder(probe, path)
        return _tokenizer_facts(tokenizer_folder).model_copy(update={"path": path, "hub": chosen})
    hub = probe.hub("data.tokenizer")
    return await _hub_tokenizer(hub, await hub.model(chosen, None))


def _unnamed_tokenizer(model: ModelFacts) -> TokenizerFacts:
    """That of weights which are not at hand: it has as many tokens as they have rows."""
    return TokenizerFacts(hub=model.hub, of_model=True, vocab_size=model.vocab_size, digest="none")


async def _own_tokenizer(probe: _Probe, model: ModelFacts) -> TokenizerFacts:
    """The model's tokenizer, without a second query of the hub."""
    if model.missing is not None and not model.has_tokenizer:
        return _unnamed_tokenizer(model)
    placed = {name: getattr(model, name) for name in ("path", "hub", "revision", "sent_as")}
    if model.problem is not None or not model.has_tokenizer:
        missing = "the model has none: neither tokenizer.json nor tokenizer.model"
        problem = None if model.problem is not None else missing
        return TokenizerFacts(
            **placed, of_model=True, problem=problem, code="TOKENIZER_UNUSABLE", digest="none"
        )
    if model.path is not None:
        tokenizer_folder = await _tokenizer_folder(probe, model.path)
        return _tokenizer_facts(tokenizer_folder).model_copy(update={**placed, "of_model": True})
    if OBJECTIVES[probe.spec.objective].tokens:  # of which only its files know
        hub = probe.hub("model.hub")
        read = await _hub_tokenizer(hub, await hub.model(str(model.hub), model.revision))
        return read.model_copy(update={**placed, "of_model": True, "files": ()})
    digest = _digest(f"{model.hub}@{model.revision}")
    packages = packages_to_read({name for name, _ in model.files})
    return TokenizerFacts(
        **placed,
        of_model=True,
        digest=digest,
        packages=packages,
        chat_template=model.chat_template or None,
    )


async def _tokenizer_folder(probe: _Probe, path: str) -> TokenizerFolder:
    if probe.is_here or not path.startswith(ON_BOX):
        return await in_thread(read_tokenizer_folder, path.removeprefix(ON_BOX))
    examiner = InputExaminer.of(probe.backend, field="data.tokenizer")
    return await examiner.examine_tokenizer(path.removeprefix(ON_BOX))


def _tokenizer_facts(tokenizer_folder: TokenizerFolder) -> TokenizerFacts:
    return TokenizerFacts(
        problem=tokenizer_folder.problem,
        code=None if tokenizer_folder.problem is None else "TOKENIZER_UNUSABLE",
        vocab_size=tokenizer_folder.vocab_size or None,
        digest=tokenizer_folder.digest,
        packages=tokenizer_folder.packages,
        chat_template=tokenizer_folder.chat_template,
        mask=tokenizer_folder.special.mask is not None,
        sentinels=len(tokenizer_folder.special.sentinels),
    )


async def _hub_tokenizer(hub: Hub, model: HubModel) -> TokenizerFacts:
    names = {name for name, _ in model.files}
    files = tuple(
        (name, size) for name, size in model.files if "/" not in name and is_of_tokenizer(name)
    )
    facts = TokenizerFacts(
        hub=model.name,
        revision=model.revision,
        sent_as=f"tokenizer-{plain_name(model.name, 'model')}-{model.revision[:12]}",
        files=files,
        digest=_digest(f"{model.name}@{model.revision}"),
        packages=packages_to_read(names),
    )
    if not holds_tokenizer(names):
        problem = "it has neither tokenizer.json nor tokenizer.model"
        return facts.model_copy(update={"problem": problem, "code": "TOKENIZER_UNUSABLE"})
    size = dict(files).get(JSON_NAME)
    if size is None or size > LARGEST_FILE_BYTES:
        return facts
    with scratch_folder("trainmaster-hub-") as folder:
        for name in {JSON_NAME, SETTINGS_NAME} & names:
            (folder / name).write_bytes(await hub.file(model, name))
        tokenizer = _tokenizer_facts(read_tokenizer_folder(str(folder)))
    found_facts = {
        "vocab_size": tokenizer.vocab_size,
        "mask": tokenizer.mask,
        "sentinels": tokenizer.sentinels,
        "problem": tokenizer.problem,
        "code": tokenizer.code,
    }
    has_template = tokenizer.chat_template or CHAT_TEMPLATE_NAME in names
    return facts.model_copy(update={**found_facts, "chat_template": has_template})


async def _cached(probe: _Probe, name: str, revision: str | None, field: str) -> str:
    """The folder in the host's own cache of the hub, as `host:/…`.

    Raises:
        PlanError: `HUB_NOT_FOUND`.
    """
    examiner = InputExaminer.find(probe.backend)  # a session's cache is empty
    path = None if examiner is None else await examiner.cached_from_hub(name, revision)
    if path is None:
        raise PlanError(
            "HUB_NOT_FOUND",
            f"HF_HUB_OFFLINE is set, and {probe.spec.host} has no {name!r} in its cache.",
            "Remove HF_HUB_OFFLINE from env, have the model fetched there first "
            f"(`hf download {name}`), or give a folder instead.",
            field=field,
        )
    return f"{ON_BOX}{path}"


def _placed(probe: _Probe, path: str, names: Sequence[str]) -> dict[str, Any]:
    """The files to send from a local folder, and their name; nothing where the host has them."""
    if probe.is_here or path.startswith(ON_BOX) or not names:
        return {}
    files = files_at(Path(path), names, probe.home)
    digest = digest_of(files)
    return {
        "sent_as": f"{plain_name(Path(path).name, 'model')}-{digest[:12]}",
        "files": tuple((file.name, file.size_bytes) for file in files),
        "listing": digest,
    }


def _sent_names(path: str) -> list[str]:
    return [] if path.startswith(ON_BOX) else tokenizer_files(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _object(content: bytes) -> dict[str, Any]:
    try:
        return dict(decode_fields(content, "config", max_bytes=MAX_DOCUMENT_BYTES).values)
    except DecodingError:
        return {}
