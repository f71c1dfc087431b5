"""Writes the resolved config: the spec with every `auto` decided, and derived values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_runtime.core.config import ConfigDocument
from trainer_runtime.core.config.model import ROPE_BASE
from trainer_runtime.core.config.tokenizer_training import FOLDER
from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.plan.architecture import flops_per_token
from trainmaster.plan.corpus_facts import CorpusFacts, HubFiles, SourceFacts
from trainmaster.plan.decisions.fit import Fitted
from trainmaster.plan.decisions.hyperparameters import Batch
from trainmaster.plan.decisions.method import Method
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.sessions import where_prepared
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.decisions.tokenizer import BYTE, NONE
from trainmaster.plan.facts import FolderFacts, HostFacts, ModelFacts, TokenizerFacts
from trainmaster.plan.frameworks import framework_of
from trainmaster.plan.spec import TrainingSpec

CONFIG_VERSION = 1


@dataclass(frozen=True, slots=True)
class Decided:
    """Every value that a spec may leave open."""

    method: Method
    network: Network
    target: Target
    fitted: Fitted
    lr: float
    usual_lr: float | None
    optimizer: dict[str, Any]
    schedule_kind: str
    warmup_steps: int
    steps: int
    phases: Sequence[Mapping[str, Any]]
    ramp: Mapping[str, Any] | None
    checkpoint_every: int | str
    best_metric: str
    mirror: str | None
    max_runtime_s: float
    threads: int
    compile: bool
    deterministic: bool
    attention: str | None
    fp8_lm_head: bool
    environment: dict[str, Any]
    env: dict[str, str]


def _optimizer(decided: Decided) -> dict[str, Any]:
    """With `usual_lr`, what a plan would take, where the rate is far above it."""
    usual = {} if decided.usual_lr is None else {"usual_lr": decided.usual_lr}
    return {**decided.optimizer, "lr": decided.lr, **usual}


def resolved_config(
    spec: TrainingSpec,
    decided: Decided,
    facts: HostFacts,
    corpus: CorpusFacts,
    existing: ModelFacts | None,
    tokenizer: TokenizerFacts | None,
) -> dict[str, Any]:
    """`config.json` without `run_id`; nothing in it is `auto`."""
    sections: dict[str, Any] = spec.model_dump(mode="json")
    config = {
        "config_version": CONFIG_VERSION,
        "name": spec.name,
        "framework": spec.framework,
        "method": decided.method.name,
        "model": {
            **decided.network.sizes,
            **_parts(spec, decided.network),
            "dropout": spec.model.dropout,
        },
        "data": _data(
            {
                **sections["data"],
                **_tokenizer(facts, tokenizer, decided.network.sizes, corpus.fingerprint),
                "prepare": where_prepared(spec, facts),
            },
            facts.cache_folder,
            corpus,
        ),
        "batch": {**_batch(decided.fitted.batch), "ramp": decided.ramp},
        "optimizer": _optimizer(decided),
        "schedule": _schedule(sections["schedule"], decided),
        "steps": decided.steps,
        **({"phases": [dict(phase) for phase in decided.phases]} if decided.phases else {}),
        "precision": decided.target.precision,
        "seed": spec.seed,
        "eval": _evaluation(sections["eval"], decided),
        "checkpoint": _checkpoint(sections["checkpoint"], decided),
        "recovery": sections["recovery"],
        "compute": _compute(sections["compute"], decided),
        "environment": decided.environment,
        "env": decided.env,
        "secrets": sections["secrets"],
        "labels": sections["labels"],
        "alerts": sections["alerts"],
        "limits": {
            "max_runtime_s": decided.max_runtime_s,
            "budget_usd": spec.limits.budget_usd,
        },
        "pty": spec.pty,
        "derived": _derived(decided),
    }
    inputs = [
        *_inputs(facts, existing, tokenizer),
        *_datasets(corpus, facts.cache_folder),
    ]
    if inputs:
        config["inputs"] = inputs
    if framework_of(spec).is_single_process:
        return config
    return {**config, **_of_frameworks(spec, sections, decided, facts, existing, config)}


def _schedule(section: ConfigDocument, decided: Decided) -> dict[str, Any]:
    kind, warmup_steps = decided.schedule_kind, decided.warmup_steps
    return {**section, "kind": kind, "warmup_steps": warmup_steps}


def _checkpoint(section: ConfigDocument, decided: Decided) -> dict[str, Any]:
    return {
        **section,
        "every": decided.checkpoint_every,
        "every_is_auto": section["every"] == "auto",
        "metric": decided.best_metric,
        "mirror": decided.mirror,
    }


def _parts(spec: TrainingSpec, network: Network) -> dict[str, Any]:
    """What our own scripts' models are made of."""
    model = network.architecture
    if model is None or not framework_of(spec).is_single_process:
        return {}
    return {
        "norm": model.norm,
        "activation": model.activation,
        "rope_base": spec.model.rope_base or ROPE_BASE,
        "window": model.window,
        "value_embeddings": model.value_embeddings,
        "ngram_embeddings": model.ngram_embeddings,
    }


