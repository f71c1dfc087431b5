"""Planning for a machine that is given out in sessions: the calendar, and what sessions lack."""

from __future__ import annotations

import pytest

from trainmaster.backends.kaggle.client import Quota
from trainmaster.backends.kaggle.machine_types import documented
from trainmaster.errors.errors import CloudError, PlanError
from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.decisions.session_calendar import Calendar, calendar
from trainmaster.plan.facts import SessionFacts
from trainmaster.plan.spec import load_spec
from trainmaster.settings.settings import KaggleSettings

HOUR_S = 3600.0
NOW = 1_700_000_000.0
IN_A_DAY = NOW + 24 * HOUR_S
SPEC = """\
name: small
framework: nanogpt
model: {n_layer: 4, n_head: 4, d_model: 128}
data: {sources: [{name: main, path: /corpus}]}
steps: 200
host: kaggle
"""


def sessions(left_h: float = 30.0) -> SessionFacts:
    return SessionFacts(
        hours=12.0,
        usable_hours=11.5,
        internet=True,
        quota_left_h=left_h,
        quota_total_h=30.0,
        refresh_t=IN_A_DAY,
    )


def kaggle(left_h: float = 30.0, **settings: object) -> HostFacts:
    quota = Quota((30.0 - left_h) * HOUR_S, 30.0 * HOUR_S, IN_A_DAY)
    return documented(KaggleSettings(**settings), quota, "/tmp/cache", NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accelerator", "gpus"),
    [
        ("NvidiaTeslaT4", ["NVIDIA T4"] * 2),
        ("NvidiaL4", ["NVIDIA L4"] * 4),
        ("NvidiaL4X1", ["NVIDIA L4"]),
        ("NvidiaTeslaA100", ["NVIDIA A100-40"]),
        ("NvidiaH100", ["NVIDIA H100"]),
        ("NvidiaRtxPro6000", ["NVIDIA PRO6000"]),
    ],
)
def test_a_session_has_the_gpus_of_the_accelerators_exact_name(
    accelerator: str, gpus: list[str]
) -> None:
    assert [gpu.name for gpu in kaggle(accelerator=accelerator).gpus] == gpus


@pytest.mark.parametrize(
    ("accelerator", "said"),
    [
        ("NvidiaTeslaP100", "retired it, and gives NvidiaTeslaT4"),
        ("TpuV38", "gives TpuV5E8 in its place, and no framework here trains on TPUs"),
        ("Tpu1VmV38", "gives TpuV5E8"),
        ("TpuV5E8", "no framework here trains on TPUs"),
        ("TpuV232", "no framework here trains on TPUs"),
        ("NvidiaTeslaT4Highmem", "no accelerator of this exact name"),
        ("nvidiateslat4", "no accelerator of this exact name"),
        ("", "no accelerator of this exact name"),
    ],
)
def test_any_other_accelerator_is_refused_with_the_list(accelerator: str, said: str) -> None:
    with pytest.raises(CloudError) as error:
        kaggle(accelerator=accelerator)
    assert error.value.code == "UNSUPPORTED" and said in error.value.message
    assert "NvidiaTeslaT4, NvidiaL4, NvidiaL4X1" in str(error.value.fix)


def planned(corpus: CorpusFacts, facts: HostFacts, *sets: str) -> Plan:
    return plan(load_spec(SPEC, sets), facts, corpus)


@pytest.mark.parametrize(
    ("hours", "left_h", "uses_quota", "expected"),
    [
        (5.0, 30.0, True, Calendar(1, NOW + 5 * HOUR_S, 0)),
        (20.0, 30.0, True, Calendar(2, NOW + 20.5 * HOUR_S, 0)),
        (20.0, 30.0, False, Calendar(2, NOW + 20.5 * HOUR_S, 0)),
        (5.0, 0.0, True, Calendar(1, IN_A_DAY + 5 * HOUR_S, 1)),
        (5.0, 0.0, False, Calendar(1, NOW + 5 * HOUR_S, 0)),
        (20.0, 5.0, True, Calendar(3, IN_A_DAY + 16 * HOUR_S, 1)),
        # A quarter of an hour is left after the first session: not worth a start.
        (12.5, 12.25, True, Calendar(2, IN_A_DAY + 1.0 * HOUR_S, 1)),
    ],
)
def test_the_calendar_counts_sessions_and_weeks(
    hours: float, left_h: float, uses_quota: bool, expected: Calendar
) -> None:
    assert calendar(sessions(left_h), hours, NOW, uses_quota=uses_quota) == expected


def test_what_never_ends_has_no_calendar() -> None:
    short = sessions().model_copy(update={"quota_total_h": 0.5, "quota_left_h": 0.2})
    assert calendar(short, 5.0, NOW, uses_quota=True) is None
    assert calendar(sessions(), 1e6, NOW, uses_quota=True) is None


def test_t4s_train_in_half_precision_and_the_plan_has_their_sessions(
    text_corpus: CorpusFacts,
) -> None:
    made = planned(text_corpus, kaggle())
    assert made.config["precision"] == "fp16"
    assert made.config["compute"]["device"] == "cuda"
    assert made.estimates.sessions == 1
    assert made.estimates.finish_at is not None
    assert "sessions" in {decision.field for decision in made.decisions}


def test_a_spent_quota_is_warned_of_where_it_counts(text_corpus: CorpusFacts) -> None:
    made = planned(text_corpus, kaggle(left_h=0.0))
    (warning,) = [warning for warning in made.warnings if "quota" in warning]
    assert "quota is spent" in warning
    assert made.estimates.finish_at is not None
    assert made.estimates.finish_at > "2023-11-15T22"  # a day later
    on_cpu = planned(text_corpus, kaggle(left_h=0.0), "compute.gpus=0")
    assert not any("quota" in warning for warning in on_cpu.warnings)


def test_what_needs_the_internet_is_refused_without(text_corpus: CorpusFacts) -> None:
    offline = kaggle(internet=False)
    assert planned(text_corpus, offline).config["name"] == "small"
    with pytest.raises(PlanError) as error:
        planned(text_corpus, offline, "framework=litgpt")
    assert error.value.code == "INTERNET_NEEDED"
    assert "litgpt" in error.value.message
    planned(text_corpus, offline, "framework=litgpt", "environment=existing")


def test_checkpoints_that_exceed_the_output_are_refused(text_corpus: CorpusFacts) -> None:
    sets = ("checkpoint.keep_latest=20", "model={preset: gpt2-124m}", "data.seq_len=64")
    with pytest.raises(PlanError) as error:
        planned(text_corpus, kaggle(), *sets)
    assert error.value.code == "DISK_TOO_SMALL"


def test_shards_are_cut_here_where_this_machine_can(text_corpus: CorpusFacts) -> None:
    assert planned(text_corpus, kaggle()).config["data"]["prepare"] != "here"  # nothing is sent
    sent = text_corpus.sources[0].model_copy(update={"sent_as": "main"})
    corpus = text_corpus.model_copy(update={"sources": (sent,), "listing": "0" * 16})
    made = planned(corpus, kaggle())
    assert made.config["data"]["prepare"] == "here"
    assert planned(corpus, kaggle(), "data.prepare=box").config["data"]["prepare"] == "box"
