"""What agents and people may say of a cluster when they add it."""

from __future__ import annotations

import pytest

from trainmaster.errors.errors import UsageError
from trainmaster.machines.host_options import HostOptions, host_record, slurm_options


def test_options_of_jobs_are_read_from_words() -> None:
    assert slurm_options("") == {}
    assert slurm_options("yes") == {"launcher": "slurm"}
    given = slurm_options("partition=gpu gres=gpu:a100 modules=cuda/12.4,python/3.11")
    record = host_record("cluster", "me@login", HostOptions(**given))
    assert (record.launcher, record.partition, record.gres) == ("slurm", "gpu", "gpu:a100")
    assert record.modules == "cuda/12.4,python/3.11"


@pytest.mark.parametrize("text", ["no", "partition", "partition=", "root=/etc", "yes nodes=2"])
def test_a_word_that_is_no_option_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        slurm_options(text)
    assert refused.value.field == "slurm"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"launcher": "slurm", "modules": "a;b"}, "--module"),
        ({"launcher": "slurm", "qos": "a\nb"}, "--qos"),
        ({"modules": "cuda"}, "--module"),
        ({"launcher": "slurm", "gres": "gpu:a100:4"}, "--gres"),
        ({"launcher": "slurm", "gres": "nvme:1,gpu:2"}, "--gres"),
        ({"launcher": "slurm", "gres": "gpu:"}, "--gres"),
        ({"launcher": "slurm", "time": "1-00:00:00"}, "--time"),
        ({"launcher": "slurm", "time": "1m"}, "--time"),
        ({"time": "12h"}, "--time"),
    ],
)
def test_an_option_that_is_shell_text_or_of_no_cluster_is_refused(
    options: dict[str, str], field: str
) -> None:
    with pytest.raises(UsageError) as refused:
        host_record("cluster", "me@login", HostOptions(**options))  # type: ignore[arg-type]
    assert refused.value.field == field
