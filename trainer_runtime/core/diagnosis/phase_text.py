"""What is said and asked of an error that has no code, by what the program was doing."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.traceback_text import Phase

WHILE: dict[Phase, str] = {phase: f"The program was at: {phase.value}." for phase in Phase}
_ANY = (
    "Does it recur at the same place with one process and num_workers=0?",
    "What was changed since it last worked: code, data, packages, machine?",
    "Does the smallest input (ten rows, five steps) show it too?",
)
# What helps first where the GPU's memory is exhausted in this phase.
OUT_OF_MEMORY: dict[Phase, str] = {
    Phase.WEIGHTS: "It holds before a step: load in bf16 or quantized, on the CPU first "
    "(low_cpu_mem_usage, FSDP's cpu_ram_efficient_loading), not on one GPU by all ranks.",
    Phase.CHECKPOINT: "Load the checkpoint on the CPU (map_location='cpu'), one rank's part each.",
    Phase.OPTIMIZER: "The optimizer's state is made at the first step: shard it (ZeRO-1, FSDP), or "
    "take an 8-bit or a paged optimizer.",
    Phase.EVALUATION: "Evaluate in smaller batches, and keep no logits on the GPU "
    "(eval_accumulation_steps, prediction_loss_only, preprocess_logits_for_metrics).",
    Phase.SAVING: "Saving gathers the whole model on the GPU: save in shards (SHARDED_STATE_DICT), "
    "or gather on the CPU of one rank (offload_to_cpu, rank0_only).",
    Phase.SERVING: "The server takes a fixed share: lower gpu_memory_utilization "
    "(mem_fraction_static), max_model_len, or give it GPUs of its own.",
}
QUESTIONS: dict[Phase, tuple[str, str, str]] = {
    Phase.REWARD: (
        "What does the function get: texts, or lists of messages (`completion[0]['content']`)?",
        "Does it work on one recorded answer alone, and on an empty one?",
        "Does it return one number for each answer?",
    ),
    Phase.IMPORTS: (
        "Does importing the innermost module alone fail in the same environment?",
        "Which package was installed or upgraded last?",
        "Does a fresh environment with the program's own requirements show it too?",
    ),
    Phase.ARGUMENTS: (
        "Which argument does the message name, and does `--help` list it in this version?",
        "Is a value read as text, list or number as it was meant (YAML)?",
        "Do the example's own settings start?",
    ),
    Phase.WEIGHTS: (
        "Is every file of the weights whole: size and check sum as on its page?",
        "Does from_pretrained alone, in one process on the CPU, show it too?",
        "Which version of transformers saved it, and which one loads it?",
    ),
    Phase.CHECKPOINT: (
        "Does the checkpoint before it load?",
        "Have model, optimizer or number of ranks changed since it was saved?",
        "Does a start without resuming work?",
    ),
    Phase.TOKENIZING: (
        "Which row fails: does the function work on that row alone?",
        "Is the tokenizer the model's own, and of the version that saved it?",
        "Does num_proc=1 show it too?",
    ),
    Phase.DATA: (
        "Which file and row fail: do they open alone?",
        "Have all files the same columns and types?",
        "Is the path the same on the machine that trains?",
    ),
    Phase.WORKER_START: (
        "Does num_workers=0 (num_proc=1) work?",
        "Is what is handed to the workers defined at the top of a module?",
        "Do memory, threads and /dev/shm suffice for so many workers?",
    ),
    Phase.COLLATING: (
        "Which rows are in the failing batch, and of what length and type?",
        "Does the collator pad everything that differs in length, labels too?",
        "Does a batch of one row work?",
    ),
    Phase.FORWARD: (
        "What are the shapes, types and devices of the inputs at the user's frame?",
        "Does the same batch run on the CPU in fp32?",
        "Is the largest token id below the size of the vocabulary?",
    ),
    Phase.BACKWARD: (
        "Does torch.autograd.set_detect_anomaly(True) name an operation?",
        "Does it recur without activation checkpointing and without compiling?",
        "Which parameters are trained, and do all take part in the loss?",
    ),
    Phase.OPTIMIZER: (
        "Are parameters, gradients and optimizer state of the types that it expects?",
        "Does torch's own AdamW show it too?",
        "Is the learning rate a number?",
    ),
    Phase.COLLECTIVE: (
        "Which rank failed first, and what does its own log say?",
        "Do all ranks run the same branch, with as many batches?",
        "Does it work on one machine, and with one process?",
    ),
    Phase.EVALUATION: (
        "Does evaluating before the first step show it too?",
        "Is every row of the validation set of the training's form?",
        "Does it recur without compute_metrics?",
    ),
    Phase.SAVING: (
        "Is there room and the right to write at that place?",
        "Is a complete checkpoint before it there?",
        "Does saving the model alone work?",
    ),
    Phase.PUSHING: (
        "Is the trained model on the disk, so that only the upload is missing?",
        "May the token write to that repository?",
        "Does the machine reach the hub?",
    ),
    Phase.SERVING: (
        "What does the server's own log say before it?",
        "How much of the GPU's memory is left for it?",
        "Does the server start alone with the same model?",
    ),
}


def questions(phase: Phase | None) -> tuple[str, ...]:
    """Three questions whose answers would decide what it is."""
    return _ANY if phase is None else QUESTIONS[phase]


def every_question() -> tuple[str, ...]:
    return (*_ANY, *(question for three in QUESTIONS.values() for question in three))
