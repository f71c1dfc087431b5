"""What operators and kernels of made-up steps add up to, as a GPU would record them."""

from __future__ import annotations

import pytest

from trainer_runtime.train.loop.profile_summary import MARK, Kernel, Mark, Operator, summarise

STEP_US = 1000.0


def _steps(count: int) -> tuple[list[Operator], list[Kernel], list[Mark]]:
    """Steps of 1 ms: 0.1 waits for data, then forward, backward, clipping and the optimizer; each
    with its kernels, and an evaluation after the second."""
    operators: list[Operator] = []
    kernels: list[Kernel] = []
    marks: list[Mark] = []

    def mark(at_us: float, kind: str, seconds: float = 0.0) -> None:
        add(f"{MARK}{len(marks)}", at_us, at_us, 0.0)
        marks.append(Mark(kind, seconds))

    def add(name: str, start_us: float, end_us: float, gpu_us: float, root: int = -1) -> None:
        place = len(operators)
        own_us = end_us - start_us
        operators.append(
            Operator(name, start_us, end_us, place if root < 0 else root, own_us, gpu_us)
        )

    def kernel(name: str, start_us: float, us: float) -> None:
        kernels.append(Kernel(name, start_us, start_us + us))

    at = 0.0
    for step in range(count):
        mark(at, "begin")
        add("aten::stack", at + 10, at + 90, 0.0)
        mark(at + 100, "data", 1e-4)
        add("aten::linear", at + 100, at + 200, 0.0)
        add("aten::mm", at + 120, at + 180, 150.0, root=len(operators) - 1)
        kernel("sgemm", at + 200, 150)
        add("aten::_log_softmax", at + 200, at + 220, 10.0)
        kernel("softmax", at + 360, 10)
        add("autograd::engine::evaluate_function: MmBackward0", at + 300, at + 600, 300.0)
        kernel("sgemm", at + 400, 300)
        add("aten::_foreach_norm", at + 700, at + 750, 50.0)
        kernel("norm", at + 750, 50)
        add("Optimizer.step#AdamW.step", at + 800, at + 950, 100.0)
        kernel("adam", at + 850, 100)
        kernel("Memcpy DtoH", at + 960, 20)
        mark(at + STEP_US, "end", 1e-3)
        at += STEP_US
        if step == 1:
            add("aten::linear", at + 100, at + 5000, 4000.0)
            kernel("sgemm", at + 200, 4000)
            at += 6000.0
    return operators, kernels, marks


def test_the_first_step_and_what_is_between_steps_are_left_out() -> None:
    summary = summarise(*_steps(5))
    assert (summary.steps, summary.us) == (4, 4 * STEP_US)
    assert summary.host == {
        "data": 0.1,
        "forward": 0.12,
        "backward": 0.3,
        "other": 0.05,
        "optimizer": 0.15,
        "outside": pytest.approx(0.28),
    }
    assert summary.gpu == {
        "forward": 0.16,
        "backward": 0.3,
        "optimizer": 0.1,
        "other": 0.05,
        "copies": 0.02,
        "idle": pytest.approx(0.37),
    }
    assert summary.kernels is not None
    assert summary.kernels.per_step == 6
    assert (summary.kernels.median_us, summary.kernels.median_gap_us) == (75.0, 30.0)


def test_operators_are_by_their_own_time_on_the_gpu() -> None:
    first, second, *_ = summarise(*_steps(3)).operators
    assert first.name.endswith("MmBackward0") and first.share == pytest.approx(300 / 610, abs=1e-3)
    assert (second.name, second.step_ms, second.calls) == ("aten::mm", 0.15, 1.0)


def test_attention_is_separate_from_the_softmax_of_the_loss() -> None:
    operators, kernels, marks = _steps(3)
    assert summarise(operators, kernels, marks).attention == 0.0
    renamed = [
        Operator(
            one.name.replace("aten::mm", "aten::_scaled_dot_product_flash_attention"),
            *(one.start_us, one.end_us, one.root, one.own_us, one.own_gpu_us),
        )
        for one in operators
    ]
    assert summarise(renamed, kernels, marks).attention == pytest.approx(150 / 610, abs=1e-3)


def test_without_a_gpu_operators_are_by_the_hosts_time() -> None:
    operators, _, marks = _steps(3)
    summary = summarise(operators, [], marks)
    assert summary.gpu == {} and summary.kernels is None
    assert summary.operators[0].step_ms == 0.3


def test_no_whole_step_is_an_error() -> None:
    with pytest.raises(ValueError, match="no step"):
        summarise(*_steps(1))
