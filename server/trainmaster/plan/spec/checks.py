"""Checks the fields of a spec against each other, and names for safety."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from trainer_runtime.core.alerts.codes import unknown_code
from trainer_runtime.core.alerts.condition import ConditionError, parse_condition
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.inputs.hub_dataset import PREFIX as HUB
from trainer_runtime.core.inputs.hub_dataset import DatasetAddress
from trainer_runtime.core.inputs.object_store import BEGINNINGS as STORES
from trainer_runtime.core.inputs.object_store import StoreAddress
from trainer_runtime.core.protocol.command import command
from trainmaster.errors.errors import Problem, wrong_value
from trainmaster.plan.fields.annotations import NAME_ACCEPTED, NAME_PATTERN
from trainmaster.plan.fields.compute import EnvironmentSpec
from trainmaster.plan.fields.data import DataSpec
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.frameworks import framework_of, method_of
from trainmaster.plan.spec.container_checks import container_problems
from trainmaster.plan.spec.method_checks import framework_problems
from trainmaster.plan.spec.model_checks import model_problems
from trainmaster.plan.spec.optimizer_checks import optimizer_problems, schedule_problems
from trainmaster.plan.spec.phase_checks import phase_problems
from trainmaster.plan.spec.preset_checks import preset_problems
from trainmaster.plan.spec.script_checks import data_problems, script_problems
from trainmaster.plan.spec.tokenizer_checks import tokenizer_problems
from trainmaster.settings.secret_names import ACCEPTED, is_operators, name_problem

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(
    r"(?i)secret|passw(or)?d|credential|connection_string|access_key_id|(key|token)$"
)
# Places that are no machine among several.
_NO_NODES = ("local", "debug", "kaggle")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@/:=-]*")
_BEST_BY = ("auto", "val_loss", "val_perplexity")
# Methods whose loss has no perplexity, with their further metrics.
_BEST_BY_METHOD = {
    "dpo": ("auto", "val_loss", "val_rewards/margins", "val_rewards/accuracies"),
    "kto": ("auto", "val_loss", "val_rewards/margins"),
    "reward": ("auto", "val_loss", "val_accuracy", "val_margin"),
    "grpo": ("auto", "val_loss", "val_reward"),
}


def problems(spec: TrainingSpec) -> list[Problem]:
    """Problems between fields that are valid by themselves."""
    if spec.script is not None and framework_of(spec).runs_program:
        return [
            *script_problems(spec.script),
            *data_problems(spec.script, spec.data.sources),
            *_place_problems(spec),
            *_variable_problems(spec.env),
            *_secret_problems(spec),
            *_environment_problems(spec),
            *container_problems(spec),
            *_host_problems(spec),
            *_label_problems(spec.labels),
            *_alert_problems(spec),
        ]
    return [
        *model_problems(spec.model, spec.objective),
        *preset_problems(spec),
        *_source_problems(spec.data),
        *tokenizer_problems(spec),
        *_place_problems(spec),
        *_batch_problems(spec),
        *_length_problems(spec),
        *schedule_problems(spec),
        *optimizer_problems(spec),
        *_metric_problems(spec),
        *_early_stopping_problems(spec),
        *phase_problems(spec, _reported(spec)),
        *_variable_problems(spec.env),
        *_secret_problems(spec),
        *_environment_problems(spec),
        *container_problems(spec),
        *_host_problems(spec),
        *_label_problems(spec.labels),
        *_alert_problems(spec),
        *framework_problems(spec),
    ]


def _source_problems(data: DataSpec) -> Iterator[Problem]:
    if not data.sources:
        yield wrong_value(
            "data.sources", "is empty.", "Name at least one file or folder by its path."
        )
    counts = Counter(source.name for _, source in data.inputs if source.name is not None)
    for field, source in data.inputs:
        if source.name is not None and counts[source.name] > 1:
            counts[source.name] = 0
            yield wrong_value(
                f"{field}.name",
                f"is {source.name!r}, and so is another source's.",
                "Give every source a unique name.",
            )


def _place_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Problems of sources on the host, on the hub and in object stores."""
    for field, source in spec.data.inputs:
        if source.path.startswith((HUB, *STORES)):
            yield from _fetched_problems(spec, field, source.path)
        if not source.path.startswith(ON_BOX):
            continue
        path = source.path.removeprefix(ON_BOX)
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
            yield wrong_value(
                f"{field}.path",
                f"is {source.path!r}, which is not a plain absolute path of the host.",
                "Give it as host:/folder or host:/folder/file, without `..` or a slash at its end.",
            )
        elif spec.data.prepare == "here":
            yield wrong_value(
                "data.prepare",
                f"is here, but source {source.name!r} is on the host.",
                "Set it to box, or to auto.",
            )


