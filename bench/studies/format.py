#!/usr/bin/env python3
"""The overhead of the format: bytes that are not payload, and requests to read a tensor.

  bench/studies/format.py metadata LMC             bytes per tensor in full files and in deltas
  bench/studies/format.py reads LMC RANGE_READS    requests and bytes to open a file, and to read one tensor

LMC is the command, RANGE_READS is bench/studies/range_reads.c. Sizes are exact and the same on every machine.
SPDX-License-Identifier: MIT
"""
import json, os, struct, subprocess, sys, tempfile

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FILE_HEADER, SECTION_HEADER, BLOCK_HEADER, TRAILER = 64, 20, 24, 40
OF_TEXT = 2  # Prediction of a run


# ---- models: lists of (name, dtype, shape), in the order of their state; real names, and shapes made small by the same factor ----

def small(n):
    return [("layers.%d.weight" % i, "BF16", (64, 64)) for i in range(n)]


def shrink(*shape):
    return tuple(max(1, size // 256) for size in shape)


def qwen3_30b_a3b():
    """18,867 tensors, 128 experts in each of 48 layers."""
    names = [("model.embed_tokens.weight", shrink(151936, 2048))]
    for layer in range(48):
        at = "model.layers.%d." % layer
        for name, rows in (("q", 4096), ("k", 512), ("v", 512)):
            names.append((at + "self_attn.%s_proj.weight" % name, shrink(rows, 2048)))
        names += [(at + "self_attn.o_proj.weight", shrink(2048, 4096)), (at + "self_attn.q_norm.weight", (128,)), (at + "self_attn.k_norm.weight", (128,)),
                  (at + "mlp.gate.weight", shrink(128, 2048))]
        for expert in range(128):
            for name, shape in (("gate", (768, 2048)), ("up", (768, 2048)), ("down", (2048, 768))):
                names.append((at + "mlp.experts.%d.%s_proj.weight" % (expert, name), shrink(*shape)))
        names += [(at + "input_layernorm.weight", (8,)), (at + "post_attention_layernorm.weight", (8,))]
    names += [("model.norm.weight", (8,)), ("lm_head.weight", shrink(151936, 2048))]
    return [(name, "BF16", shape) for name, shape in names]


def deepseek_v3():
    """91,985 tensors (the real one has a few more): 256 experts in each of 59 layers, matrices in F8 with scales in F32 beside them."""
    names = [("model.embed_tokens.weight", "BF16", shrink(129280, 7168))]

    def matrix(name, *shape):
        names.append((name + ".weight", "F8_E4M3", shrink(*shape)))
        names.append((name + ".weight_scale_inv", "F32", tuple(-(-size // 4096) for size in shape)))

    for layer in range(62):
        at = "model.layers.%d." % layer
        names.append((at + "input_layernorm.weight", "BF16", (28,)))
        for name, shape in (("q_a_proj", (1536, 7168)), ("q_b_proj", (24576, 1536)), ("kv_a_proj_with_mqa", (576, 7168)), ("kv_b_proj", (32768, 512)), ("o_proj", (7168, 16384))):
            matrix(at + "self_attn." + name, *shape)
        names += [(at + "self_attn.q_a_layernorm.weight", "BF16", (6,)), (at + "self_attn.kv_a_layernorm.weight", "BF16", (2,))]
        experts = ["mlp.experts.%d." % i for i in range(256)] + ["mlp.shared_experts."] if layer >= 3 else ["mlp."]
        for expert in experts:
            for name, shape in (("gate", (2048, 7168)), ("up", (2048, 7168)), ("down", (7168, 2048))):
                matrix(at + expert + name + "_proj", *shape)
        if layer >= 3:
            names += [(at + "mlp.gate.weight", "BF16", (1, 28)), (at + "mlp.gate.e_score_correction_bias", "F32", (1,))]
        names.append((at + "post_attention_layernorm.weight", "BF16", (28,)))
    return names + [("model.norm.weight", "BF16", (28,)), ("lm_head.weight", "BF16", shrink(129280, 7168))]


WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1}


def size_of(tensor):
    return WIDTH[tensor[1]] * int(np.prod(tensor[2]))


def experts(n):
    """Tensors of n experts of Qwen3-30B-A3B, in their real shapes: 3 MiB each."""
    return [("model.layers.0.mlp.experts.%d.%s_proj.weight" % (i, name), "BF16", (768, 2048)) for i in range(n) for name in ("gate", "up", "down")]


# ---- writing models ----

def data_of(tensor, i, step):
    """Random weights; a hundredth of them differ in the next step."""
    rng = np.random.default_rng([i, 0])
    raw = np.frombuffer(rng.standard_normal(-(-size_of(tensor) // 4)).astype(np.float32).tobytes(), np.uint8)
    data = (raw.view(np.uint16)[1::2] if tensor[1] == "BF16" else raw).copy()
    if tensor[1] == "BF16" and data.size * 2 < size_of(tensor):
        data = np.resize(data, size_of(tensor) // 2)
    for _ in range(step):
        data[rng.integers(0, data.size, max(1, data.size // 100))] ^= 1
    return data.tobytes()[:size_of(tensor)].ljust(size_of(tensor), b"\0")


def write_model(path, tensors, step):
    """In the order of safetensors' own writer: wide dtypes first, then by name."""
    numbers = {tensor[0]: i for i, tensor in enumerate(tensors)}
    order = sorted(tensors, key=lambda t: (-WIDTH[t[1]], t[1], t[0]))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor in order:
        size = size_of(tensor)
        header[tensor[0]] = {"dtype": tensor[1], "shape": list(tensor[2]), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in order:
            f.write(data_of(tensor, numbers[tensor[0]], step))


# ---- taking files apart ----

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def take_apart(data):
    """Returns kind -> bytes, and the number of blocks. "text": payload of safetensors headers, which are predicted by their tensors."""
    found = dict.fromkeys(("FILE", "RUN ", "blocks", "BLKS", "INDX", "text", "payload"), 0)
    at, n_blocks = FILE_HEADER, 0
    while at < len(data) - TRAILER:
        kind, size = struct.unpack_from("<4sQ", data, at)
        body, at = at + SECTION_HEADER, at + SECTION_HEADER + size
        found[kind.decode()] += SECTION_HEADER + size
        if kind == b"RUN ":
            run_size, body = varint(data, body)
            block_size, body = varint(data, body)
            for _ in range(-(-run_size // block_size)):
                assert data[at] == 0xB2, "no block where one should start"
                payload, = struct.unpack_from("<I", data, at + 8)
                found["text" if data[body] == OF_TEXT else "payload"] += payload
                found["blocks"] += BLOCK_HEADER
                at += BLOCK_HEADER + payload
                n_blocks += 1
    assert FILE_HEADER + sum(found.values()) + TRAILER == len(data)
    return found, n_blocks


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def show(name, path, n):
    data = read(path)
    found, n_blocks = take_apart(data)
    cells = [found["FILE"], found["RUN "], found["blocks"] + found["BLKS"], found["INDX"], len(data) - found["payload"]]
    print("| %s | %d | %d | %s |" % (name, n, n_blocks, " | ".join("%.1f" % (cell / n) for cell in cells)), flush=True)


def metadata(lmc):
    print("| file | tensors | blocks | FILE | RUN | blocks, BLKS | INDX | all |\n|---|---|---|---|---|---|---|---|")
    for name, tensors in ("48 x 3 MiB", experts(16)), ("Qwen3-30B-A3B", qwen3_30b_a3b()):
        with tempfile.TemporaryDirectory() as d:
            for step in (0, 1):
                write_model("%s/%d" % (d, step), tensors, step)
            run(lmc, "-f", "-o", d + "/full", d + "/1")
            show(name, d + "/full", len(tensors))
            run(lmc, "-f", "-o", d + "/delta", "--base", d + "/0", d + "/1")
            show(name + ", delta", d + "/delta", len(tensors))
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(d + "/text")
        words = read(os.path.join(ROOT, "README.md"))
        for i in range(300):
            with open("%s/text/%03d.txt" % (d, i), "wb") as f:
                f.write(words[i * 61 % (len(words) - 1024):][:1024])
        run(lmc, "-f", "-o", d + "/full", d + "/text")
        show("300 files of 1 KB", d + "/full", 300)


def reads(lmc, program):
    print("| tensors | full: open | read | delta: open | read | delta of it: open | read |\n|---|---|---|---|---|---|---|")
    for tensors in (small(1), small(300), qwen3_30b_a3b(), deepseek_v3()):
        with tempfile.TemporaryDirectory() as d:
            files, cells = [], []
            for step in (0, 1, 2):
                write_model("%s/%d" % (d, step), tensors, step)
                run(lmc, "-f", "-o", "%s/%d.lmc" % (d, step), *(part for file in files for part in ("--base", file)), "%s/%d" % (d, step))
                files.insert(0, "%s/%d.lmc" % (d, step))
                said = subprocess.run([program, tensors[len(tensors) // 2][0], *files], check=True, stdout=subprocess.PIPE).stdout
                cells.append(said.decode().strip())
            print("| %d | %s |" % (len(tensors), " | ".join(cells)), flush=True)


if len(sys.argv) == 3 and sys.argv[1] == "metadata":
    metadata(sys.argv[2])
elif len(sys.argv) == 4 and sys.argv[1] == "reads":
    reads(*sys.argv[2:])
else:
    sys.exit(__doc__)
