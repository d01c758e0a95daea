#!/usr/bin/env python3
"""What the shell of the format costs: bytes that are not payload of blocks of tensors, and requests to read a part of a file.

  bench/format.py metadata LMC [NAME...]         bytes per tensor in full files and in deltas (small | qwen | real | deepseek; default all)
  bench/format.py reads LMC RANGE_READS          requests and bytes to open a file and to read one tensor
  bench/format.py headers LMC FILE...            what the command adds to each of these files, and to 300 files of 1 KB of text
  bench/format.py future VECTORS NAME=DECODER... what each decoder says of the files of a later format in spec/vectors; VECTORS is tests/vectors.c,
                                                 a DECODER a command as for check_vectors.py: 'build/lmc -d -q -f {base} -o {out} {in}'

LMC is the command, RANGE_READS is bench/range_reads.c. Sizes are exact and the same on every machine.
SPDX-License-Identifier: MIT
"""
import json, os, shlex, struct, subprocess, sys, tempfile

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FILE_HEADER, SECTION_HEADER, BLOCK_HEADER, TRAILER = 80, 24, 24, 40
BARS = {"full": 90, "delta": 60}


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


def take_apart(data, header_sizes):
    """name -> bytes. header_sizes: bytes before the first tensor of each file, in order."""
    found = dict.fromkeys(("FILE", "RUN", "INDX", "ancillary", "block headers", "payloads of headers", "payloads of tensors", "blocks", "runs"), 0)
    at, file, done, grouped = FILE_HEADER, -1, 0, False
    while True:
        kind, _, size = struct.unpack_from("<4sIQ", data, at)
        body, at = at + SECTION_HEADER, at + SECTION_HEADER + size
        name = kind.decode().strip()
        found[name if name in found else "ancillary"] += SECTION_HEADER + size
        if kind == b"INDX":
            break
        if kind == b"FILE":
            grouped = data[body] != 1  # small files without tensors
            if grouped:
                file, done = file + varint(data, body)[0], 0
            elif not data[body + 1] & 1:
                file, done = file + 1, 0
        elif kind == b"RUN ":
            found["runs"] += 1
            left, body = varint(data, body)
            block_size = 1 << data[body]
            while left:
                payload, = struct.unpack_from("<I", data, at + 8)
                assert data[at] == 0xB1, "no block where one should start"
                found["block headers"] += BLOCK_HEADER
                found["blocks"] += 1
                found["payloads of headers" if not grouped and done < header_sizes[file] else "payloads of tensors"] += payload
                at += BLOCK_HEADER + payload
                done, left = done + min(block_size, left), left - min(block_size, left)
    assert at + TRAILER == len(data), "what is behind the index?"
    found["file header, trailer"] = FILE_HEADER + TRAILER
    assert sum(found.values()) - found["blocks"] - found["runs"] == len(data)
    return found


def header_sizes_of(path):
    names = [path] if os.path.isfile(path) else [os.path.join(path, name) for name in sorted(os.listdir(path))]
    sizes = []
    for name in names:
        with open(name, "rb") as f:
            sizes.append(8 + struct.unpack("<Q", f.read(8))[0])
    return sizes


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def read(path):
    with open(path, "rb") as f:
        return f.read()


COLUMNS = ("FILE", "RUN", "INDX", "payloads of headers", "block headers", "file header, trailer")


def show(name, kind, path, source, n):
    found = take_apart(read(path), header_sizes_of(source))
    total = sum(found[column] for column in COLUMNS) + found["ancillary"]
    print("| %s | %s | %d | %s | %d | %d | %d | %.1f | %s |" % (name, kind, n, " | ".join("%.2f" % (found[c] / n) for c in COLUMNS), found["runs"], found["blocks"], total, total / n,
          "yes" if total / n <= BARS[kind] else "NO"), flush=True)
    return total / n <= BARS[kind]


def metadata(lmc, chosen):
    print("| model | file | tensors | %s | runs | blocks | all bytes | per tensor | within %d / %d |\n|%s" % (" | ".join(COLUMNS), BARS["full"], BARS["delta"], "---|" * 14))
    models = {"small": [("2,000 of 64 x 64, one file", [small(2000)])],
              "qwen": [("Qwen3-30B-A3B, one file", [qwen3_30b_a3b()]), ("Qwen3-30B-A3B, 16 shards", shards(qwen3_30b_a3b(), 16))],
              "real": [("48 experts' matrices, real shapes", [experts(16)]), ("96 experts' matrices, real shapes", [experts(32)])],
              "deepseek": [("DeepSeek-V3, one file", [deepseek_v3()])]}
    good = True
    for key in chosen or models:
        for name, parts in models[key]:
            n = sum(map(len, parts))
            with tempfile.TemporaryDirectory() as d:
                old, new = (d + x + (".safetensors" if len(parts) == 1 else "") for x in ("/old", "/new"))
                write_model(old, parts, 0)
                write_model(new, parts, 1)
                run(lmc, "-f", "-o", d + "/full.lmc", new)
                good &= show(name, "full", d + "/full.lmc", new, n)
                run(lmc, "-f", "-o", d + "/delta.lmc", "--base", old, new)
                good &= show(name, "delta", d + "/delta.lmc", new, n)
                if len(parts) > 1:
                    write_model(d + "/one.safetensors", [sum(parts, [])], 1)
                    run(lmc, "-f", "-o", d + "/delta.lmc", "--base", old, d + "/one.safetensors")
                    good &= show(name + " to one file", "delta", d + "/delta.lmc", d + "/one.safetensors", n)
    return good


