#!/usr/bin/env python3
"""Makes realistic checkpoints, with the libraries that people use: a small language model is trained for some steps, and saved after each step in
every way. Needs PyTorch; the Trainer's directories also need transformers and accelerate. Ways whose libraries are missing are left out.

    make_checkpoints.py OUT [--width N] [--layers N] [--steps N] [WAY...]     default: every way
    make_checkpoints.py --samples FILE.zip                                    the samples that test_checkpoints.py has

Ways: torch (one file), trainer (Hugging Face), zero (DeepSpeed's layout), megatron (its legacy layout), dcp-1, dcp-2, dcp-4 (FSDP2 and
torch.distributed.checkpoint, by 1, 2 and 4 processes). OUT/WAY/step-K is a checkpoint, OUT/WAY-safetensors/step-K.safetensors has the same tensors,
and OUT/WAY/step-K.json says what PyTorch finds in each file: {file: {name: [dtype, shape, CRC-32 of its bytes]}}.

SPDX-License-Identifier: MIT
"""
import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
import zipfile
import zlib

import torch
from torch import nn

NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64", torch.int64: "I64", torch.int32: "I32",
         torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64", torch.complex128: "C128",
         torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64"}
VOCABULARY = 512
RANKS = {"dcp-1": 1, "dcp-2": 2, "dcp-4": 4}


def raw(tensor):
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b""


def describe(tensor):
    return [NAMES[tensor.dtype], list(tensor.shape), zlib.crc32(raw(tensor))]


def tensors_of(value, path=""):
    """{name: tensor} of nested dictionaries and lists; of tensors with the same storage only the first."""
    found, storages = {}, set()

    def walk(value, path):
        if isinstance(value, torch.Tensor):
            key = (value.untyped_storage().data_ptr(), value.storage_offset())
            if value.numel() == 0 or key not in storages:
                found[path] = value.detach()
            storages.add(key)
        elif isinstance(value, dict):
            for k, v in value.items():
                walk(v, f"{path}.{k}" if path else str(k))
        elif isinstance(value, (list, tuple)):
            for i, v in enumerate(value):
                walk(v, f"{path}.{i}" if path else str(i))
    walk(value, path)
    return found