def _of_frameworks(
    spec: TrainingSpec,
    sections: ConfigDocument,
    decided: Decided,
    facts: HostFacts,
    existing: ModelFacts | None,
    config: ConfigDocument,
) -> dict[str, Any]:
    """Further fields of a framework with methods, adapters, loggers and several processes."""
    compute: dict[str, Any] = {
        "nodes": decided.target.nodes,
        "processes": decided.target.processes,
        "activation_checkpointing": decided.fitted.sharing.recompute,
    }
    if decided.target.nodes > 1:
        compute["taking_part"] = list(range(decided.target.nodes))
    origin = {
        "preset": spec.model.preset,
        "path": None if existing is None else existing.folder(facts.cache_folder),
        "hub": spec.model.hub,
        "revision": spec.model.revision if existing is None else existing.revision,
        "attention": decided.attention,
        "extend_vocab": spec.model.extend_vocab,
        "rope_base": spec.model.rope_base,
        "rope_scaling": sections["model"]["rope_scaling"],
    }
    return {
        "objective": spec.objective,
        "method_args": decided.method.arguments,
        "model": {**config["model"], **origin},
        "adapter": sections["adapter"],
        "data": {**config["data"], "form": decided.method.form},
        "compute": {**config["compute"], **compute},
        "tracking": sections["tracking"],
    }


def _tokenizer(
    facts: HostFacts,
    tokenizer: TokenizerFacts | None,
    sizes: Mapping[str, Any],
    fingerprint: str,
) -> dict[str, Any]:
    """`byte`, or the tokenizer's folder on the host with the digest that identifies its tokens, or
    `none` with the size of the vocabulary. One that was not fetched has the hub's name; one that is
    trained comes to lie beside the shards of the data with this `fingerprint`."""
    if tokenizer is None:
        return {"tokenizer": BYTE}
    if tokenizer.path == NONE:
        own_shards = {"tokenizer": NONE, "tokenizer_digest": tokenizer.digest}
        return {**own_shards, "vocab_size": sizes["vocab_size"]}
    if tokenizer.training is not None:
        return {
            "tokenizer": f"{facts.cache_folder}/data/{fingerprint}/{FOLDER}",
            "tokenizer_digest": tokenizer.digest,
            "tokenizer_training": tokenizer.training.to_dict(),
        }
    folder = tokenizer.folder(facts.cache_folder) or tokenizer.hub or ""
    return {"tokenizer": folder, "tokenizer_digest": tokenizer.digest}


def _inputs(
    facts: HostFacts, model: ModelFacts | None, tokenizer: TokenizerFacts | None
) -> list[dict[str, Any]]:
    """Inputs that the host needs before training: uploaded from a folder of this machine (`from`),
    or downloaded by the host (`hub`)."""
    own = tokenizer is not None and tokenizer.of_model
    folders = {"model": model, "tokenizer": None if own else tokenizer}
    return [
        {
            "what": what,
            "folder": folder.folder(facts.cache_folder),
            "from": folder.path,
            "hub": folder.hub,
            "revision": folder.revision,
            "files": [list(file) for file in folder.files],
            "size_bytes": folder.size_bytes,
            "listing": folder.listing,
            **_converted(folder),
        }
        for what, folder in folders.items()
        if folder is not None and folder.sent_as is not None
    ]


def _converted(folder: FolderFacts) -> dict[str, str]:
    """The encoding of tiktoken that the host makes the folder of."""
    name = folder.tiktoken if isinstance(folder, TokenizerFacts) else None
    return {} if name is None else {"tiktoken": name}


