"""What the lines mean: steps, segments, ranks, times, units, events."""

from __future__ import annotations

import pytest
from support.core.parsed_logs import columns

from trainer_runtime.core.diagnosis.parse import LogParser, Parsed


def parse(log: bytes) -> tuple[LogParser, Parsed]:
    parser = LogParser()
    parsed = parser.feed(log)
    parsed.extend(parser.close())
    return parser, parsed


def bar(at: int, total: int = 20) -> str:
    return f"\r {5 * at}%|███   | {at}/{total} [00:04<00:21,  1.31s/it]"


def hf(loss: float, epoch: float = 0.0) -> str:
    return f"{{'loss': '{loss}', 'grad_norm': '1.1', 'learning_rate': '0.001', 'epoch': '{epoch}'}}"


def test_a_step_that_goes_back_opens_a_new_segment() -> None:
    log = b"".join(b"step=%d loss=%d.5\n" % (step, step) for step in (1, 2, 3, 2, 3, 4))
    points = list(parse(log)[1])
    assert [(point.step, point.segment) for point in points] == [
        (1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (4, 1),
    ]  # fmt: skip


def test_an_evaluation_of_the_same_step_opens_none() -> None:
    log = b"step 25: train loss 3.8, val loss 3.9\niter 25: loss 3.7, time 9.00ms, mfu 0.10%\n"
    assert {point.segment for point in parse(log)[1]} == {0}


def test_points_are_separate_for_each_rank() -> None:
    lines = [
        b"[rank0]: step=1 loss=3.0", b"[rank1]: step=1 loss=4.0", b"[default3]:step=1 loss=5.0",
        b"2: step=1 loss=6.0", b"[1,4]<stdout>:step=1 loss=7.0", b"[rank: 5] step=1 loss=8.0",
        b"[2026-08-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 6] step=1, skipped=0,"
        b" lr=[5e-05]",
    ]  # fmt: skip
    points = list(parse(b"\n".join(lines))[1])
    assert [(point.rank, point.value) for point in points if point.key == "loss"] == [
        (0, 3.0), (1, 4.0), (3, 5.0), (2, 6.0), (4, 7.0), (5, 8.0),
    ]  # fmt: skip
    assert {point.rank for point in points if point.key == "lr"} == {6}


def test_the_same_line_of_several_ranks_stands_once() -> None:
    log = b"".join(b"step=%d loss=2.5\n" % step * 4 for step in range(50))
    assert columns(log, "loss")[0] == list(range(50))


def test_glued_lines_are_read_apart() -> None:
    log = b"[Rank 7] (after 20 iterations) memory (MB) | allocated: 1024.0[Rank 6] (after 20 "
    log += b"iterations) memory (MB) | allocated: 2048.0\n"
    assert columns(log, "memory_allocated_gib", rank=7) == ([20], [1.0])
    assert columns(log, "memory_allocated_gib", rank=6) == ([20], [2.0])
    twice = (bar(4)[1:] + hf(6.5) + hf(6.25, 0.1)).encode()
    assert columns(twice, "loss")[1] == [6.5, 6.25]


def test_the_bar_below_an_hf_line_has_its_step() -> None:
    log = bar(0) + f"\r{' ' * 40}\r" + hf(6.9) + "\n" + bar(1) + bar(4) + "\r" + hf(6.5) + "\n"
    log += bar(5) + bar(7)
    steps, values = columns(log.encode(), "loss")
    assert (steps, values) == ([1, 5], [6.9, 6.5])


def test_the_bar_above_will_do_where_none_follows() -> None:
    log = bar(7) + "[2026-08-01] [INFO] something glued on\n" + " " * 20 + "\n" + hf(6.9)
    assert columns(log.encode(), "loss") == ([7], [6.9])


def test_an_hf_line_without_a_bar_has_its_step_from_the_epoch() -> None:
    log = "  Num update steps per epoch = 160\n" + hf(6.9, 0.00625) + "\n" + hf(6.5, 0.0625) + "\n"
    parsed = parse(log.encode())[1]
    assert [point.step for point in parsed if point.key == "loss"] == [1, 10]
    assert all(point.inferred for point in parsed)


def test_the_callback_has_the_step_and_the_rounded_line_is_its_repeat() -> None:
    log = b'CB on_log 5 {"loss": 6.90524435, "grad_norm": 1.163937, "epoch": 0.0314465} []\n'
    log += b"{'loss': '6.905', 'grad_norm': '1.164', 'epoch': '0.03145'}\n"
    assert columns(log, "loss") == ([5], [6.90524435])


def test_a_loss_of_0_beside_a_grad_norm_of_nan_was_not_finite() -> None:
    log = b"{'loss': '0', 'grad_norm': 'nan', 'epoch': '0.1'}\n{'loss': '0', 'grad_norm': '1', "
    values = columns(log + b"'epoch': '0.2'}\n", "loss")[1]
    assert [str(value) for value in values] == ["nan", "0.0"]


def test_a_summary_is_never_the_loss() -> None:
    log = b"{'train_runtime': 3.7, 'train_steps_per_second': 2.1, 'train_loss': 0.69, 'epoch': 1}\n"
    keys = {point.key for point in parse(hf(2.5).encode() + b"\n" + log)[1]}
    assert "train_loss_mean" in keys and columns(log, "loss") == ([], [])


def test_micro_batches_are_counted_back_to_steps() -> None:
    log = b"Epoch 1 | iter 40 step 10 | loss train: 6.5, val: n/a | iter time: 4.78 ms (step)"
    log += b" remaining time: 0:00:00\niter 80: val loss 6.4313, val time: 7.89 ms\n"
    assert columns(log, "val_loss") == ([20], [6.4313])


def test_units_are_normalised() -> None:
    log = b"iter 7: loss 4.3851, time 308.62ms, mfu 41.50%\n"
    assert columns(log, "step_time_s")[1] == [0.30862]
    assert columns(log, "mfu")[1] == [41.5 * 0.01]
    assert columns(b"step:1/2 val_loss:3.0 train_time:0ms\npeak memory consumption: 2048 MiB\n",
                   "peak_memory_gib") == ([1], [2.0])  # fmt: skip


def test_the_lines_time_and_offset_are_read() -> None:
    line = b"2026-08-01 10:00:01,500 - INFO - step: 10  loss:  7.5  grad_norm:  1.0\n"
    (point, _) = parse(b"noise\n" + line)[1]
    assert (point.t, point.line_offset) == (1785578401.5, 6)
    (point,) = parse(b'{"step": 1, "loss": 2.5, "ts": 1790000000.25}\n')[1]
    assert point.t == 1790000000.25


def test_events_carry_their_step() -> None:
    log = b"iter 7: loss 4.3851, time 308.62ms, mfu 41.50%\nsaving checkpoint to out\n"
    (event,) = parse(log)[1].events
    assert (event.kind, event.step, event.text) == ("checkpoint", 7, "out")


def test_coverage_samples_lines_that_were_not_parsed() -> None:
    log = b"step=1 loss=2.0\nat step 17 of the plan\nno number here\nstep=2 loss=1.0\n"
    parser, _ = parse(log)
    coverage = parser.coverage
    assert (coverage.lines_with_numbers, coverage.lines_read) == (3, 2)
    assert coverage.samples == ["at step 17 of the plan"]


def test_a_log_with_the_metric_s_name_alone_counts_its_lines() -> None:
    assert columns(b"loss 0 1.25\nloss 1 1.125\n", "loss") == ([0, 1], [1.25, 1.125])


@pytest.mark.parametrize(
    ("line", "points", "target"),
    [
        ("step 20/400 nll: 2.5", [("loss", 20, 2.5)], 400),
        ("step 3 L=2.5", [("loss", 3, 2.5)], None),
        ("step 5 lm-loss: 2.5", [("loss", 5, 2.5)], None),
        ("ep: 0, batch: 20, loss: 3.5", [("epoch", 20, 0.0), ("loss", 20, 3.5)], None),
        ("batch: 32 loss 2.5", [], None),  # its size, for all that is known
    ],
)
def test_usual_names_of_home_made_loops_are_known(
    line: str, points: list[tuple[str, int, float]], target: int | None
) -> None:
    parser = LogParser()
    parsed = parser.feed(f"{line}\n".encode())
    assert [(point.key, point.step, point.value) for point in parsed] == points
    assert parser.total_steps == target


@pytest.mark.parametrize(
    ("line", "completes"),
    [
        ("`Trainer.fit` stopped: `max_epochs=2` reached.", True),
        ("INFO | fairseq_cli.train | done training in 123.4 seconds", True),
        ("[after training is done] datetime: 2026-01-01 10:00:00", True),
        ("Total training time: 2.05m", True),
        ("Finished training.", True),
        ("2026-01-01 10:00:00 - root - INFO - Training finished!", True),
        ("{'train_runtime': 9.1, 'train_loss': 2.5, 'epoch': 1.0}", True),
        ("[INFO|trainer_pt_utils.py:907] 10:00:00 >> ***** train metrics *****", True),
        ("Tokenizer training complete", False),
        ("Training completed epoch 1", False),
        ("Training time: 3 s", False),
    ],
)
def test_closing_lines_of_frameworks_end_a_training(line: str, completes: bool) -> None:
    events = LogParser().feed(f"step 5 loss 2.5\n{line}\n".encode()).events
    assert [event.kind for event in events] == (["completed"] if completes else [])
