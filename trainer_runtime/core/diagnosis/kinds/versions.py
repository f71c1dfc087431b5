"""What a library itself says of a version, an argument or a device that it does not take."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase
from trainer_runtime.core.protocol.command import option

_PIN = (
    "Install versions that go together (`environment: auto` does), or launch again with "
    f"{option('--set', 'environment.requirements=FILE')}."
)
_RAISED = r"\b(?:\w*Error|Exception): .{0,240}"
_NAME = r"[`'\"]?(?P<package>[A-Za-z][\w-]{1,40})[`'\"]?"
_BOUND = r"(?P<bound>[<>=!~]=? ?\d[\d.]{0,16}(?<!\.))"
KINDS = (
    Kind(
        "argument_renamed",
        "The installed version calls this argument by another name.",
        (
            "Rename it: max_seq_length is max_length in TRL's configs, evaluation_strategy is "
            "eval_strategy, a trainer's tokenizer is processing_class, torch_dtype is dtype.",
            "Or install the older version that the program was written for: "
            f"{option('--set', 'environment.requirements=FILE')}.",
        ),
        (
            Wording(
                r"__init__\(\) got an unexpected keyword argument '(?:max_seq_length"
                r"|evaluation_strategy|tokenizer|dataset_text_field|packing|max_prompt_length"
                r"|no_cuda|torch_dtype|use_auth_token|dataset_kwargs|neftune_noise_alpha"
                r"|per_gpu_train_batch_size|max_completion_length|logging_dir"
                r"|overwrite_output_dir|group_by_length|include_inputs_for_metrics|warmup_ratio"
                r"|label_pad_token_id|model_init_kwargs|beta|max_length)'",
                "TypeError: SFTConfig.__init__() got an unexpected keyword argument "
                "'max_seq_length'",
                "TRL, trainer/sft_config.py; transformers, training_args.py",
                unless=r"ForCausalLM|\bModel\.",
            ),
        ),
        instead_of=("package_mismatch", "transformers_version", "library_versions"),
    ),
    Kind(
        "override_outdated",
        "A subclass's own version of a trainer's method does not take what the installed library "
        "passes to it: its signature is older (num_items_in_batch came with transformers 4.46).",
        (
            "Give the override the parameters of the installed version, or `**kwargs`, such as "
            "`compute_loss(self, model, inputs, return_outputs=False, **kwargs)`.",
            "Or install the version that the subclass was written for.",
        ),
        (
            Wording(
                r"\b(?:compute_loss|training_step|prediction_step|evaluation_loop|get_batch_samples"
                r"|create_optimizer|create_scheduler|_save_checkpoint|_get_train_sampler)\(\) "
                r"(?:got an unexpected keyword argument|takes .{1,40}positional arguments? but)",
                "TypeError: OwnTrainer.compute_loss() got an unexpected keyword argument "
                "'num_items_in_batch'",
                "transformers, trainer.py",
            ),
        ),
        instead_of=("transformers_version", "library_versions"),
    ),
    Kind(
        "requirements_conflict",
        "The requirements contradict each other: no set of versions satisfies them all.",
        ("Loosen the pins that it names, or install the package with the tightest one first.",),
        (
            Wording(
                r"\bResolutionImpossible\b|\bNo solution found when resolving dependencies"
                r"|\b(?:Contextual)?VersionConflict: "
                r"|\bbecause these package versions have conflicting dependencies"
                r"|\bLibMambaUnsatisfiableError|\bUnsatisfiableError: The following",
                "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io",
                "pip; uv; conda",
            ),
        ),
    ),
    Kind(
        "version_asked",
        "A library refuses the installed version of a package; the message says which it takes.",
        (
            "Install the version that the message names (in a notebook, then restart it), or "
            "uninstall the package where the program can do without it.",
            _PIN,
        ),
        (
            Wording(
                rf"\bFound an incompatible version of {_NAME}\. Found version "
                r"(?P<version>[\d.]{1,24})(?<!\.)",
                "ImportError: Found an incompatible version of torchao. Found version 0.1.0, but "
                "only versions above 0.9.0 are supported",
                "PEFT, import_utils.py",
            ),
            Wording(
                rf"{_RAISED}\b(?:requires?|needs?|expects?) (?:the |a |an |at least )?{_NAME}"
                rf" ?(?:version |package )?{_BOUND}",
                "ValueError: This quantizer requires gptqmodel >= 2.0.0",
                "transformers, quantizers",
                unless=r"Ampere|bf16",
            ),
            Wording(
                rf"{_RAISED}\b(?:[Pp]lease|to|must|should) (?:upgrade|update|downgrade|install) "
                rf"(?:your |the |to )?(?:installed |version of )?{_NAME} ?"
                rf"(?:(?:to )?(?:version )?|package )?{_BOUND}",
                "ImportError: Please upgrade vllm to >=0.9 to use this",
                "TRL, import_utils.py; vLLM",
            ),
        ),
        confidence=0.85,
        instead_of=("package_mismatch", "library_versions", "optional_package_missing"),
    ),
    Kind(
        "import_outdated",
        "An installed package imports a name that another one does not have in its installed "
        "version: one of the two is too old or too new for the other.",
        ("Upgrade the package that imports it, or install the other one as old as it is.", _PIN),
        (
            Wording(
                r"\bImportError: cannot import name '\w+' from '(?P<package>\w+)[\w.]*'",
                "Traceback (most recent call last):\n"
                '  File "/env/lib/site-packages/trl/core.py", line 9, in <module>\n'
                "    from transformers import old_name\n"
                "ImportError: cannot import name 'old_name' from 'transformers' "
                "(/env/lib/site-packages/transformers/__init__.py)",
                "Python's import system",
                after=r"(?:site|dist)-packages/(?P<importer>\w+)/[^\n]{0,300}\n"
                r"(?:(?![^\n]{0,80}File \")[^\n]{0,300}\n){0,3}[^\n]{0,80}ImportError: [^\n]*$",
                unless=r"partially initialized|from '(?:torch|triton|typing|enum|collections)\b",
            ),
        ),
        confidence=0.85,
        instead_of=("package_mismatch", "transformers_version", "import_broken"),
    ),
    Kind(
        "torch_load_refused",
        "transformers loads pickled weights (.bin) only with PyTorch 2.6 or newer "
        "(CVE-2025-32434).",
        (
            "Upgrade PyTorch to 2.6 or newer, or take weights in safetensors, to which "
            "save_pretrained converts them.",
        ),
        (
            Wording(
                r"\bDue to a serious vulnerability issue in .torch\.load",
                "ValueError: Due to a serious vulnerability issue in `torch.load`, even with "
                "`weights_only=True`, we now require users to upgrade torch to at least v2.6",
                "transformers, utils/import_utils.py",
            ),
        ),
        instead_of=("torch_version", "checkpoint_corrupt", "version_asked"),
    ),
    Kind(
        "argument_moved",
        "The trainer does not take this argument: in the installed version it belongs to the "
        "trainer's configuration, or has gone.",
        (
            "Set it in the configuration that the trainer gets as `args` (TRL: SFTConfig, "
            "DPOConfig, GRPOConfig, ...; else TrainingArguments).",
            "Or install the older version of the library that the program was written for: "
            f"{option('--set', 'environment.requirements=FILE')}.",
        ),
        (
            Wording(
                r"\b\w*Trainer\.__init__\(\) got an unexpected keyword argument "
                r"'(?!tokenizer'|processing_class')",
                "TypeError: DPOTrainer.__init__() got an unexpected keyword argument 'beta'",
                "TRL, trainer/dpo_trainer.py",
            ),
        ),
        instead_of=("argument_renamed", "package_mismatch", "library_versions"),
        confidence=0.85,
    ),
    Kind(
        "reward_arguments",
        "A reward function does not take an argument that the trainer passes: TRL passes the "
        "columns of the data and its own state by name.",
        ("Let the reward function take `**kwargs` beside what it uses.",),
        (
            Wording(
                r"\bTypeError: [\w.<>]{1,120}\(\) got an unexpected keyword argument",
                "Traceback (most recent call last):\n"
                '  File "/v/trl/trainer/grpo_trainer.py", line 9, in _calculate_rewards\n'
                "TypeError: length_reward() got an unexpected keyword argument 'prompts'",
                "TRL, trainer/grpo_trainer.py",
                phases=(Phase.REWARD,),
            ),
        ),
        instead_of=("reward_function_failed", "library_versions"),
    ),
    Kind(
        "gpu_device_denied",
        "This user may not open the device files of the GPU.",
        (
            "AMD: be a member of the groups that own /dev/kfd and /dev/dri (render, video), in a "
            "container by --group-add (podman: --group-add keep-groups).",
            "NVIDIA: check the rights of /dev/nvidia* and the scheduler's allocation.",
        ),
        (
            Wording(
                r"\b(?:[Uu]nable|[Ff]ailed|[Cc]annot) to open /dev/(?:kfd|dri|nvidia)\S{0,40}"
                r".{0,20}: (?:Permission denied|Operation not permitted)",
                "Unable to open /dev/kfd read-write: Permission denied",
                "ROCm, rocminfo",
            ),
        ),
        instead_of=("no_gpu",),
    ),
)
