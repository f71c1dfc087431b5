"""Base weights and checkpoints that are missing, incomplete or of another form."""

from __future__ import annotations

from trainer_runtime.core.diagnosis.kinds.kind import Kind, Wording
from trainer_runtime.core.diagnosis.traceback_text import Phase

KINDS = (
    Kind(
        "lfs_pointer",
        "The file is a git-lfs pointer, a few lines of text in place of the weights: it was not "
        "downloaded.",
        (
            "Fetch the real files: `git lfs install && git lfs pull`, or `hf download`.",
            "A file of weights of some hundred bytes is such a pointer.",
        ),
        (
            Wording(
                r"\bUnpicklingError: invalid load key, 'v'",
                "_pickle.UnpicklingError: invalid load key, 'v'.",
                "Python, pickle; git-lfs: a pointer begins with `version`",
            ),
            Wording(
                r"\bHeaderTooLarge\b|\bdeserializing header: header too large",
                "Traceback (most recent call last):\n"
                '  File "/env/site-packages/transformers/modeling_utils.py", line 9, in '
                "from_pretrained\n"
                "safetensors_rust.SafetensorError: Error while deserializing header: "
                "HeaderTooLarge",
                "safetensors, safetensors/src/tensor.rs",
                phases=(Phase.WEIGHTS,),
                confidence=0.8,
            ),
            Wording(
                r"\bYou seem to have cloned a repository without having git-lfs installed",
                "OSError: You seem to have cloned a repository without having git-lfs installed.",
                "transformers, modeling_utils.py",
            ),
        ),
        instead_of=("checkpoint_corrupt", "unknown_error"),
    ),
    Kind(
        "html_instead_of_weights",
        "The file is a web page in place of the weights: the download got an error page.",
        ("Download it again, with a token where the repository wants one.",),
        (
            Wording(
                r"\bUnpicklingError: invalid load key, '<'",
                "_pickle.UnpicklingError: invalid load key, '<'.",
                "Python, pickle",
            ),
        ),
        instead_of=("checkpoint_corrupt",),
    ),
    Kind(
        "local_path_missing",
        "The local folder or file that is named for a model or data set does not exist on the "
        "machine, so it is taken for a name on the hub.",
        (
            "Check the path as seen from the run's folder; give it absolutely.",
            "A folder of a checkpoint may have been deleted by keeping only the newest.",
        ),
        (
            Wording(
                r"\b(?:OSError|EnvironmentError): (?:Incorrect path_or_model_id: |\.{0,2}/|~/"
                r"|[\w.-]+/[\w.-]+/[\w./-]+ is not a local|[\w./-]*(?:checkpoint|output|outputs|out"
                r"|results|runs|step|models?|ckpts?|data)[\w./-]*\d[\w./-]* is not a local)",
                "OSError: ./out/step9 is not a local folder and is not a valid model identifier "
                "listed on the hub",
                "transformers, utils/hub.py",
            ),
            Wording(
                r"\bRepo id must .{1,120}: '(?:[./~]|\w:\\|[\w.-]+/[\w.-]+/)",
                "huggingface_hub.errors.HFValidationError: Repo id must be in the form "
                "'repo_name' or 'namespace/repo_name': '/data/models/base'.",
                "huggingface_hub, utils/_validators.py",
            ),
            Wording(
                r"\bUnsloth: No config file found\b",
                "RuntimeError: Unsloth: No config file found - are you sure the `model_name` is "
                "correct?",
                "Unsloth, unsloth/models/loader.py",
            ),
        ),
        instead_of=("hf_gated_repo", "hf_network"),
    ),
    Kind(
        "weights_missing",
        "The folder of the model lacks a file: the download or the copy is incomplete, or a local "
        "folder has the name of a model of the hub and is taken in its place.",
        (
            "List the folder; download or copy it again, config and tokenizer included.",
            "Where the hub's model is meant, rename the local folder of the same name, or start "
            "elsewhere.",
            "Where only an adapter is in it, name the base model too.",
        ),
        (
            Wording(
                r"\b(?:OSError|EnvironmentError): Error no file named (?:pytorch_model|model|tf_)"
                r"|\bdoes not appear to have a file named (?:config\.json|pytorch_model|model)"
                r"|\bCan't load tokenizer for '|\bCan't load the (?:configuration|model) of '"
                r"|\bCan't find 'adapter_config\.json' at"
                r"|\bNo such file or directory: '[^']{0,300}/(?:config\.json|tokenizer(?:_config)?"
                r"\.json|tokenizer\.model|lit_config\.json|model_config\.yaml|(?:pytorch_)?model"
                r"(?:-\d+-of-\d+)?\.(?:safetensors|bin))'",
                "OSError: Error no file named pytorch_model.bin, model.safetensors found in "
                "directory ./base.",
                "transformers, modeling_utils.py",
                not_phases=(Phase.CHECKPOINT,),
            ),
        ),
        follows=("hf_network", "hf_gated_repo"),
        confidence=0.85,
    ),
    Kind(
        "checkpoint_incomplete",
        "The checkpoint to resume from is incomplete: a file of it is missing. The save was cut, "
        "or it was saved without optimizer and trainer state.",
        (
            "Resume from the checkpoint before it, or start again from its weights.",
            "Save optimizer and trainer state too (save_only_model, save_weights_only off).",
        ),
        (
            Wording(
                r"\bNo such file or directory: '[^']{0,300}/(?:trainer_state\.json|optimizer\.(?:pt"
                r"|bin)|scheduler\.pt|training_args\.bin|rng_state\S*|latest(?:_checkpointed"
                r"_iteration\.txt)?|\.metadata|zero_pp_rank\w+\.pt|mp_rank\w+\.pt)'",
                "FileNotFoundError: [Errno 2] No such file or directory: "
                "'out/checkpoint-10/trainer_state.json'",
                "transformers, trainer_callback.py",
            ),
            Wording(
                r"\bCan't find a valid checkpoint at|\bNo valid checkpoint found in output"
                r"|\bUnable to find latest file at|\bUnable to (?:load|find) (?:DeepSpeed |ZeRO )?"
                r"checkpoint.{0,40}shards"
                r"|\bThe following zero checkpoints paths are missing"
                r"|\bTrying to restore \w+ state but checkpoint contains only the model",
                "ValueError: Can't find a valid checkpoint at out/checkpoint-200",
                "transformers, integrations/deepspeed.py; DeepSpeed, runtime/engine.py; "
                "Lightning, connectors/checkpoint_connector.py",
            ),
            Wording(
                r"\bKeyError: '(?:optimizer(?:_state_dict)?|lr_scheduler|scheduler|global_step"
                r"|iter_num|rng_state)'",
                "Traceback (most recent call last):\n"
                '  File "train.py", line 9, in load_checkpoint\n'
                "KeyError: 'optimizer_state_dict'",
                "training programs that load their own checkpoint",
                phases=(Phase.CHECKPOINT, Phase.WEIGHTS),
                confidence=0.8,
            ),
        ),
        confidence=0.88,
    ),
    Kind(
        "world_size_differs",
        "The checkpoint was saved by another number of ranks than the one that loads it.",
        (
            "Resume with as many ranks as saved it, or convert it first (DeepSpeed: universal "
            "checkpoints, or zero_to_fp32.py for the weights).",
        ),
        (
            Wording(
                r"\bexpecting a world size of \d+|\bworld size \d+ of the checkpoint"
                r"|\bThe checkpoint being loaded used a DP world size of \d+"
                r"|\bAutomatic adjustment of ZeRO's optimizer state partitioning with a new world",
                "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded "
                "used a DP world size of 8 but the current world size is 4.",
                "DeepSpeed, runtime/engine.py",
            ),
        ),
    ),
    Kind(
        "zero3_not_gathered",
        "The checkpoint's tensors are empty: under ZeRO-3 each rank holds a part, and they were "
        "saved (or are loaded) without gathering.",
        (
            "Set stage3_gather_16bit_weights_on_model_save, or make whole weights of the "
            "checkpoint by zero_to_fp32.py.",
        ),
        (
            Wording(
                r"\bsize mismatch for .{1,300}torch\.Size\(\[0\]\)",
                "size mismatch for model.embed_tokens.weight: copying a param with shape "
                "torch.Size([0]) from checkpoint, the shape in current model is "
                "torch.Size([32000, 4096]).",
                "PyTorch, torch/nn/modules/module.py; DeepSpeed ZeRO-3",
            ),
        ),
        instead_of=("checkpoint_shape_mismatch",),
    ),
    Kind(
        "compiled_names",
        "The checkpoint was saved from a compiled or wrapped model: its names have a prefix "
        "(_orig_mod. of torch.compile, module. of DDP).",
        (
            "Remove the prefix from the names, or save model._orig_mod's (model.module's) state; "
            "load it before compiling or wrapping.",
        ),
        (
            Wording(
                r"\b(?:Unexpected|Missing) key\(s\) in state_dict: .{0,400}"
                r"\"(?:_orig_mod|module)\.",
                'Unexpected key(s) in state_dict: "_orig_mod.tok_emb.weight"',
                "PyTorch, torch/nn/modules/module.py",
            ),
        ),
        instead_of=("checkpoint_shape_mismatch",),
    ),
    Kind(
        "weights_only_refused",
        "torch.load reads plain weights only since PyTorch 2.6; this file has other objects.",
        (
            "Where the file is your own: load it with weights_only=False, or allow its classes "
            "(torch.serialization.add_safe_globals). Never do so for a file of unknown origin.",
        ),
        (
            Wording(
                r"\bWeights only load failed"
                r"|\bWeightsUnpickler error: Unsupported (?:global|class)",
                "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded.",
                "PyTorch, torch/serialization.py",
                unless=r"(?i)warn|fall|retry",
            ),
        ),
        instead_of=("checkpoint_corrupt",),
    ),
    Kind(
        "saved_on_other_device",
        "The checkpoint was saved from a GPU that is not here.",
        ('Load it with map_location="cpu".',),
        (
            Wording(
                r"\bAttempting to deserialize object on (?:a )?CUDA device",
                "RuntimeError: Attempting to deserialize object on a CUDA device but "
                "torch.cuda.is_available() is False.",
                "PyTorch, torch/serialization.py",
            ),
        ),
        instead_of=("checkpoint_corrupt",),
    ),
    Kind(
        "shared_tensors",
        "safetensors refuses tensors that share memory (tied weights).",
        ("Save by save_pretrained or safetensors.torch.save_model, or untie the weights.",),
        (
            Wording(
                r"\bSome tensors share memory, this will lead to duplicate memory on disk"
                r"|\bweights trying to be saved contained shared tensors",
                "RuntimeError: Some tensors share memory, this will lead to duplicate memory on "
                "disk and potential differences when loading them again",
                "safetensors, bindings/python/py_src/safetensors/torch.py",
            ),
        ),
    ),
    Kind(
        "head_size_differs",
        "The checkpoint's head has another number of labels (classes) than this task; nothing else "
        "of it differs in shape.",
        (
            "To train a new head on the checkpoint's body: ignore_mismatched_sizes=True (or remove "
            "the head from the state first).",
            "To continue with the old head: num_labels as it was saved.",
        ),
        (
            Wording(
                r"\bsize mismatch for [\w.]*\b(?:classifier|score|classification_head|cls_head|fc"
                r"|heads?)\b[\w.]*: copying a param",
                "RuntimeError: Error(s) in loading state_dict for Net:\n"
                "\tsize mismatch for score.weight: copying a param with shape torch.Size([2, 8]) "
                "from checkpoint, the shape in current model is torch.Size([3, 8]).",
                "PyTorch, torch/nn/modules/module.py",
                # The first that differs: a head comes after the rest.
                after=r"Error\(s\) in loading state_dict for [^\n]{1,120}:\s*\n[^\n]*$",
                confidence=0.85,
            ),
            Wording(
                r"^\s*[\w.]*\b(?:classifier|score|classification_head|cls_head|fc|heads?)\b[\w.]*"
                r" *\| *\bMISMATCH\b *\|",
                "Key | Status | \n"
                "----+--------+----\n"
                "score.weight | MISMATCH | Reinit due to size mismatch\n"
                "RuntimeError: You set `ignore_mismatched_sizes` to `False`, thus raising an "
                "error.",
                "transformers, utils/loading_report.py",
                after=r"-\+-[-+]*\s*\n[^\n]*$",
                confidence=0.8,
            ),
        ),
        instead_of=("checkpoint_shape_mismatch",),
    ),
    Kind(
        "checkpoint_format",
        "The folder holds weights in another format than the program loads.",
        (
            "Convert them first: `litgpt convert_to_litgpt` (or `litgpt download`) makes "
            "lit_model.pth and model_config.yaml of a Hugging Face checkpoint.",
        ),
        (
            Wording(
                r"\bcheckpoint_dir .{1,300} is missing the files: \[",
                "checkpoint_dir '/models/a' is missing the files: ['lit_model.pth'].",
                "LitGPT, litgpt/utils.py",
            ),
        ),
        instead_of=("weights_missing",),
    ),
    Kind(
        "zero3_part_used",
        "A weight is empty: under ZeRO-3 each rank holds a part, and the module is used outside of "
        "DeepSpeed's engine, which gathers the parts.",
        (
            "Call the wrapped model, or gather the weights around the call "
            "(deepspeed.zero.GatheredParameters; TRL: ds3_gather_for_generation).",
        ),
        (
            Wording(
                r"\bRuntimeError: 'weight' must be 2-D"
                r"|\bweight should have at least three dimensions",
                "RuntimeError: 'weight' must be 2-D",
                "PyTorch, aten/src/ATen/native/Embedding.cpp; DeepSpeed ZeRO-3",
                confidence=0.75,
            ),
        ),
    ),
    Kind(
        "flax_params_differ",
        "The parameters have another shape than the model that they are given to: they were saved "
        "with another configuration (vocabulary, width).",
        ("Build the model by the configuration that lies beside the checkpoint.",),
        (
            Wording(
                r"\bScopeParamShapeError: Initializer expected to generate shape",
                "flax.errors.ScopeParamShapeError: Initializer expected to generate shape (8, 4) "
                "but got shape (9, 4)",
                "Flax, flax/errors.py",
                confidence=0.85,
            ),
        ),
    ),
    Kind(
        "adapter_files_missing",
        "The folder holds no adapter: it was not saved by the adapter's save_pretrained, or is "
        "another one.",
        (
            "Name the folder in which adapter_config.json and adapter_model.safetensors lie; save "
            "with model.save_pretrained (PEFT), where a callback or Trainer saved only a state.",
        ),
        (
            Wording(
                r"\bCan't find 'adapter_config\.json' at '",
                "ValueError: Can't find 'adapter_config.json' at 'out/step9'",
                "PEFT, peft/config.py",
            ),
        ),
        instead_of=("weights_missing", "local_path_missing", "hub_entry_missing", "hf_gated_repo"),
    ),
)
