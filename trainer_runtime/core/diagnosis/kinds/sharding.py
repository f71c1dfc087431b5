"""DeepSpeed, FSDP, Lightning and launchers: how a model is divided and its processes started."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording

KINDS = (
    Kind(
        "fsdp_wrap_class",
        "The layer class that FSDP is to wrap is not in this model.",
        (
            "Set fsdp_transformer_layer_cls_to_wrap to the class of this model's layers "
            "(print(model) shows it, such as Qwen2DecoderLayer), or leave it out.",
        ),
        (
            Wording(
                r"\bCould not find the transformer layer class(?: to wrap)?\b",
                "ValueError: Could not find the transformer layer class LlamaDecoderLayer in the "
                "model.",
                "accelerate, utils/dataclasses.py",
            ),
        ),
    ),
    Kind(
        "fsdp_uniform",
        "FSDP needs parameters of one type, and trained alike, in each unit that it flattens.",
        (
            "Load the whole model in one dtype (adapters and norms too); with frozen weights or "
            "an adapter set use_orig_params to true.",
            "Quantized weights need bnb_4bit_quant_storage in the dtype of the rest.",
        ),
        (
            Wording(
                r"\bMust flatten tensors with uniform .?(?:dtype|requires_grad)"
                r"|\bCannot flatten integer dtype tensors"
                r"|\bFlatParameter requires uniform|\bFSDP .{0,60}mixed (?:dtypes|requires_grad)"
                r"|\bFSDP expects uniform requires_grad",
                "ValueError: Must flatten tensors with uniform dtype but got torch.float32 and "
                "torch.bfloat16",
                "PyTorch, torch/distributed/fsdp/_flat_param.py",
            ),
        ),
    ),
    Kind(
        "fsdp_twice",
        "Two settings both ask for activation checkpointing, or for sharding.",
        (
            "With FSDP use its own activation_checkpointing and switch gradient_checkpointing off; "
            "use one of FSDP and DeepSpeed.",
        ),
        (
            Wording(
                r"\bactivation_checkpointing in FSDP config and the gradient_checkpointing in"
                r"|\bUsing --fsdp xxx together with --deepspeed is not possible",
                "ValueError: The activation_checkpointing in FSDP config and the "
                "gradient_checkpointing in training arg can't be set to True simultaneously.",
                "transformers, trainer.py",
            ),
        ),
    ),
    Kind(
        "data_parallel_refused",
        "One process sees several GPUs, so the trainer would copy the model to each "
        "(DataParallel), which this method can't do.",
        (
            "Start it by `accelerate launch` or `torchrun`, a process per GPU; or show it one GPU "
            "(CUDA_VISIBLE_DEVICES=0).",
        ),
        (
            Wording(
                r"\bdoes not support .nn\.DataParallel|\bmodule must have its parameters and "
                r"buffers on device cuda:\d",
                "ValueError: SFTTrainer does not support `nn.DataParallel`, which `Trainer` uses "
                "when several GPUs are visible to a single process.",
                "TRL, trainer/sft_trainer.py; PyTorch, torch/nn/parallel/data_parallel.py",
            ),
        ),
    ),
    Kind(
        "deepspeed_batch",
        "DeepSpeed's train_batch_size is not micro-batch x accumulation x ranks.",
        (
            "Set train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps "
            'to "auto", or make the product fit the world size that really runs.',
        ),
        (
            Wording(
                r"\bCheck batch related parameters\. train_batch_size is not equal"
                r"|\bEither train_batch_size or train_micro_batch_size_per_gpu needs to be",
                "AssertionError: Check batch related parameters. train_batch_size is not equal to "
                "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 6",
                "DeepSpeed, runtime/config.py",
            ),
        ),
        instead_of=("framework_settings",),
    ),
    Kind(
        "deepspeed_values_differ",
        "DeepSpeed's settings differ from the trainer's own.",
        ("Set the values that it lists to \"auto\" in DeepSpeed's file, or to the trainer's.",),
        (
            Wording(
                r"\bPlease correct the following DeepSpeed config values that mismatch"
                r"|\bFound .optimizer. configured in the DeepSpeed config, but no",
                "ValueError: Please correct the following DeepSpeed config values that mismatch "
                "TrainingArguments values:",
                "transformers, integrations/deepspeed.py",
            ),
            Wording(
                r"\bthe following .auto. entries in the DeepSpeed config file"
                r"|\bPlease specify `\w+` without `auto`",
                "ValueError: Please specify `train_batch_size` without `auto` (set to correct "
                "value) in the DeepSpeed config file",
                "accelerate, utils/dataclasses.py",
            ),
        ),
        instead_of=("framework_settings",),
    ),
    Kind(
        "deepspeed_no_sync",
        "Accumulation by no_sync() meets a ZeRO stage that divides the gradients.",
        (
            "Upgrade transformers, accelerate and DeepSpeed to versions that go together; or let "
            "DeepSpeed accumulate (gradient_accumulation_steps in its file), or use stage 1.",
        ),
        (
            Wording(
                r"\bno_?_?sync context manager is incompatible with gradient"
                r"|\bno_sync context manager is incompatible with gradient",
                "AssertionError: no_sync context manager is incompatible with gradient "
                "partitioning logic of ZeRO stage 2",
                "DeepSpeed, runtime/engine.py",
            ),
        ),
    ),
    Kind(
        "zero3_device_map",
        "ZeRO-3 places the weights itself and can't take a device_map.",
        ("Load without device_map and low_cpu_mem_usage under ZeRO-3.",),
        (
            Wording(
                r"\bDeepSpeed Zero-3 is not compatible with",
                "ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or "
                "with passing a `device_map`.",
                "transformers, modeling_utils.py",
            ),
        ),
    ),
    Kind(
        "untested_optimizer",
        "DeepSpeed refuses an optimizer that it has not tried with ZeRO, or CPU offload with a "
        "GPU optimizer.",
        (
            "Set zero_allow_untested_optimizer to true, or use DeepSpeed's own optimizer "
            "(DeepSpeedCPUAdam with offload; zero_force_ds_cpu_optimizer).",
        ),
        (
            Wording(
                r"\bYou are using an untested ZeRO Optimizer"
                r"|\bYou are using ZeRO-Offload with a client provided optimizer",
                "AssertionError: You are using an untested ZeRO Optimizer. Please add "
                '<"zero_allow_untested_optimizer": true> in the configuration file to use it.',
                "DeepSpeed, runtime/engine.py",
            ),
        ),
    ),
    Kind(
        "aio_missing",
        "Offloading to NVMe needs DeepSpeed's async_io, which can't be built: libaio is missing.",
        ("Install libaio-dev (libaio-devel), or offload to the CPU in place of NVMe.",),
        (
            Wording(
                r"\basync_io requires the dev libaio|\bUnable to JIT load the async_io op"
                r"|\blibaio\.so[\w.]*: cannot open|\blibaio\.h: No such file",
                "RuntimeError: Unable to JIT load the async_io op due to it not being compatible "
                "due to hardware/software issue. None",
                "DeepSpeed, ops/op_builder/builder.py",
                unless=r"\[WARNING\]",
            ),
        ),
        instead_of=("compiler_missing",),
    ),
    Kind(
        "deepspeed_op_build",
        "An operation of DeepSpeed (fused or CPU Adam) could not be built for this machine.",
        (
            "Install a CUDA toolkit of PyTorch's version and ninja, reinstall DeepSpeed, or use "
            "torch's own AdamW; `ds_report` lists what is compatible.",
        ),
        (
            Wording(
                r"\bUnable to JIT load the (?!async_io)\w+ op|\bDeepSpeed ops were compiled and "
                r"installed with a different version",
                "RuntimeError: Unable to JIT load the cpu_adam op due to ninja not being "
                "installed.",
                "DeepSpeed, ops/op_builder/builder.py",
                unless=r"\[WARNING\]",
            ),
        ),
        instead_of=("compiler_missing",),
    ),
    Kind(
        "hosts_not_reachable_by_ssh",
        "The launcher can't log in to a host of the host file without a password.",
        (
            "Set up ssh keys and known_hosts between the machines; on a single machine remove the "
            "hostfile.",
        ),
        (
            Wording(
                r"\bwas not reachable via ssh\b|\bpdsh@\w+: .{1,80}: ssh exited with exit code 255"
                r"|\bHost key verification failed\.|\bORTE was unable to reliably start",
                "RuntimeError: Using hostfile at /job/hostfile but host=worker-1 was not reachable "
                "via ssh.",
                "DeepSpeed, launcher/runner.py; Open MPI",
            ),
        ),
    ),
    Kind(
        "host_file_wrong",
        "The launcher's host file, or what is selected from it, does not fit the machines.",
        ("Write `host slots=N` a line; name only hosts and slots in --include that it has.",),
        (
            Wording(
                r"\bHostfile (?:contains (?:a bad entry|multiple entries)|is empty or not)"
                r"|\bHostname '[^']{1,80}' not found in hostfile"
                r"|\bNo slot '\d+' specified on host"
                r"|\bNum nodes is >1 but no extra nodes available",
                "ValueError: No slot '4' specified on host 'localhost'",
                "DeepSpeed, launcher/runner.py",
            ),
        ),
    ),
    Kind(
        "slurm_tasks",
        "Slurm's number of tasks or nodes is not the number of processes that the program expects.",
        (
            "Ask for --nodes=N and --ntasks-per-node=GPUs (not --ntasks), start by srun, and give "
            "the trainer the same devices and num_nodes.",
        ),
        (
            Wording(
                r"\bYou set `--ntasks=\d+` in your SLURM bash script"
                r"|\bthe number of (?:tasks per node|nodes) configured in SLURM",
                "RuntimeError: You set `--ntasks=8` in your SLURM bash script, but this variable "
                "is not supported. HINT: Use `--ntasks-per-node=8` instead.",
                "Lightning, fabric/plugins/environments/slurm.py",
            ),
        ),
    ),
    Kind(
        "fewer_gpus_than_asked",
        "More GPUs are asked for than the machine or the cluster has.",
        (
            "Ask for the GPUs that `nvidia-smi` lists; over several machines start every node and "
            "give nnodes and n_gpus_per_node as they are.",
        ),
        (
            Wording(
                r"\bYou requested gpu: \[.{1,80}\]|\bBut your machine only has: \["
                r"|\bGPUs requested but none are available"
                r"|\bThe number of required GPUs exceeds the total number of available GPUs"
                r"|\bWorld size .{0,40}is larger than the number of available GPUs"
                r"|\bTotal available GPUs [\d.]+ is less than total desired GPUs",
                "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested "
                "gpu: [0, 1, 2, 3] But your machine only has: [0]",
                "Lightning, fabric/utilities/device_parser.py; vLLM; verl",
            ),
        ),
        instead_of=("no_gpu", "ray_resources"),
    ),
    Kind(
        "heads_not_divisible",
        "The model can't be divided evenly over so many GPUs.",
        (
            "Choose a tensor-parallel size that divides the number of attention and key-value "
            "heads (and of layers for pipelines).",
        ),
        (
            Wording(
                r"\bTotal number of attention heads \(\d+\) must be divisible by tensor parallel"
                r"|\bnum_(?:attention_heads|query_groups|kv_heads|key_value_heads) .{0,60}"
                r"must be (?:a multiple of|divisible by) (?:the )?tensor"
                r"|\bis not divisible by (?:tensor_model_parallel_size|tp_size|pipeline_model)",
                "ValueError: Total number of attention heads (40) must be divisible by tensor "
                "parallel size (3).",
                "vLLM, vllm/config.py; Megatron-LM, training/arguments.py",
            ),
        ),
    ),
    Kind(
        "parallel_sizes",
        "The number of processes is not a multiple of the parallel sizes multiplied (tensor x "
        "pipeline x context).",
        (
            "Choose sizes whose product divides the world size, or start more processes; what is "
            "left over is the data-parallel size.",
        ),
        (
            Wording(
                r"\bworld[_ ]size \(?\d+\)? is not divisible by"
                r"|\bworld[_ ]size \(?\d+\)? (?:must be|should be) (?:a multiple of|divisible by)"
                r"|\bInvalid parallel dims: .{1,120}WORLD_SIZE",
                "RuntimeError: world_size (16) is not divisible by 6",
                "Megatron-LM, core/parallel_state.py; torchtitan, parallel_dims.py",
            ),
        ),
        instead_of=("heads_not_divisible",),
    ),
    Kind(
        "batch_not_divisible",
        "A batch can't be divided evenly among the workers: its size is not a multiple of their "
        "number.",
        (
            "Choose train_batch_size x n a multiple of the workers (GPUs per node x nodes), also "
            "after filtering; drop or fill up the last incomplete batch.",
            "A mini-batch is divided by the workers, too: it becomes 0 where it is smaller.",
        ),
        (
            Wording(
                r"\bonly support equal chunk\. Got size of DataProto \d+ and chunk"
                r"|\breal_train_batch_size \(\d+\) must be divisible by"
                r"|\bppo_(?:mini|micro)_batch_size\w* \d+ should be larger than",
                "AssertionError: only support equal chunk. Got size of DataProto 30 and chunk 4.",
                "verl, protocol.py; workers/fsdp_workers.py",
            ),
        ),
        instead_of=("ray_worker_died",),
    ),
    Kind(
        "save_only_model_with_best",
        "Sharded weights can't be loaded again at the end, since only the model was saved.",
        ("Switch save_only_model or load_best_model_at_end off.",),
        (
            Wording(
                r"\bcan't be used with .save_only_model. along with .load_best_model_at_end",
                "ValueError: DeepSpeed can't be used with `save_only_model` along with "
                "`load_best_model_at_end`.",
                "transformers, trainer.py",
            ),
        ),
        instead_of=("evaluation_setting",),
    ),
    Kind(
        "checkpoint_rename_race",
        "Several processes renamed or removed the same folder of a checkpoint.",
        (
            "Upgrade transformers; on a shared disk save on one node only "
            "(save_on_each_node false), on disks of their own set it to true.",
        ),
        (
            Wording(
                r"\btmp-checkpoint-\d+' -> '"
                r"|\bDirectory not empty: '[^']{0,300}checkpoint-\d+",
                "FileNotFoundError: [Errno 2] No such file or directory: "
                "'out/tmp-checkpoint-500' -> 'out/checkpoint-500'",
                "transformers, trainer.py",
            ),
        ),
        instead_of=("checkpoint_incomplete", "data_file_missing"),
    ),
)
