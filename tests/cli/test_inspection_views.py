from __future__ import annotations

from trainmaster.answers.inspect import InspectionAnswer, RanksSeen
from trainmaster.cli.views import inspection  # noqa: F401 (it registers the view)
from trainmaster.cli.views.blocks import Grid, view

_ANSWER = InspectionAnswer(
    run_id="gpt-abc234",
    attempt=2,
    verdict="hang_collective",
    confidence=0.9,
    why="The other ranks wait for rank 3.",
    rank=3,
    advice=["reads its stack."],
    step=120,
    silent_s=600.0,
    usual_step_s=0.5,
    world_size=8,
    ranks=[
        RanksSeen(
            ranks=[3],
            pids=[403],
            at="other",
            state="S",
            cpu_share=0.0,
            step=119,
            lines=["load (a:1)"],
            workers=1,
            worker_pids=[500],
        ),
        RanksSeen(
            ranks=[0, 1, 2, 4, 5, 7],
            pids=[400, 401, 402, 404, 405, 407],
            at="collective",
            state="R",
            cpu_share=1.0,
            lines=["b (c:2)"],
        ),
    ],
    gpus={"index": [0, 1], "gpu_power_w": [70.5, None], "gpu_util": [100.0, 0.0]},
    stacks_file="/home/me/stacks.txt",
    next_step="Fix it.",
)


def test_an_inspection_reads_top_to_bottom() -> None:
    lines = []
    for block in view(_ANSWER):
        rows = [block.columns, *block.rows] if isinstance(block, Grid) else [[block]]
        lines += ["  ".join(row) for row in rows]
    assert lines == [
        "gpt-abc234, attempt 2: hang_collective (90 % sure)",
        "The other ranks wait for rank 3.",
        "Last step 120, 10 min ago, usually one in 0.5 s",
        "Rank 3 (pid 403), step 119: at other, waiting, 0 % of a core; 1 worker (pid 500)",
        "    load (a:1)",
        "Ranks 0-2, 4-5, 7 (pid 400, 401, 402, 404, 405, 407): at collective, computing, "
        "100 % of a core",
        "    b (c:2)",
        "GPU  gpu_power_w  gpu_util",
        "0  70.5  100",
        "1  -  0",
        "Do: reads its stack.",
        "All stacks: /home/me/stacks.txt",
        "Next: Fix it.",
    ]


def test_an_answer_about_many_ranks_stays_small() -> None:
    assert len(_ANSWER.model_dump_json()) < 1200