def _fetched_problems(spec: TrainingSpec, field: str, path: str) -> Iterator[Problem]:
    on_hub = path.startswith(HUB)
    if not on_hub and StoreAddress.find(path) is None:
        yield wrong_value(
            f"{field}.path",
            f"is {path!r}, which is not an address of an object store.",
            "Give it as s3://bucket/prefix (or gs://, az://): a plain key, without wildcards.",
        )
    elif on_hub and DatasetAddress.find(path) is None:
        yield wrong_value(
            f"{field}.path",
            f"is {path!r}, which is not an address of a data set on the hub.",
            "Give it as hf://owner/name, with @REVISION, #CONFIG and :SPLIT behind it as needed: "
            "hf://owner/name@main#en:train.",
        )
    elif spec.data.prepare == "here":
        yield wrong_value(
            "data.prepare",
            f"is here, but the host fetches {path}.",
            "Set it to box, or to auto.",
        )


def _batch_problems(spec: TrainingSpec) -> Iterator[Problem]:
    """Problems of the spec's own step: one that is left out has room for the micro-batch."""
    seq_len = spec.data.seq_len
    if "tokens" not in spec.batch.model_fields_set:
        return
    if spec.batch.tokens < seq_len:
        yield wrong_value(
            "batch.tokens",
            f"is {spec.batch.tokens}, less than one sequence of `data.seq_len` {seq_len}.",
            f"Set batch.tokens to at least {seq_len}.",
        )
    elif isinstance(spec.batch.micro_batch, int):
        least = spec.batch.micro_batch * seq_len
        if least > spec.batch.tokens:
            yield wrong_value(
                "batch.micro_batch",
                f"is {spec.batch.micro_batch}: with `data.seq_len` {seq_len} that is {least} "
                f"tokens at once, more than `batch.tokens` {spec.batch.tokens}.",
                f"Set batch.micro_batch to at most {spec.batch.tokens // seq_len}, or "
                f"batch.tokens to at least {least}.",
            )


def _length_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if spec.tokens == "auto" and (spec.continues or method_of(spec) != "pretrain"):
        yield wrong_value(
            "tokens",
            "is auto, which goes by what new weights have to learn, but this model is tuned.",
            "Give steps, a number of tokens, or method_args.epochs.",
        )
    if isinstance(spec.tokens, int) and spec.tokens < spec.step_tokens:
        yield wrong_value(
            "tokens",
            f"is {spec.tokens}, less than one step of {spec.step_tokens} (`batch.tokens`).",
            f"Set tokens to at least {spec.step_tokens}, or batch.tokens to less.",
        )
    warmup = spec.schedule.warmup_steps
    if isinstance(spec.steps, int) and isinstance(warmup, int) and warmup > spec.steps:
        yield wrong_value(
            "schedule.warmup_steps",
            f"is {warmup}, longer than the whole run of {spec.steps} steps.",
            f"Set schedule.warmup_steps to at most {spec.steps}, or to auto.",
        )


def _metric_problems(spec: TrainingSpec) -> Iterator[Problem]:
    metric, metrics = spec.checkpoint.metric, _reported(spec)
    if metric not in metrics:
        yield wrong_value(
            "checkpoint.metric", f"is {metric!r}.", f"It takes one of {', '.join(metrics)}."
        )


def _early_stopping_problems(spec: TrainingSpec) -> Iterator[Problem]:
    early, metrics = spec.eval.early_stopping, _reported(spec)
    if early is None:
        return
    if early.metric not in metrics:
        yield wrong_value(
            "eval.early_stopping.metric",
            f"is {early.metric!r}, which nothing reports.",
            f"It takes one of {', '.join(metrics)}.",
        )
    after = (early.patience + 1) * spec.eval.every_steps
    if spec.steps is not None and after > spec.steps:
        yield wrong_value(
            "eval.early_stopping.patience",
            f"is {early.patience}, so that it could end after step {after} at the earliest, behind "
            f"the run's {spec.steps}.",
            "Lower it or eval.every_steps, or remove eval.early_stopping.",
        )


def _reported(spec: TrainingSpec) -> list[str]:
    """The metrics that an evaluation reports."""
    metrics = [*_BEST_BY_METHOD.get(spec.method, _BEST_BY)]
    if spec.checkpoint.ema is not None:
        metrics.append("val_loss_ema")
    evaluated = spec.data.validation or spec.data.sources
    if len(evaluated) > 1:
        metrics += [f"val_loss/{source.name}" for source in evaluated if source.name]
    return metrics


