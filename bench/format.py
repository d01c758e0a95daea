#!/usr/bin/env python3
"""What the shell of the format costs (format.md): bytes that are not payload, and requests to read a tensor.

  bench/format.py metadata LMC             bytes per tensor in full files and in deltas
  bench/format.py reads LMC RANGE_READS    requests and bytes to open a file, and to read one tensor

LMC is the command, RANGE_READS is bench/range_reads.c. Sizes are exact and the same on every machine.
SPDX-License-Identifier: MIT
"""
import json, os, struct, subprocess, sys, tempfile

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
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
    """Of n experts of Qwen3-30B-A3B, in their real shapes: 3 MiB each."""
    return [("model.layers.0.mlp.experts.%d.%s_proj.weight" % (i, name), "BF16", (768, 2048)) for i in range(n) for name in ("gate", "up", "down")]


def shards(tensors, n):
    """In the order of the state, as many bytes in each, as Hugging Face's writer divides a model."""
    each, parts, filled = sum(map(size_of, tensors)) / n, [[]], 0
    for tensor in tensors:
        if filled + size_of(tensor) > each * len(parts) and len(parts) < n:
            parts.append([])
        parts[-1].append(tensor)
        filled += size_of(tensor)
    return parts


# ---- writing them ----

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


def write_safetensors(path, tensors, numbers, step):
    """As safetensors' own writer: wide dtypes first, then by name."""
    order = sorted(tensors, key=lambda t: (-WIDTH[t[1]], t[1], t[0]))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in order:
        size = size_of((name, dtype, shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for tensor in order:
            f.write(data_of(tensor, numbers[tensor[0]], step))


def write_model(path, parts, step):
    """A file, or a directory of shards."""
    numbers = {t[0]: i for i, t in enumerate(t for part in parts for t in part)}
    if len(parts) == 1:
        write_safetensors(path, parts[0], numbers, step)
        return
    os.mkdir(path)
    for i, part in enumerate(parts):
        write_safetensors("%s/model-%05d-of-%05d.safetensors" % (path, i + 1, len(parts)), part, numbers, step)


# ---- taking files apart ----

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def take_apart(data):
    """What the bytes are: kind -> bytes, and the number of blocks. "text": payload of headers of safetensors, which their tensors predict."""
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


def show(name, kind, path, n):
    data = read(path)
    found, n_blocks = take_apart(data)
    cells = [found[c] / n for c in ("FILE", "RUN ", "blocks", "BLKS", "INDX", "text")] + [(len(data) - found["payload"]) / n]
    print("| %s | %s | %d | %d | %s |" % (name, kind, n, n_blocks, " | ".join("%.1f" % c for c in cells)), flush=True)


def metadata(lmc):
    print("| model | file | tensors | blocks | FILE | RUN | headers of blocks | BLKS | INDX | texts | all |\n|---|---|---|---|---|---|---|---|---|---|---|")
    for name, parts in (("48 matrices of 3 MiB", [experts(16)]), ("Qwen3-30B-A3B", [qwen3_30b_a3b()]), ("Qwen3-30B-A3B, 16 shards", shards(qwen3_30b_a3b(), 16)),
                        ("DeepSeek-V3", [deepseek_v3()])):
        n = sum(map(len, parts))
        with tempfile.TemporaryDirectory() as d:
            old, new = (d + x + (".safetensors" if len(parts) == 1 else "") for x in ("/old", "/new"))
            write_model(old, parts, 0)
            write_model(new, parts, 1)
            run(lmc, "-f", "-o", d + "/full.lmc", new)
            show(name, "full", d + "/full.lmc", n)
            run(lmc, "-f", "-o", d + "/delta.lmc", "--base", old, new)
            show(name, "delta", d + "/delta.lmc", n)
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(d + "/text")
        words = read(os.path.join(ROOT, "README.md"))
        for i in range(300):
            with open("%s/text/%03d.txt" % (d, i), "wb") as f:
                f.write(words[i * 61 % (len(words) - 1024):][:1024])
        run(lmc, "-f", "-o", d + "/text.lmc", d + "/text")
        show("300 files of 1 KB of text, for each file", "full", d + "/text.lmc", 300)


def reads(lmc, program):
    print("| tensors | file | size | INDX | to open | to read a tensor |\n|---|---|---|---|---|---|")
    for tensors in (small(1), small(300), qwen3_30b_a3b(), deepseek_v3()):
        name = tensors[len(tensors) // 2][0]
        with tempfile.TemporaryDirectory() as d:
            for step in (0, 1, 2):
                write_model("%s/%d.safetensors" % (d, step), [tensors], step)
            run(lmc, "-f", "-o", d + "/0.lmc", d + "/0.safetensors")
            run(lmc, "-f", "-o", d + "/1.lmc", "--base", d + "/0.lmc", d + "/1.safetensors")
            run(lmc, "-f", "-o", d + "/2.lmc", "--base", d + "/1.lmc", "--base", d + "/0.lmc", d + "/2.safetensors")
            for kind, files in (("full", "0"), ("delta and its base", "10"), ("delta of a delta, and both", "210")):
                said = subprocess.run([program, name, *(d + "/%s.lmc" % f for f in files)], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
                data = read(d + "/%s.lmc" % files[0])
                print("| %d | %s | %d | %d | %s |" % (len(tensors), kind, len(data), struct.unpack_from("<Q", data, len(data) - TRAILER + 8)[0], said), flush=True)


if len(sys.argv) == 3 and sys.argv[1] == "metadata":
    metadata(sys.argv[2])
elif len(sys.argv) == 4 and sys.argv[1] == "reads":
    reads(*sys.argv[2:])
else:
    sys.exit(__doc__)
