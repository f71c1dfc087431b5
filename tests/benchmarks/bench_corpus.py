"""What `diagnose FILE` finds in failures and foreign logs, and how exactly they are read.

python tests/benchmarks/bench_corpus.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.benchmarks.benchmark import Benchmark, run_benchmark
from support.benchmarks.corpus import Score, folder_of, judge_failures, judge_logs
from support.benchmarks.result import at_least, at_most


def measure(bench: Benchmark) -> None:
    failures = folder_of("TRAINMASTER_FAILURES", "failures")
    logs = folder_of("TRAINMASTER_LOGS", "logs")
    if failures is None or logs is None:
        bench.not_run("corpus", "TRAINMASTER_FAILURES and TRAINMASTER_LOGS name no folders")
        return
    score = Score()
    judge_failures(failures, score)
    judge_logs(logs, score)
    failed = score.right + score.missing
    bench.report(
        "precision of findings",
        "%",
        ours=(score.precision,),
        goal=at_least(95),
        note=f"{score.right} right, {score.wrong} wrong",
    )
    bench.report(
        "recall of failures",
        "%",
        ours=(score.recall,),
        goal=at_least(95),
        note=f"{score.right} of {failed} named, {score.first} of them first",
    )
    bench.report(
        "false stops: healthy logs with a critical finding",
        "%",
        ours=(100 * score.stopped / max(1, score.healthy),),
        goal=at_most(2),
        note=f"{score.stopped} of {score.healthy}",
    )
    bench.report(
        "foreign logs read exactly",
        "%",
        ours=(100 * score.exact / max(1, score.series),),
        note=f"{score.exact} of {score.series}: number, first and last value of loss and val_loss",
    )


if __name__ == "__main__":
    run_benchmark(measure)
