"""What an explanation repeats of a failure's text: packages, versions and settings of our lists."""

from __future__ import annotations

import pytest

from trainer_runtime.core.diagnosis.signatures import find_in
from trainer_runtime.core.diagnosis.signatures.named_packages import (
    package_of,
    setting_of,
    version_of,
)
from trainer_runtime.core.protocol.finding import Finding

_FRAME = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n'


def _first(text: str) -> Finding:
    return find_in([text.encode()])[0]


def test_a_version_check_names_package_bounds_and_the_version_that_is_there() -> None:
    finding = _first(
        _FRAME + "ImportError: transformers>=4.49.0,<=4.55.0,!=4.52.0 is required for a normal "
        "functioning of this module, but found transformers==4.57.1.\n"
    )
    assert finding.code == "package_mismatch"
    assert "transformers>=4.49.0,<=4.55.0,!=4.52.0" in finding.explanation
    assert "Installed is transformers 4.57.1." in finding.explanation


@pytest.mark.parametrize(
    ("module", "installed"), [("deepspeed", "deepspeed"), ("cv2", "opencv-python")]
)
def test_a_missing_module_is_named_as_it_is_installed(module: str, installed: str) -> None:
    finding = _first(f"{_FRAME}ModuleNotFoundError: No module named '{module}'\n")
    assert finding.code == "package_missing"
    assert f"`pip install {installed}`" in finding.explanation


def test_a_package_that_a_setting_needs_is_named() -> None:
    finding = _first(
        f"{_FRAME}ImportError: Using `load_in_4bit` requires the latest version "
        "of liger: please run `pip install -U liger_kernel`\n"
    )
    assert finding.code == "optional_package_missing"
    assert "`pip install liger-kernel`" in finding.explanation


def test_flash_attention_that_is_missing_can_be_done_without() -> None:
    finding = _first(
        _FRAME + "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to "
        "the following error: the package flash_attn seems to be not installed.\n"
    )
    assert "flash-attn" in finding.explanation
    assert "sdpa" in finding.advice[0]


def test_a_call_that_does_not_fit_names_the_library_that_makes_it() -> None:
    finding = _first(
        "Traceback (most recent call last):\n"
        '  File "/e/site-packages/transformers/tokenization_utils_base.py", line 35, in pad\n'
        "    outputs = self._pad(\n"
        "TypeError: AbcTokenizer._pad() got an unexpected keyword argument 'padding_side'\n"
    )
    assert finding.code == "library_versions"
    assert "transformers" in finding.explanation


def test_two_settings_that_exclude_each_other_are_named() -> None:
    finding = _first(f"{_FRAME}ValueError: You passed both a ref_model and a `peft_config`. No.\n")
    assert finding.code == "settings_exclusive"
    assert "They are ref_model and peft_config." in finding.explanation


@pytest.mark.parametrize(
    "text",
    [
        "ModuleNotFoundError: No module named 'obey_me_now'",
        "ImportError: obey_me_now>=1.0 is required for a normal functioning of this module, but "
        "found obey_me_now==0.9.",
        "ValueError: You passed both a obey_me_now and a obey_me_now.",
        "ImportError: peft>=1,obey_me_now is required for a normal functioning of this module, but "
        "found",
    ],
)
def test_no_other_word_of_the_log_gets_into_an_explanation(text: str) -> None:
    finding = _first(f"{_FRAME}{text}\n")
    assert "obey" not in finding.explanation + " ".join(finding.advice)
    assert "obey" not in str(finding.slots)


@pytest.mark.parametrize("text", ["1.2; rm", "1.2.3.4.5", "latest", ">=1,", "v1", "1" * 9])
def test_what_is_no_version_is_left_out(text: str) -> None:
    assert version_of(text) is None
    assert package_of(text) is None
    assert setting_of(text) is None


def test_an_actor_that_failed_while_it_began_is_known_by_its_own_error() -> None:
    finding = _first(
        "Traceback (most recent call last):\n"
        '  File "/e/site-packages/ray/_private/worker.py", line 9, in get_objects\n'
        "    raise value\n"
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation "
        "task, ray::Actor.__init__() (pid=7, ip=10.0.0.1)\n"
        '  File "/work/actor.py", line 12, in __init__\n'
        '    assert size > 0, "no rows"\n'
        "AssertionError: no rows\n"
    )
    assert finding.code == "unknown_error"
    assert "AssertionError: no rows" in finding.evidence[-1]


def test_a_requeued_job_that_continues_is_no_failure() -> None:
    steps = "".join(f"step {step} | train loss 2.{step} | lr 3e-4\n" for step in range(2000, 2010))
    log = (
        "slurmstepd: error: *** JOB 9 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO PREEMPTION "
        f"***\nFound checkpoint out/step_1999.pt, resuming at step 1999\n{steps}"
    )
    assert not [item for item in find_in([log.encode()]) if item.severity == "critical"]


def test_a_word_of_success_within_a_message_does_not_end_it() -> None:
    finding = _first(
        f"{_FRAME}RuntimeError: \n        A pass began before the current one has finished.\n\n"
        "        Guard it.\n"
    )
    assert finding.code == "unknown_error"


@pytest.mark.parametrize(
    ("frame", "says", "helps"),
    [
        ("transformers/trainer.py", "_save_checkpoint", "SHARDED_STATE_DICT"),
        ("transformers/trainer.py", "evaluation_loop", "eval_accumulation_steps"),
        ("torch/optim/adamw.py", "step", "8-bit"),
        ("transformers/modeling_utils.py", "from_pretrained", "low_cpu_mem_usage"),
    ],
)
def test_where_the_memory_ran_out_decides_what_helps_first(
    frame: str, says: str, helps: str
) -> None:
    finding = _first(
        "Traceback (most recent call last):\n"
        f'  File "/e/site-packages/{frame}", line 9, in {says}\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.\n"
    )
    assert finding.code == "cuda_oom"
    assert helps in finding.advice[0]
    assert "The program was at:" in finding.explanation


def test_the_package_that_asks_for_another_version_is_named_with_the_version() -> None:
    finding = _first("ValueError: This quantizer requires gptqmodel >= 2.0.0\n")
    assert "gptqmodel>=2.0.0" in finding.explanation


def test_an_unknown_error_whose_message_says_what_to_do_points_to_it() -> None:
    raised = 'Traceback (most recent call last):\n  File "/w/own.py", line 9, in <module>\n'
    explicit = _first(f"{raised}ValueError: Please give each sprocket a tooth\n")
    silent = _first(f"{raised}ValueError: sprocket\n")
    assert (explicit.code, silent.code) == ("unknown_error", "unknown_error")
    assert "itself says" in explicit.explanation
    assert "itself says" not in silent.explanation