def reads(lmc, program):
    print("| tensors | file | size | INDX | to open | to read a tensor |\n|---|---|---|---|---|---|")
    for n, tensors in ((1, small(1)), (18867, qwen3_30b_a3b()), (None, deepseek_v3())):
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


def headers(lmc, paths):
    print("| file | tensors | size | LMC file | not payload of tensors | of that header's payload |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as d:
        for path in paths:
            source = read(path)
            size, = struct.unpack_from("<Q", source)
            n = len([k for k in json.loads(source[8:8 + size]) if k != "__metadata__"])
            run(lmc, "-f", "-o", d + "/x.lmc", path)
            found = take_apart(read(d + "/x.lmc"), [8 + size])
            packed = os.path.getsize(d + "/x.lmc")
            print("| %s | %d | %d | %d | %d | %d |" % (os.path.basename(path), n, len(source), packed, packed - found["payloads of tensors"], found["payloads of headers"]))
        os.mkdir(d + "/text")
        words = read(os.path.join(ROOT, "README.md"))
        for i in range(300):
            with open("%s/text/%03d.txt" % (d, i), "wb") as f:
                f.write(words[i * 61 % (len(words) - 1024):][:1024])
        run(lmc, "-f", "-o", d + "/x.lmc", d + "/text")
        data = read(d + "/x.lmc")
        found = take_apart(data, [0] * 300)
        rest = len(data) - found["payloads of tensors"]
        print("| 300 files of 1,024 bytes of text | 0 | %d | %d | %d (%.1f per file) | 0 |" % (300 * 1024, len(data), rest, rest / 300))
        print("\nPer file: " + ", ".join("%s %.1f" % (k, v / 300) for k, v in found.items() if k not in ("blocks", "runs")))


def future(vectors, decoders):
    """Of all vectors of a later format: valid ones decode, invalid ones are refused as UNSUPPORTED."""
    sys.path.insert(0, os.path.join(ROOT, "spec"))
    import check_vectors, lmc_decode
    with open(os.path.join(check_vectors.VECTORS, "manifest.json"), encoding="utf-8") as f:
        manifest = json.load(f)
    chosen = []
    for kind in ("valid", "invalid"):
        for entry in manifest[kind]:
            entry["kind"] = kind
            name = entry["name"]
            if name.startswith("future_") or "critical" in name or (kind == "valid" and name.startswith("ancillary_")):
                assert kind == "valid" or entry["status"] == ["UNSUPPORTED"], name
                chosen.append(entry)
    columns = {"library, whole": [], "library, by the index": [], "Python": []}
    columns.update((d.split("=", 1)[0], []) for d in decoders)
    for entry in chosen:
        path = check_vectors.path_of(entry)
        answer = json.loads(subprocess.run([vectors, path], check=True, stdout=subprocess.PIPE).stdout)
        for column, key in (("library, whole", "restore"), ("library, by the index", "read")):
            columns[column].append(answer[key].replace("LMC_ERR_", "").replace("LMC_", ""))
        try:
            lmc_decode.decode(read(path))
            columns["Python"].append("OK")
        except lmc_decode.LmcError as error:
            columns["Python"].append(error.status)
        for decoder in decoders:
            name, command = decoder.split("=", 1)
            with tempfile.TemporaryDirectory() as d:
                parts = [p.replace("{in}", path).replace("{out}", d + "/out") for p in shlex.split(command) if p != "{base}"]
                result = subprocess.run(parts, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                said = result.stderr.decode(errors="replace")
            columns[name].append("OK" if result.returncode == 0 else "exit %d: %s" % (result.returncode, "UNSUPPORTED" if "UNSUPPORTED" in said else said.strip().split("\n")[-1].replace(path, "FILE")[-110:]))
            problem = check_vectors.compare_command(entry, 4 if name != "Ruby" else 0, command)
            if problem:
                columns[name][-1] += " (WRONG: %s)" % problem
    good = True
    print("| decoder | %d valid: says | %d invalid: says |\n|---|---|---|" % tuple(sum(e["kind"] == k for e in chosen) for k in ("valid", "invalid")))
    for name, answers in columns.items():
        cells = []
        for kind in ("valid", "invalid"):
            count = {}
            for entry, answer in zip(chosen, answers):
                if entry["kind"] == kind:
                    count[answer] = count.get(answer, 0) + 1
                    good &= (answer == "OK") == (kind == "valid") and "WRONG" not in answer
            cells.append("; ".join("%s (%d)" % x for x in sorted(count.items(), key=lambda x: -x[1])))
        print("| %s | %s | %s |" % (name, *cells))
    return good


if len(sys.argv) >= 3 and sys.argv[1] == "metadata":
    sys.exit(not metadata(sys.argv[2], sys.argv[3:]))
elif len(sys.argv) == 4 and sys.argv[1] == "reads":
    reads(sys.argv[2], sys.argv[3])
elif len(sys.argv) >= 3 and sys.argv[1] == "headers":
    headers(sys.argv[2], sys.argv[3:])
elif len(sys.argv) >= 3 and sys.argv[1] == "future":
    sys.exit(not future(sys.argv[2], sys.argv[3:]))
else:
    sys.exit(__doc__)
