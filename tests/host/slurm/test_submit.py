"""What a login node's own surroundings do to a submission."""

from __future__ import annotations

import pytest

from trainer_runtime.host.slurm.programs import SlurmError, environment, login_environment
from trainer_runtime.host.slurm.submit import submitted_job


@pytest.mark.parametrize("output", ["42\n", "42;cluster\n", "Welcome!\n7 days left\n42\n"])
def test_a_jobs_number_is_found_behind_what_a_site_prints(output: str) -> None:
    assert submitted_job(output) == 42


def test_an_output_without_a_number_is_refused() -> None:
    with pytest.raises(SlurmError, match="no job's number"):
        submitted_job("Submitted batch job\n")


def test_a_login_shell_can_not_override_what_the_script_says_nor_shorten_lists() -> None:
    given = {"SBATCH_REQUEUE": "1", "SBATCH_ACCOUNT": "physics", "PATH": "/usr/bin"}
    given |= {"SQUEUE_PARTITION": "debug", "SINFO_PARTITION": "debug", "SACCT_LOCAL": "1"}
    assert environment(given) == {"SBATCH_ACCOUNT": "physics", "PATH": "/usr/bin"}


def test_a_step_of_its_own_belongs_to_no_job_and_is_charged_as_jobs_are() -> None:
    given = {"SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "physics"}
    found = login_environment({"SLURM_JOB_ID": "7", **given})
    assert found == {**given, "SLURM_ACCOUNT": "physics"}