def _variable_problems(variables: Iterable[str]) -> Iterator[Problem]:
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            yield wrong_value(
                f"env.{name}",
                "is not a valid name of an environment variable.",
                "Use letters, digits and underscores, not starting with a digit.",
            )
        elif _SECRET.search(name):
            yield Problem(
                "SECRET_IN_SPEC",
                f"env.{name}",
                f"`env.{name}` appears to be a secret; values in `env` are written into the run's "
                "files.",
                f"Remove it from env and list its name under secrets: [{name}].",
            )


def _secret_problems(spec: TrainingSpec) -> Iterator[Problem]:
    for index, name in enumerate(spec.secrets):
        if is_operators(name):
            yield Problem(
                "SECRET_NOT_ALLOWED",
                f"secrets[{index}]",
                f"`secrets[{index}]` is {name}, which rents machines or opens an account: it "
                "never leaves this machine.",
                f"Remove {name} from secrets.",
            )
            continue
        wrong = name_problem(name)
        if wrong is None and name in spec.secrets[:index]:
            wrong = "is listed twice"
        if wrong is None and name in spec.env:
            wrong = "is under `env` too"
        if wrong is not None:
            yield wrong_value(
                f"secrets[{index}]", f"is {name!r}, which {wrong}.", f"Give {ACCEPTED}, once."
            )


def _environment_problems(spec: TrainingSpec) -> Iterator[Problem]:
    environment = spec.environment
    if not isinstance(environment, EnvironmentSpec):
        return
    python = environment.python
    if python is not None and "/" in python and not python.startswith("/"):
        yield wrong_value(
            "environment.python",
            f"is {python!r}, which says nothing on {spec.host}.",
            f"Give its absolute path on {spec.host}, or its name alone.",
        )
    host, colon, _ = (environment.wheels or "").partition(":/")
    if colon and "/" not in host and host != spec.host:
        yield wrong_value(
            "environment.wheels",
            f"is a folder of {host}, but the training runs on {spec.host}.",
            f"Give a folder of this machine, or {spec.host}:/path.",
        )
    for index, name in enumerate(environment.modules or []):
        if not _MODULE.fullmatch(name):
            yield wrong_value(
                f"environment.modules[{index}]",
                f"is {name!r}, which is not a module's name.",
                "Give names such as cuda/12.4, without options.",
            )


def _host_problems(spec: TrainingSpec) -> Iterator[Problem]:
    if not spec.other_hosts:
        return
    if spec.compute.launcher != "process":
        yield Problem(
            "NOT_YET_SUPPORTED",
            "compute.launcher",
            f"`compute.launcher` is {spec.compute.launcher}, which is not built for several hosts.",
            "Leave `compute.launcher` out, or give host a single name.",
        )
    hosts = [spec.host, *spec.other_hosts]
    is_given = "nodes" in spec.compute.model_fields_set
    if is_given and spec.compute.nodes != len(hosts):
        yield wrong_value(
            "compute.nodes",
            f"is {spec.compute.nodes}, but `host` lists {len(hosts)} machines.",
            "Leave compute.nodes out.",
        )
    for index, name in enumerate(hosts):
        if name in _NO_NODES:
            yield wrong_value(
                "host",
                f"names {name} among several hosts, which {name} can't be.",
                f"List hosts that {command('hosts')} shows, or give host a single name.",
            )
        elif name in hosts[:index]:
            yield wrong_value("host", f"names {name} twice.", "Name each host once.")


def _label_problems(labels: Iterable[str]) -> Iterator[Problem]:
    for name in labels:
        if not NAME_PATTERN.fullmatch(name):
            yield wrong_value(f"labels.{name}", "is not a valid name.", f"Use {NAME_ACCEPTED}.")


def _alert_problems(spec: TrainingSpec) -> Iterator[Problem]:
    for index, alert in enumerate(spec.alerts):
        if any(earlier.name == alert.name for earlier in spec.alerts[:index]):
            problem = f"is {alert.name!r}, as is an earlier one's."
            yield wrong_value(f"alerts[{index}].name", problem, "Give every alert a unique name.")
        field = f"alerts[{index}].when"
        try:
            unknown = unknown_code(parse_condition(alert.when))
        except ConditionError as error:
            problem = f"`{field}` is {alert.when!r}. {error.message}"
            yield Problem("CONDITION_INVALID", field, problem, error.fix)
            continue
        if unknown is not None:
            problem = f"`{field}` names the finding {unknown[0]!r}, which does not exist."
            fix = (
                f"There are {', '.join(unknown[1])}."
                if unknown[1]
                else "docs/diagnosis.md lists them."
            )
            yield Problem("CONDITION_INVALID", field, problem, fix)