def save_as_safetensors(path, tensors):
    """Like safetensors.torch.save_file: sorted by size of elements, then by name."""
    header, data, at = {}, [], 0
    for name, t in sorted(tensors.items(), key=lambda x: (-x[1].element_size(), x[0])):
        part = raw(t)
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(part)]}
        data.append(part)
        at += len(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A language model with a tied head and embedding."""
    def __init__(self, width, layers):
        vocabulary = VOCABULARY
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def batches(steps):
    """Text with repetitions, so that there is something to learn."""
    for step in range(steps):
        g = torch.Generator().manual_seed(step)
        start = torch.randint(0, VOCABULARY, (8, 1), generator=g)
        yield (start + torch.arange(33) * 7) % VOCABULARY


def train(width, layers, steps, warm_up=20):
    """Yields model and optimizer after each of the last steps."""
    torch.manual_seed(1)
    model = Model(width, layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for i, x in enumerate(batches(warm_up + steps)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
        if i >= warm_up:
            yield i - warm_up, model, optimizer


def finish(out, way, step, files):
    """files: {path below the checkpoint: object} of the files that were written."""
    described, tensors = {}, {}
    for path, value in files.items():
        found = tensors_of(value)
        described[path] = {name: describe(t) for name, t in found.items()}
        for name, t in found.items():
            tensors[f"{path}:{name}"] = t
    with open(f"{out}/{way}/step-{step}.json", "w") as f:
        json.dump(described, f)
    save_as_safetensors(f"{out}/{way}-safetensors/step-{step}.safetensors", tensors)


def write_files(out, way, step, files):
    for path, value in files.items():
        full = f"{out}/{way}/step-{step}/{path}"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        torch.save(value, full)
    finish(out, way, step, files)


def save_torch(out, step, model, optimizer):
    half = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    write_files(out, "torch", step, {"checkpoint.pt": {
        "master": dict(model.state_dict()), "model": half, "optimizer": optimizer.state_dict(), "step": step, "args": {"note": "x" * 120 * step, "lr": 1e-4},
        "rng": torch.get_rng_state()}})


def save_zero(out, step, model, optimizer):
    """ZeRO stage 1 on two ranks: each has half of the flat master and of the moments; there is one group."""
    parameters = [p.detach() for p in model.parameters()]
    flat = torch.cat([p.flatten() for p in parameters])
    moments = {k: torch.cat([optimizer.state[p][k].flatten() for p in model.parameters()]) for k in ("exp_avg", "exp_avg_sq")}
    names = dict(model.named_parameters())
    files = {"mp_rank_00_model_states.pt": {
        "module": {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}, "buffer_names": [], "optimizer": None,
        "param_shapes": [{k: v.shape for k, v in names.items()}], "ds_version": "0.17.0", "global_steps": step, "dp_world_size": 2, "mp_world_size": 1}}
    half = (len(flat) + 1) // 2
    for rank in range(2):
        part = slice(rank * half, (rank + 1) * half)
        files[f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"] = {
            "optimizer_state_dict": {
                "base_optimizer_state": {"state": {0: {"step": torch.tensor(float(step)), **{k: v[part].clone() for k, v in moments.items()}}},
                                         "param_groups": [{"lr": 1e-4, "params": [0]}]},
                "single_partition_of_fp32_groups": [flat[part].clone()], "zero_stage": 1, "group_paddings": [0], "partition_count": [2]},
            "ds_config": {"train_batch_size": 8, "note": "x" * 90 * step}, "ds_version": "0.17.0"}
    write_files(out, "zero", step, files)


def save_megatron(out, step, model, optimizer):
    half = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    language = {"embedding": {"word_embeddings": {"weight": half["embed.weight"]}}, "encoder": {k: v for k, v in half.items() if k.startswith("layers.")}}
    flat = {k: torch.cat([optimizer.state[p][k].flatten() for p in model.parameters()]) for k in ("exp_avg", "exp_avg_sq")}
    flat["param"] = torch.cat([p.detach().flatten() for p in model.parameters()])
    write_files(out, "megatron", step, {
        "mp_rank_00/model_optim_rng.pt": {"args": argparse.Namespace(iteration=step, lr=1e-4), "checkpoint_version": 3.0, "iteration": step,
                                          "model": {"language_model": language}, "rng_state": [{"torch_rng_state": torch.get_rng_state()}]},
        "mp_rank_00/distrib_optim.pt": {0: {torch.float32: {**flat, "numel_unpadded": len(flat["param"])}}, "per_bucket_numel": [{torch.float32: [len(flat["param"])]}]}})


def save_trainer(out, width, layers, steps):
    import transformers
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=width, n_layer=layers, n_head=4, bos_token_id=0, eos_token_id=0)
    data = [{"input_ids": row, "labels": row} for x in batches(steps + 20) for row in x]
    with tempfile.TemporaryDirectory() as place:
        args = transformers.TrainingArguments(output_dir=place, max_steps=steps + 20, per_device_train_batch_size=8, save_steps=1, save_total_limit=steps,
                                              report_to=[], use_cpu=True, learning_rate=1e-4, disable_tqdm=True, logging_strategy="no")
        transformers.Trainer(transformers.GPT2LMHeadModel(config), args, train_dataset=data).train()
        for step in range(steps):
            to = f"{out}/trainer/step-{step}"
            shutil.copytree(f"{place}/checkpoint-{21 + step}", to)
            os.remove(f"{to}/training_args.bin")  # contains the name of its directory
            from safetensors.torch import load_file
            files = {name: torch.load(f"{to}/{name}", weights_only=False) for name in ("optimizer.pt", "scheduler.pt")}
            finish(out, "trainer", step, {"model.safetensors": load_file(f"{to}/model.safetensors"), **files})


def run_rank(rank, n, port, out, way, width, layers, steps):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(n))
    dist.init_process_group("gloo", rank=rank, world_size=n)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (n,))
    # every way saves the same numbers: trained alone, then sharded
    for step, model, optimizer in train(width, layers, steps):
        other = Model(width, layers)
        fully_shard(other, mesh=mesh)
        sharded = torch.optim.AdamW(other.parameters(), lr=1e-4)
        states = get_state_dict(model, optimizer)
        if rank == 0:
            finish(out, way, step, {"": dict(zip(("model", "optimizer"), states))})
        set_state_dict(other, sharded, model_state_dict=states[0], optim_state_dict=states[1], options=StateDictOptions(full_state_dict=True))
        state = dict(zip(("model", "optimizer"), get_state_dict(other, sharded)), step=step, args={"note": "x" * 70 * step})
        dcp.save(state, checkpoint_id=f"{out}/{way}/step-{step}")
    dist.destroy_process_group()


def save_dcp(out, way, width, layers, steps):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.makedirs(f"{out}/{way}", exist_ok=True)
    torch.multiprocessing.spawn(run_rank, (RANKS[way], port, out, way, width, layers, steps), nprocs=RANKS[way])


def odd_object():
    """All that an object can contain: dtypes, views, shared storages."""
    g = torch.Generator().manual_seed(2)
    def noise(*shape): return torch.randn(*shape, generator=g)
    big, tied, flat = noise(40, 30), noise(20, 30), noise(500)
    return {"dtypes": {str(t).split(".")[1]: noise(12).mul(50).to(t) for t in NAMES}, "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3), "transposed": noise(3, 5).t(),
            "last": noise(2, 3, 4, 5).to(memory_format=torch.channels_last), "parameter": nn.Parameter(noise(2)), "tied": tied, "tied again": tied,
            "rows": big[3:5], "columns": noise(10, 10)[:, 2:4], "parts": [flat[:100], flat[100:500].view(40, 10)], "whole": {"qkv": (q := noise(12, 4)), "k": q[4:8]},
            "list": [1, {"deep": (noise(3),)}], 7: {"exp_avg": noise(4)}, "sparse": torch.eye(4).to_sparse(), "": noise(5), "a.b": {"c": noise(6)}, "\u00e4 b": noise(7)}


def make_samples(path):
    """Small samples: files that cannot be small are left out."""
    global VOCABULARY
    VOCABULARY = 16
    with tempfile.TemporaryDirectory() as out:
        make(out, 4, 1, 2, ["torch", "trainer", "zero", "megatron", "dcp-1", "dcp-2"])
        odd = odd_object()
        torch.save(odd, f"{out}/odd.pt")
        torch.save({"w": torch.quantize_per_tensor(torch.randn(4, 4), 0.1, 0, torch.qint8), "x": torch.ones(9)}, f"{out}/quantised.pt")
        torch.save(torch.arange(12.0).view(3, 4), f"{out}/alone.pt")
        torch.save({"w": torch.ones(5)}, f"{out}/legacy.pt", _use_new_zipfile_serialization=False)
        torch.save({"w": torch.arange(5.0)}, f"{out}/protocol4.pt", pickle_protocol=4)
        module = torch.jit.script(nn.Linear(4, 3))
        torch.jit.save(module, f"{out}/script.pt")
        with open(f"{out}/odd.json", "w") as f:
            json.dump({name: describe(t) for name, t in tensors_of(odd["dtypes"], "dtypes").items()}, f)
        with zipfile.ZipFile(path, "w") as z:
            for at, _, names in sorted(os.walk(out)):
                for name in sorted(names):
                    step = os.path.relpath(at, out)
                    if "-safetensors" in at or name in ("rng_state.pth", "tokenizer_config.json") or step.startswith(("dcp-1/step-1", "megatron/step-1")):
                        continue
                    full = os.path.join(at, name)
                    with open(full, "rb") as f:
                        z.writestr(zipfile.ZipInfo(os.path.relpath(full, out)), f.read(), zipfile.ZIP_LZMA)


def make(out, width, layers, steps, ways):
    for way in ways:
        os.makedirs(f"{out}/{way}", exist_ok=True)
    savers = {"torch": save_torch, "zero": save_zero, "megatron": save_megatron}
    for step, model, optimizer in train(width, layers, steps):
        for way in ways:
            if way in savers:
                savers[way](out, step, model, optimizer)
    if "trainer" in ways:
        try:
            save_trainer(out, width, layers, steps)
        except ImportError as missing:
            print(f"trainer is left out: {missing}")
            shutil.rmtree(f"{out}/trainer")
    for way in ways:
        if way in RANKS:
            save_dcp(out, way, width, layers, steps)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("out")
    p.add_argument("ways", nargs="*", default=[])
    p.add_argument("--samples", action="store_true")
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--steps", type=int, default=3)
    o = p.parse_args()
    torch.set_num_threads(1)
    if o.samples:
        make_samples(o.out)
    else:
        make(o.out, o.width, o.layers, o.steps, o.ways or ["torch", "trainer", "zero", "megatron", *RANKS])


if __name__ == "__main__":
    main()
