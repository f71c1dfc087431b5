"""A log file is diagnosed with nothing but the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from failure_samples import FAILURES

from trainmaster.diagnosis.of_file import diagnose_file


def test_the_answer_has_the_shape_that_programs_rely_on(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 9 loss 2.0\n" + FAILURES["cuda_oom"][0] + "\n")
    answer = diagnose_file(log).model_dump(mode="json", by_alias=True)
    assert answer["read_bytes"] == log.stat().st_size
    (found,) = answer["findings"]
    assert found["code"] == "cuda_oom"
    assert found["step"] == 9
    assert found["severity"] == "critical"
    assert found["patches"] == []
    assert {"id", "confidence", "evidence", "explanation"} <= found.keys()


def test_a_healthy_log_has_no_findings(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 9 loss 2.0\n" * 100)
    assert diagnose_file(log).findings == []


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        diagnose_file(tmp_path / "missing.log")
