"""Logs in the form of every dialect, made up: the numbers are ours, the forms the frameworks'."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator


def made_log(dialect: str, lines: int, seed: int = 0) -> bytes:
    """`lines` lines, more or less, of a training as `dialect` prints it; the same for a seed."""
    source = random.Random(f"{dialect} {seed}")
    return b"".join(line + b"\n" for line in DIALECTS[dialect](source, lines))


def _loss(source: random.Random, step: int) -> float:
    return 2.5 + 8 / (1 + step / 50) + source.gauss(0, 0.02)


def trainmaster(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        values = {"loss": _loss(source, step), "lr": 3e-4 - step * 1e-9, "grad_norm": 0.5}
        event = {"v": 1, "seq": step, "t": 1.79e9 + step, "kind": "metric", "step": step}
        yield json.dumps({**event, "values": values}, separators=(",", ":")).encode()


def nanogpt(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        loss = _loss(source, step)
        if step % 250 == 0:
            yield b"step %d: train loss %.4f, val loss %.4f" % (step, loss, loss + 0.05)
            if step:
                yield b"saving checkpoint to out-made-up"
        mfu = -100.0 if step < 5 else 38 + source.random()
        yield b"iter %d: loss %.4f, time %.2fms, mfu %.2f%%" % (
            step,
            loss,
            source.uniform(290, 310),
            mfu,
        )


def nanochat(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        if step % 250 == 0:
            yield b"Step %05d | Validation bpb: %.6f" % (step, source.random())
        yield (
            b"step %05d/%05d (%.2f%%) | loss: %.6f | lrm: %.2f | dt: %.2fms | tok/sec: %s"
            b" | bf16_mfu: %.2f | epoch: 1 pq: %d rg: %d | total time: %.2fm | eta: %.1fm"
        ) % (
            step,
            lines,
            100 * step / lines,
            _loss(source, step),
            1.0,
            source.uniform(500, 520),
            f"{source.randint(990_000, 1_030_000):,}".encode(),
            source.uniform(45, 46),
            step // 100,
            step % 100,
            step / 120,
            (lines - step) / 120,
        )


def modded_nanogpt(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        average = b"nan" if step < 10 else b"%.2f" % source.uniform(400, 410)
        if step % 125 == 0:
            yield b"step:%d/%d val_loss:%.4f train_time:%dms step_avg:%sms" % (
                step,
                lines,
                _loss(source, step),
                step * 400,
                average,
            )
        yield b"step:%d/%d train_loss:%.4f train_time:%dms step_avg:%sms" % (
            step + 1,
            lines,
            _loss(source, step),
            step * 400 + 361,
            average,
        )


def llmc(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        if step % 250 == 0:
            yield b"s:%d tel:%.4f" % (step, _loss(source, step))
        yield b"s:%d trl:%.4f lr:%.6f norm:%.2f" % (
            step,
            _loss(source, step),
            6e-4 * (1 - step / lines),
            source.uniform(0.2, 0.4),
        )


def litgpt(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        yield (
            b"Epoch 1 | iter %d step %d | loss train: %.3f, val: 7.056 | iter time: %.2f ms (step)"
            b" remaining time: 0:%02d:%02d"
        ) % (
            step * 2,
            step,
            _loss(source, step),
            source.uniform(4, 8),
            source.randrange(60),
            source.randrange(60),
        )
        if step % 200 == 0:
            yield b"Validating ..."
            yield b"iter %d: val loss %.4f, val time: 7.89 ms" % (step * 2, _loss(source, step))
            yield b"Saving checkpoint to 'out/tiny/step-%08d/lit_model.pth'" % step


def huggingface5(source: random.Random, lines: int) -> Iterator[bytes]:
    yield b"[transformers]   Num update steps per epoch = 1590"
    for step in range(1, lines + 1):
        metrics = {
            "loss": f"{_loss(source, step):.4g}",
            "grad_norm": f"{source.uniform(0.5, 2):.4g}",
            "learning_rate": f"{1e-3 * (1 - step / (lines + 1)):.4g}",
            "epoch": f"{step / 1590:.4g}" if step < 1590 else f"{step / 1590:.7g}",
            "num_input_tokens_seen": 512 * step,
            "train_runtime": f"{step * 0.31:.4g}",
            "train_tokens_per_second": f"{source.uniform(500, 600):.4g}",
        }
        yield repr(metrics).encode()


def huggingface4(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        yield repr(
            {
                "loss": round(_loss(source, step), 4),
                "grad_norm": source.uniform(0.5, 2),
                "learning_rate": 5e-4 * (1 - step / (lines + 1)) + 1e-4,
                "epoch": round(step * 0.01, 2),
            }
        ).encode()


def trl(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        rewards = source.gauss(0, 0.1)
        metrics = {
            "loss": 0.6931 - step * 1e-5,
            "grad_norm": source.uniform(2, 4),
            "learning_rate": 1e-6 * (1 - step / (lines + 1)),
            "rewards/chosen": rewards,
            "rewards/rejected": rewards - 0.05,
            "rewards/accuracies": source.random(),
            "rewards/margins": 0.05,
            "logps/chosen": -source.uniform(200, 300),
            "epoch": step / 1000,
        }
        yield repr({key: f"{value:.4g}" for key, value in metrics.items()}).encode()


def lightning(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        at = step % 100 + 1
        fill = "█" * (at // 10) + " " * (10 - at // 10)
        yield (
            f"Epoch {step // 100}: {at:3d}%|{fill}| {at}/100 [00:{at % 60:02d}<00:09,"
            f" {source.uniform(4, 5):.2f}it/s, v_num=0, train_loss={_loss(source, step):.3f}]"
        ).encode()


def accelerate(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        share = 100 * step // lines
        fill = "█" * (share // 10) + "▌" * (share % 10 >= 5) + " " * (10 - (share + 5) // 10)
        yield (
            f"Steps: {share:3d}%|{fill}| {step}/{lines} [{step // 60:02d}:{step % 60:02d}<10:10,"
            f"  1.02s/it, loss={_loss(source, step):.4f}, lr=0.0001]"
        ).encode()


def deepspeed(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        clock = b"[2026-08-01 10:%02d:%02d,%03d]" % (step // 60 % 60, step % 60, step % 1000)
        yield clock + (
            b" [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, skipped=%d, lr=[%s],"
            b" mom=[[0.9, 0.999]]"
        ) % (step, step // 500, repr(5e-4 * (1.5 - step / lines)).encode())


def torchtitan(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        yield (
            b"[rank0]:[titan] 2026-08-01 10:%02d:%02d,000 - root - INFO - step: %2d  loss: %8.5f"
            b"  grad_norm: %7.4f  memory: 40.50GiB(51.20%%)  tps: %s  tflops: %.2f  mfu: %.2f%%"
        ) % (
            step // 60 % 60,
            step % 60,
            step,
            _loss(source, step),
            source.uniform(0.5, 12),
            f"{source.randint(4000, 4400):,}".encode(),
            source.uniform(240, 260),
            source.uniform(25, 26),
        )


def megatron(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        yield (
            b" [2026-08-01 10:%02d:%02d] iteration %8d/%8d | consumed samples: %12d |"
            b" elapsed time per iteration (ms): %.1f | throughput per GPU (TFLOP/s/GPU): %.1f |"
            b" learning rate: %.6E | global batch size: %5d | lm loss: %.6E | loss scale: %.1f |"
            b" grad norm: %.3f | number of skipped iterations: %3d |"
            b" number of nan iterations: %3d |"
        ) % (
            step // 60 % 60,
            step % 60,
            step,
            lines,
            step * 256,
            source.uniform(800, 820),
            source.uniform(395, 405),
            1.5e-4 * (1 - step / (lines + 1)),
            256,
            _loss(source, step),
            1.0,
            source.uniform(0.8, 1.4),
            0,
            0,
        )
        if step % 100 == 0:
            yield b"-" * 95
            yield (
                b" validation loss at iteration %d | lm loss value: %.6E | lm loss PPL: %.6E | "
            ) % (step, _loss(source, step), 900.0)
            yield b"-" * 95


def axolotl(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(1, lines + 1):
        metrics = {
            "loss": round(_loss(source, step), 4),
            "grad_norm": round(source.uniform(0.5, 2), 5),
            "learning_rate": round(2e-4 + step * 1e-9, 9),
            "memory/max_active (GiB)": 12.31,
            "memory/max_allocated (GiB)": 12.31,
            "epoch": round(step / 100, 2),
        }
        yield repr(metrics).encode()


def key_value(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        yield b"step=%d loss=%.6f grad_norm=%.6f lr=%.6f tokens_per_sec=%d" % (
            step,
            _loss(source, step),
            source.uniform(0.3, 0.4),
            3e-4,
            source.randint(11_000, 13_000),
        )


def json_lines(source: random.Random, lines: int) -> Iterator[bytes]:
    for step in range(lines):
        yield (
            b'{"event":"train","step":%d,"loss":%.4f,"lr":%.7f,"grad_norm":%.3f,"tok_s":%d,'
            b'"ts":%.1f}'
        ) % (step, _loss(source, step), 3e-4, source.random(), 12_000 + step % 100, 1.79e9 + step)


DIALECTS: dict[str, Callable[[random.Random, int], Iterator[bytes]]] = {
    maker.__name__: maker
    for maker in (
        trainmaster,
        nanogpt,
        nanochat,
        modded_nanogpt,
        llmc,
        litgpt,
        huggingface5,
        huggingface4,
        trl,
        lightning,
        accelerate,
        deepspeed,
        torchtitan,
        megatron,
        axolotl,
        key_value,
        json_lines,
    )
}


def reordered_json(lines: int, seed: int = 0) -> bytes:
    """Nested objects whose keys stand in another order on every line."""
    source = random.Random(seed)
    out = []
    for step in range(lines):
        metrics = {
            "loss": _loss(source, step),
            "grad_norm": source.random(),
            "acc": source.random(),
        }
        metrics = {
            "step": step,
            "metrics": _shuffled(source, metrics),
            "optimizer": {"lr": 3e-4, "betas": [0.9, 0.95]},
            "phase": "train",
            "host": "node-7",
        }
        out.append(json.dumps(_shuffled(source, metrics)).encode() + b"\n")
    return b"".join(out)


def _shuffled(source: random.Random, metrics: dict[str, object]) -> dict[str, object]:
    keys = list(metrics)
    source.shuffle(keys)
    return {key: metrics[key] for key in keys}


def noise(lines: int, seed: int = 0) -> bytes:
    """What stands between the metrics: NCCL, tracebacks, requests, nvidia-smi, downloads."""
    source = random.Random(seed)
    out = []
    for i in range(lines):
        kinds = (
            b"node%02d:%d:%d [%d] NCCL INFO Channel %02d/%02d : %d[%x] -> %d[%x] [send] via NET/0"
            % (i % 32, i, i + 1, i % 8, i % 32, 32, i % 8, i, i % 7, source.randrange(1 << 20)),
            b'  File "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line %d,'
            b" in _wrapped_call_impl" % source.randrange(3000),
            b"[2026-08-01 10:%02d:%02d,%03d] INFO http.client: GET https://host-%x.example.com/v1/%x"
            b" returned 200" % (i % 60, i % 60, i % 1000, source.randrange(1 << 30), i),
            b"WARNING: a value of form (%d, %d) was broadcast, which will be an error" % (i, i + 1),
            b"| N/A   %dC    P0   %dW /  700W |    %dMiB /  81559MiB |      %d%%      Default |"
            % (i % 90, i % 700, i % 80_000, i % 100),
            b"downloading shard %08x: %d bytes, checksum %016x"
            % (i, i * 3, source.getrandbits(63)),
        )
        out.append(kinds[i % len(kinds)] + b"\n")
    return b"".join(out)