def _datasets(corpus: CorpusFacts, cache: str) -> Iterator[dict[str, Any]]:
    """The sources that the host downloads from the hub and from object stores."""
    fetched = (source.fetched for source in corpus.sources if source.fetched is not None)
    yield from {files.folder(cache): files.request(cache) for files in fetched}.values()


def _data(section: dict[str, Any], cache: str, corpus: CorpusFacts) -> dict[str, Any]:
    """The given section with the sources' paths on the host; `upload`: the files to send, by
    source."""
    folder = f"{cache}/sources/{corpus.fingerprint}"
    sent = {source.name: f"{folder}/{source.sent_as}" for source in corpus.sent}
    fetched = {source.name: source.fetched for source in corpus.sources if source.fetched}
    sent |= {name: files.folder(cache) for name, files in fetched.items()}
    of_fetched = {source.name: _of_fetched(source) for source in corpus.sources}
    config = {
        **{name: value for name, value in section.items() if value is not None},
        **{
            part: [
                {
                    **of_fetched.get(source["name"], {}),
                    **{name: value for name, value in source.items() if value is not None},
                    "path": sent.get(source["name"], source["path"].removeprefix(ON_BOX)),
                }
                for source in section[part]
            ]
            for part in ("sources", "validation")
        },
        "workers": 0 if section["workers"] == "auto" else section["workers"],
        "prepare": "stream" if section["prepare"] == "stream" else "box",
        "fingerprint": corpus.fingerprint,
        "cache_dir": cache,
        "skip": [],
    }
    if not corpus.sent:
        return config
    upload = {
        "sources": {source.name: source.path for source in corpus.sent},
        "size_bytes": sum(source.size_bytes for source in corpus.sent),
        "listing": corpus.listing,
    }
    prepare = section["prepare"] if section["prepare"] in ("here", "stream") else "box"
    return {**config, "prepare": prepare, "upload": upload}


def _of_fetched(source: SourceFacts) -> dict[str, Any]:
    """What the listing of a source that the host fetches says of it."""
    fetched = source.fetched
    if fetched is None:
        return {}
    listed = {} if source.unlisted is None else {"is_listed": False}
    licensed = {"license": fetched.license} if isinstance(fetched, HubFiles) else {}
    return {**licensed, "revision": fetched.revision, **listed}


def _evaluation(section: Mapping[str, Any], decided: Decided) -> dict[str, Any]:
    """With the size of its batches, and samples at steps of their own and a rule of early stopping
    only where there are any."""
    seldom = ("samples", "early_stopping")
    rest = {name: value for name, value in section.items() if name not in seldom}
    samples, early = section["samples"], section["early_stopping"]
    if early is not None:
        metric = decided.best_metric if early["metric"] == "auto" else early["metric"]
        rest["early_stopping"] = {**early, "metric": metric}
    if samples is not None:
        rest["samples"] = {**samples, "every": samples["every"] or section["every_steps"]}
    return {**rest, "batch_size": decided.fitted.batch.micro_batch}


def _batch(batch: Batch) -> dict[str, Any]:
    return {
        "tokens": batch.tokens,
        "micro_batch": batch.micro_batch,
        "accumulation": batch.accumulation,
    }


def _compute(section: ConfigDocument, decided: Decided) -> dict[str, Any]:
    of_frameworks = ("processes", "activation_checkpointing")
    return {
        **{key: value for key, value in section.items() if key not in of_frameworks},
        "device": decided.target.device,
        "gpus": decided.target.gpus,
        "threads": decided.threads,
        "compile": decided.compile,
        "deterministic": decided.deterministic,
        "fp8_lm_head": decided.fp8_lm_head,
        "strategy": decided.fitted.sharing.strategy,
    }


def _derived(decided: Decided) -> dict[str, Any]:
    model, method = decided.network.architecture, decided.method
    flops = model and flops_per_token(model, method.passes, frozen=method.has_adapter)
    return {
        "parameters": decided.network.parameters,
        "flops_per_token": flops,
        "sequences_per_step": decided.fitted.batch.sequences,
        "peak_flops": decided.target.gpu.peak_flops if decided.target.gpu else None,
    }
