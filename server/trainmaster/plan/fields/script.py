"""The section of the spec on a program that is run as it is."""

from __future__ import annotations

from typing import Literal

from trainmaster.plan.fields.annotations import Count, FilePath, Section, Text, setting
from trainmaster.plan.fields.place import nowhere

# A framework that runs a program has places for these.
OF_PROGRAMS = nowhere("only framework: script runs a program as it is")


class SavesSpec(Section):
    """What the program saves by itself."""

    path: FilePath = setting(
        ...,
        "A pattern below the program's folder: files or folders, such as `out/ckpt*.pt` or "
        "`out/checkpoint-*`. A name without wildcards is one file that every save replaces. What "
        "matches counts as a checkpoint once it is no longer written and was read to its end.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    step: Text | None = setting(
        None,
        "A regular expression on the path, whose first group is the step, such as `ckpt_(\\d+)`. "
        "Null takes what the checkpoint itself says, then the last number in its name.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    keep_latest: Count | None = setting(
        None,
        "How many stay on the host, also of the program's own files. Null removes none of the "
        "program's own, and keeps two where it replaces one file.",
        changes="resume",
        unit="checkpoints",
        acts=OF_PROGRAMS,
    )


class ScriptSpec(Section):
    """A program and its command."""

    path: FilePath = setting(
        ...,
        "The program's folder: of the machine that launches, whence it travels, or as host:/path "
        "of the host, where it runs in place. What git tracks travels, and what it does not "
        "ignore; without git all but caches. `.git`, secrets and ignored files stay.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    command: list[Text] = setting(
        ...,
        "The program and its arguments, run in its folder without a shell. {gpus}, {processes}, "
        "{run_dir}, {run_id} and {seed} are filled in, for several hosts {nodes}, {node_rank}, "
        "{master_addr} and {master_port}; {data} is the path of the only source of "
        "`data`, {data.NAME} of each by its name.",
        changes="resume",
        acts=OF_PROGRAMS,
    )
    resume: list[Text] | None = setting(
        None,
        "Words that are appended to continue from a checkpoint; {checkpoint} is its path, {step} "
        "its step. With an empty list the program continues by $TRAINMASTER_CHECKPOINT and "
        "$TRAINMASTER_STEP alone. Null: the program starts over.",
        changes="resume",
        acts=OF_PROGRAMS,
    )
    elastic: bool = setting(
        False,
        "Whether another number of processes can resume the program's checkpoints. Where it is "
        "true, `resume --set compute.processes=N` (`compute.gpus`) starts the command with that "
        "number.",
        changes="resume",
        acts=OF_PROGRAMS,
    )
    checkpoints: SavesSpec | None = setting(
        None,
        "What the program saves. Null: nothing that can be resumed from.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    final: FilePath | None = setting(
        None,
        "The final model in the program's folder, which becomes `final` of the run.",
        changes="never",
        acts=OF_PROGRAMS,
    )
    pattern: Text | None = setting(
        None,
        "The shape of the log's lines where no known one is theirs: a line with placeholders for "
        "its numbers, `it {step}/{target} L={loss} lr {lr}`, or a regular expression with named "
        "groups; several on lines of their own.",
        changes="resume",
        acts=OF_PROGRAMS,
    )
    stop_signal: Literal["TERM", "INT", "USR1", "USR2", "HUP"] = setting(
        "TERM",
        "The signal that asks the program to save and end, also when a session is over. A "
        "program that watches $TRAINMASTER_STOP gets none.",
        changes="resume",
        acts=OF_PROGRAMS,
    )
