"""How a program uses the trainer's library: its model, loss, rewards, adapters and arguments."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "assistant_mask_missing",
        "The loss is to be of the assistant's tokens only, and the chat template does not mark "
        "them.",
        (
            "Use a chat template with `{% generation %}` markers around the assistant's answers, "
            "or set assistant_only_loss to false.",
        ),
        (
            Wording(
                r"\bassistant_only_loss=True\b.{0,120}(?:no assistant tokens|not conversational)"
                r"|\bat least one example has no assistant tokens",
                "RuntimeError: You're using `assistant_only_loss=True`, but at least one example "
                "has no assistant tokens.",
                "TRL, trainer/sft_trainer.py",
            ),
        ),
        instead_of=("chat_template_missing",),
    ),
    Kind(
        "reward_function",
        "A reward function does not return one number for each completion.",
        (
            "Let the reward function return a list as long as `completions`; None only where "
            "another function judges that row.",
        ),
        (
            Wording(
                r"\breward function '?[\w.<>]{1,80}'? returned \d+ rewards, but \d+ were expected"
                r"|\b[Aa]ll reward functions returned None for the following",
                "ValueError: The reward function 'length' returned 31 rewards, but 32 were "
                "expected (one per prompt-completion pair).",
                "TRL, trainer/grpo_trainer.py",
            ),
        ),
        instead_of=("reward_function_failed",),
    ),
    Kind(
        "reward_function_failed",
        "The program's own reward function raised the error. In conversational data it gets each "
        "completion as a list of messages, not as a text.",
        (
            "Take the text by completion[0]['content'], and let the function bear empty and "
            "malformed answers (return 0.0 or None for those).",
        ),
        (
            Wording(
                r"\bTypeError: |\bKeyError: |\bValueError: |\bIndexError: |\bAttributeError: "
                r"|\bZeroDivisionError: |\bJSONDecodeError: ",
                "Traceback (most recent call last):\n"
                '  File "/v/trl/trainer/grpo_trainer.py", line 9, in _calculate_rewards\n'
                '  File "/w/own.py", line 5, in length_reward\n'
                "AttributeError: 'list' object has no attribute 'split'",
                "TRL, trainer/grpo_trainer.py; verl, workers/reward_manager",
                phases=(Phase.REWARD,),
            ),
        ),
        confidence=0.8,
    ),
    Kind(
        "loss_not_returned",
        "The model gives no loss: the batch has no labels, or the model has no head that uses "
        "them.",
        (
            "Give the batch a `labels` column (a collator such as DataCollatorForLanguageModeling "
            "makes it), and keep it with remove_unused_columns=False.",
            "Load the model by an AutoModelFor... class of the task; a bare AutoModel has no loss.",
        ),
        (
            Wording(
                r"\bThe model did not return a loss from the inputs"
                r"|\bcannot be used as is for training: it only computes hidden states",
                "ValueError: The model did not return a loss from the inputs, only the following "
                "keys: logits.",
                "transformers, trainer.py",
            ),
        ),
    ),
    Kind(
        "inputs_dropped",
        "Batches arrive without input_ids: the columns were never made, or removed as unused (the "
        "trainer drops each that the model's forward does not name).",
        (
            "Tokenize before training, and set remove_unused_columns=False where the collator "
            "needs other columns.",
        ),
        (
            Wording(
                r"\byou provided \[(?:'\w+'(?:, )?){0,20}\]\s*$"
                r"|\bNo columns in the dataset match the model's forward method signature"
                r"|\bwhose items are dictionaries with an 'input_ids' key"
                r"|\bYou should supply an encoding or a list of encodings to this method",
                "ValueError: You should supply an encoding or a list of encodings to this method "
                "that includes input_ids, but you provided ['label']",
                "transformers, tokenization_utils_base.py",
            ),
        ),
        instead_of=("dataset_columns",),
    ),
    Kind(
        "max_steps_missing",
        "The data is a stream of unknown length, so the number of steps has to be given.",
        ("Set max_steps; an epoch has no end that is known before.",),
        (
            Wording(
                r"\bmax_steps has to be specified",
                "ValueError: The train_dataset does not implement __len__, max_steps has to be "
                "specified.",
                "transformers, trainer.py",
            ),
        ),
    ),
    Kind(
        "schedule_too_short",
        "The learning-rate schedule has fewer steps than the training takes.",
        (
            "Give the schedule the steps of all epochs (batches / accumulation x epochs), and "
            "step it once per optimizer step.",
        ),
        (
            Wording(
                r"\bTried to step \d+ times\. The specified number of total steps is",
                "ValueError: Tried to step 1002 times. The specified number of total steps is 1000",
                "PyTorch, torch/optim/lr_scheduler.py",
            ),
        ),
    ),
    Kind(
        "number_as_text",
        "A number of the settings is read as text: YAML takes `2e-5` for a word.",
        ("Write it with a point and a sign: `2.0e-5`.",),
        (
            Wording(
                r"'[<>]=?' not supported between instances of '(?:float|int)' and 'str'"
                r"|\bcan't multiply sequence by non-int of type 'float'",
                "Traceback (most recent call last):\n"
                '  File "/env/lib/python3.11/site-packages/torch/optim/adamw.py", line 48, in '
                "__init__\n"
                "TypeError: '<=' not supported between instances of 'float' and 'str'",
                "PyTorch, torch/optim/adamw.py; PyYAML",
                after=r"torch/optim/|lr_scheduler|learning_rate|optimization\.py",
                confidence=0.8,
            ),
        ),
    ),
    Kind(
        "padding_side",
        "The tokenizer pads on the right, and this attention or generation needs it on the left.",
        ('Set tokenizer.padding_side = "left" before batches are made.',),
        (
            Wording(
                r"\bperform batched generation with padding_side='right'",
                "ValueError: You are attempting to perform batched generation with "
                "padding_side='right' this may lead to unexpected behaviour",
                "transformers, models/mistral/modeling_mistral.py",
                unless=r"(?i)warn",
            ),
        ),
    ),
    Kind(
        "token_not_in_vocabulary",
        "A special token that is named in the settings is not in the tokenizer's vocabulary.",
        (
            "Name one that the tokenizer has (its special_tokens_map), or add it and resize the "
            "model's embeddings.",
        ),
        (
            Wording(
                r"\bThe specified `(?:eos|pad|bos)_token` .{1,80} is not found in the vocabulary",
                "ValueError: The specified `eos_token` ('<|im_end|>') is not found in the "
                "vocabulary of the given `processing_class` (LlamaTokenizerFast).",
                "TRL, trainer/sft_trainer.py",
            ),
        ),
    ),
    Kind(
        "adapter_twice",
        "The model already has an adapter, and another one is to be added.",
        (
            "Give either a model with its adapter or a peft_config, not both; merge the first "
            "adapter (merge_and_unload) to add a second.",
        ),
        (
            Wording(
                r"\bYou passed a .PeftModel. instance together with a .peft_config"
                r"|\bAdapter with name '?\w+'? already exists"
                r"|\bYou passed model_init_kwargs to the \w+, but your model is already",
                "ValueError: You passed a `PeftModel` instance together with a `peft_config` to "
                "the trainer.",
                "TRL, trainer/sft_trainer.py; PEFT, peft_model.py",
            ),
        ),
    ),
    Kind(
        "adapter_layer_unsupported",
        "The adapter names a module of a type that it can't adapt.",
        (
            "Let target_modules name linear layers only (`all-linear`); a pattern such as a bare "
            "name may also match norms, vision towers or quantized layers.",
        ),
        (
            Wording(
                r"\bis not supported\. Currently, only the following modules are supported"
                r"|\bUnsupported layer type <class",
                "ValueError: Target module Dropout(p=0.1) is not supported. Currently, only the "
                "following modules are supported: `torch.nn.Linear`",
                "PEFT, tuners/lora/model.py",
            ),
        ),
        instead_of=("lora_targets_missing",),
    ),
    Kind(
        "merge_quantized",
        "An adapter can't be merged into weights that are quantized in this way.",
        ("Load the base model in bf16, attach the adapter and merge there.",),
        (
            Wording(
                r"\bCannot merge (?:LORA|LoRA|\w+) layers when the model is (?:gptq|loaded|awq)",
                "ValueError: Cannot merge LORA layers when the model is gptq quantized",
                "PEFT, tuners/lora/model.py",
            ),
        ),
    ),
    Kind(
        "attention_unsupported",
        "The model has no implementation of the attention that was asked for.",
        ('Set attn_implementation to "sdpa" or "eager", or upgrade transformers.',),
        (
            Wording(
                r"\bdoes not support (?:Flash Attention 2(?:\.0)?|an attention implementation)"
                r"(?: yet| through)|\bdoes not support an attention implementation through",
                "ValueError: AbcForCausalLM does not support Flash Attention 2.0 yet.",
                "transformers, modeling_utils.py",
            ),
        ),
    ),
    Kind(
        "fp16_without_gpu",
        "Mixed precision was asked for without a GPU that has it.",
        ("Check that PyTorch sees the GPU (torch.cuda.is_available()); else train in fp32.",),
        (
            Wording(
                r"\bFP16 Mixed precision training with AMP or APEX .{0,80}can only be used on"
                r"|\bfp16 mixed precision requires a (?:GPU|CUDA)"
                r"|\b[Bb][Ff]16 Mixed precision training .{0,60}can only be used on",
                "ValueError: fp16 mixed precision requires a GPU (not 'cpu').",
                "accelerate, accelerator.py; transformers, training_args.py",
            ),
        ),
    ),
    Kind(
        "precision_twice",
        "Two precisions are switched on at once.",
        ("Leave one of fp16 and bf16 on, alike in the program and in DeepSpeed's settings.",),
        (
            Wording(
                r"\bAt most one of fp16 and bf16 can be True"
                r"|\bbfloat16 and fp16 modes cannot be simultaneously enabled"
                r"|\bbfloat16 and fp16 cannot be enabled at once",
                "ValueError: At most one of fp16 and bf16 can be True, but not both",
                "transformers, training_args.py; DeepSpeed, runtime/config.py",
            ),
        ),
    ),
    Kind(
        "kto_batch_of_one",
        "KTO estimates its KL term from the other rows of a batch, of which there is only one.",
        ("Set per_device_train_batch_size to 2 or more; accumulation does not count.",),
        (
            Wording(
                r"\bKTO will not work properly because the KL term",
                "ValueError: Actual (not effective) batch size must be > 1. KTO will not work "
                "properly because the KL term will be equivalent to the implied reward.",
                "TRL, trainer/kto_trainer.py",
            ),
        ),
    ),
    Kind(
        "generations_setting",
        "Batch, generations and ranks of an online method don't fit each other.",
        (
            "Make per-device batch x accumulation x ranks a multiple of num_generations, which is "
            "at least 2.",
        ),
        (
            Wording(
                r"\bmust be (?:evenly )?divisible by the number of generations"
                r"|\bGRPO requires at least 2 generations per prompt"
                r"|\bnum_generations must be at least \d"
                r"|\bgeneration_batch_size' and 'steps_per_generation' can not both",
                "ValueError: GRPO requires at least 2 generations per prompt to calculate the "
                "advantages. You provided 1",
                "TRL, trainer/grpo_config.py",
            ),
        ),
        instead_of=("framework_settings",),
    ),
    Kind(
        "accelerator_twice",
        "A notebook started the accelerator or CUDA before its processes were launched.",
        (
            "Restart the notebook, and make the Accelerator and touch the GPU only inside the "
            "function that notebook_launcher starts.",
        ),
        (
            Wording(
                r"\bthe .Accelerator. should only be initialized inside your training function"
                r"|\bhas been initialized before the .notebook_launcher. could create"
                r"|\bAcceleratorState has already been initialized"
                r"|\bAcceleratorState. object has no attribute",
                "ValueError: To launch a multi-device training from your notebook, the "
                "`Accelerator` should only be initialized inside your training function.",
                "accelerate, launchers.py",
            ),
        ),
    ),
    Kind(
        "code_execution_consent",
        "The evaluation runs code that the model wrote, and nobody has allowed it.",
        (
            'Run it in a sandbox with HF_ALLOW_CODE_EVAL="1" (lm-eval: '
            "--confirm_run_unsafe_code), or leave that task out.",
        ),
        (
            Wording(
                r"\bset the environment variable HF_ALLOW_CODE_EVAL"
                r"|\bconfirm_run_unsafe_code\b.{0,80}(?:required|flag|pass|set)"
                r"|\bexecutes untrusted model-generated code in Python",
                'The "code_eval" metric executes untrusted model-generated code in Python.',
                "evaluate, metrics/code_eval; lm-eval, tasks/humaneval",
            ),
        ),
    ),
    Kind(
        "output_folder_not_empty",
        "The output folder already holds a training, and the program overwrites none.",
        ("Give a new folder, resume from the one that is there, or allow overwriting it.",),
        (
            Wording(
                r"\bOutput directory \(.{1,300}\) already exists and is not empty",
                "ValueError: Output directory (out) already exists and is not empty. Use "
                "--overwrite_output_dir to overcome.",
                "transformers, examples/pytorch",
            ),
        ),
    ),
)
