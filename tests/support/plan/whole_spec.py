"""A spec in which every field is given."""

WHOLE_SPEC = """\
spec_version: 1
name: stdlib-gpt
framework: nanogpt
method: auto
model: {n_layer: 4, n_head: 4, d_model: 128}
adapter: null
data: {sources: [{name: main, path: ./corpus, format: text, weight: 1.0}], tokenizer: byte,
       seq_len: 128, prepare: auto}
batch: {tokens: 8192, micro_batch: auto, ramp: null}
optimizer: {name: auto, lr: auto, weight_decay: 0.1, grad_clip: 1.0}
schedule: {kind: cosine, warmup_steps: auto, min_lr_ratio: 0.1}
steps: 200
precision: auto
seed: 1337
eval: {every_steps: 50, batches: 8}
checkpoint: {every: auto, keep_latest: 3, keep_best: 1, keep_every_steps: null, metric: auto,
             mirror: null}
recovery: {max_restarts: 3}
compute: {gpus: auto, gpu: null, gpu_memory_gib: null, nodes: 1, strategy: auto, launcher: process,
          image: null, shm_size: 16g, preemptible: false}
environment: auto
env: {}
secrets: []
tracking: {}
alerts: []
host: local
limits: {max_runtime: auto, budget_usd: null}
labels: {experiment: demo}
pty: false
"""
