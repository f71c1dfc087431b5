"""Command lines that show what a command is for; `--help` and docs/cli.md end with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EXAMPLES: Mapping[str, Sequence[str]] = {
    "adopt": ("trainmaster adopt ./out --host gpu1",),
    "attach": (
        "trainmaster attach --host gpu1 --log /data/run7/train.log",
        "trainmaster attach --tmux train:0",
    ),
    "board": ("trainmaster board", "trainmaster board --port 8420"),
    "checkpoints": ("trainmaster checkpoints my-gpt --verify",),
    "clean": ("trainmaster clean my-gpt --keep best,final",),
    "diagnose": ("trainmaster diagnose my-gpt", "trainmaster diagnose train.log"),
    "export": (
        "trainmaster export gpt.yaml ./slurm-job --to slurm --set compute.gpu=a100",
        "trainmaster export gpt.yaml ./compose --to docker-compose --image pytorch/pytorch:TAG",
    ),
    "fetch": ("trainmaster fetch my-gpt final ./model",),
    "install": (
        "trainmaster install claude-code",
        "trainmaster install codex --project . --dry-run",
    ),
    "launch": (
        "trainmaster launch gpt.yaml",
        "trainmaster launch gpt.yaml --host gpu1 --set optimizer.lr=0.0003",
        "trainmaster launch gpt.yaml --host gpu1 --smoke",
    ),
    "logs": ("trainmaster logs my-gpt -f", "trainmaster logs my-gpt --grep 'nan|error'"),
    "lr-test": (
        "trainmaster lr-test gpt.yaml -o rates.png",
        "trainmaster lr-test gpt.yaml --to 10",
    ),
    "metrics": (
        "trainmaster metrics my-gpt --key loss --key val_loss",
        "trainmaster metrics run-a run-b --x tokens --csv",
        "trainmaster metrics train.log --from 1000",
    ),
    "mcp": (
        "trainmaster mcp --toolsets operator --read-only",
        "trainmaster mcp --toolsets observer --tools stop,resume",
        "trainmaster mcp --http --port 8765",
    ),
    "monitor": ("trainmaster monitor", "trainmaster monitor my-gpt --json"),
    "offers": ("trainmaster offers --gpu h100 --spec gpt.yaml",),
    "plan": ("trainmaster plan gpt.yaml", "trainmaster plan gpt.yaml --set steps=5000"),
    "plot": ("trainmaster plot my-gpt -o loss.png", "trainmaster plot run-a run-b"),
    "rehearse": ("trainmaster rehearse gpt.yaml", "trainmaster rehearse gpt.yaml --host gpu1"),
    "render": ("trainmaster render gpt.yaml ./bundle",),
    "report": ("trainmaster report train.log",),
    "resume": (
        "trainmaster resume my-gpt",
        "trainmaster resume my-gpt --from best --set steps=8000",
    ),
    "runs": ("trainmaster runs --state running",),
    "wait": (
        "trainmaster wait my-gpt --until checkpoint,end",
        "trainmaster wait --until finding,end --timeout 3600",
    ),
    "watch": ("trainmaster watch", "trainmaster watch my-gpt --every 5"),
}


def epilog(command: str) -> str | None:
    """The examples of a command as `--help` prints them, each in its line; None without any."""
    examples = EXAMPLES.get(command)
    return (
        None
        if examples is None
        else "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
    )
