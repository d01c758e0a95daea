#!/usr/bin/env python3
"""Do quantised optimizer states change training? fidelity.py [--work DIR] [--text PATH] [--lmc FILE] [--seeds N]

Trains a small LLaMA-like network with PyTorch on one CPU thread and takes a snapshot at three stages: fp32 masters, both moments and bf16 weights, as
safetensors files. Each snapshot is then restored in each mode, and training continues for 150 steps with the batches of the uninterrupted run.
Training from the exact snapshot must repeat that run bit for bit. The others are compared with it by their loss and by the distance of their weights,
dW = |W - W_exact| / |W_exact - W_snapshot|. The result is DIR/fidelity.json, from which bench/report.py makes a table and plots; DIR/series has
snapshots.

Every finished run leaves a record in DIR, so the script, started again, continues where it stopped. All runs take half an hour to an hour of one
core. PATH: a file, or a directory, of which .py, .md, .rst and .txt files are read; default: Python's own library."""
import argparse, hashlib, json, math, os, re, shutil, subprocess, sys, sysconfig
from collections import Counter
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")  # before they are imported
import numpy as np
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN, BATCH, CONTEXT = 4096, 160, 4, 5, 432, 8, 128
WARMUP, STEPS, RATE, LAST_RATE = 100, 1200, 6e-4, 1e-6
BETA1, BETA2, EPSILON, DECAY, CLIP = 0.9, 0.95, 1e-8, 0.1, 1.0
STAGES = {"early": 100, "mid": 600, "late": 1000}
RESUMED, COMPARED, EVERY = 150, 50, 10  # steps after a stage; the loss of the last COMPARED counts; weights are compared at every tenth
SERIES = 0, 1, 10, 50                   # steps after a stage at which a snapshot is left in DIR/series
FILES = {"master": "master.f32", "m": "exp_avg.f32", "v": "exp_avg_sq.f32", "model": "model.bf16"}
NOISE = 1e-6
LMC = {"lmc8": "*=bits:8", "lmc4": "*=bits:4", "lmc-update": "*=update:0.01", "lmc-finer": "*=update:0.0066"}


def say(text):
    print("fidelity: " + text, file=sys.stderr, flush=True)


def write(path, data):
    """Writes the file whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


def write_json(path, value):
    write(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path):
    with open(path) as file:
        return json.load(file)


# -- safetensors: {name: array}; bf16 as uint16, its bits --

DTYPES = {"F32": "<f4", "BF16": "<u2", "U8": "u1"}


def write_tensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, array in tensors.items():
        dtype = next(key for key, value in DTYPES.items() if array.dtype == np.dtype(value))
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    write(path, len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values()))


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[start + first:start + last], DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


# -- text --

def read_text(path):
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return file.read()
    parts = []
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in ("site-packages", "dist-packages", "__pycache__"))
        for name in sorted(names):
            if name.endswith((".py", ".md", ".rst", ".txt")):
                with open(os.path.join(folder, name), "rb") as file:
                    parts.append(file.read())
    return b"\n".join(parts)


def tokenise(text):
    """Tokens are the 256 bytes and the most frequent words; other words are spelled."""
    pieces = re.findall(rb" ?[A-Za-z]+|\n *|.", text, re.DOTALL)
    counts = sorted(((-count, piece) for piece, count in Counter(pieces).items() if len(piece) > 1))
    known = {bytes([byte]): [byte] for byte in range(256)}
    for _, piece in counts[:VOCABULARY - 256]:
        known[piece] = [len(known)]
    return np.array([token for piece in pieces for token in known.get(piece) or piece], np.uint16)


# -- the network and its training: bf16 forward and backward, fp32 masters --

def init_weights():
    generator = torch.Generator().manual_seed(1)

    def normal(rows, columns, scale=0.02):
        return scale * torch.randn(rows, columns, generator=generator)

    weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        name = "model.layers.%d." % layer
        for short in "qkvo":
            weights[name + "self_attn.%s_proj.weight" % short] = normal(WIDTH, WIDTH)
        for short, rows, columns in (("gate", HIDDEN, WIDTH), ("up", HIDDEN, WIDTH), ("down", WIDTH, HIDDEN)):
            weights[name + "mlp.%s_proj.weight" % short] = normal(rows, columns)
        for short in ("input", "post_attention"):
            weights[name + short + "_layernorm.weight"] = torch.ones(WIDTH)
    weights["model.norm.weight"] = torch.ones(WIDTH)
    weights["lm_head.weight"] = normal(VOCABULARY, WIDTH)
    return weights


def rotate(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)


def compute_loss(weights, tokens):
    functional = torch.nn.functional

    def norm(x, name):
        return functional.rms_norm(x, (WIDTH,), weights[name], 1e-5)

    half = WIDTH // HEADS // 2
    angles = torch.arange(CONTEXT)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()
    x = functional.embedding(tokens[:, :-1], weights["model.embed_tokens.weight"])
    for layer in range(LAYERS):
        name = "model.layers.%d." % layer
        y = norm(x, name + "input_layernorm.weight")
        q, k, v = (functional.linear(y, weights[name + "self_attn.%s_proj.weight" % short]).view(BATCH, CONTEXT, HEADS, -1).transpose(1, 2) for short in "qkv")
        y = functional.scaled_dot_product_attention(rotate(q, cosine, sine), rotate(k, cosine, sine), v, is_causal=True)
        x = x + functional.linear(y.transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH), weights[name + "self_attn.o_proj.weight"])
        y = norm(x, name + "post_attention_layernorm.weight")
        gate, up = (functional.linear(y, weights[name + "mlp.%s_proj.weight" % short]) for short in ("gate", "up"))
        x = x + functional.linear(functional.silu(gate) * up, weights[name + "mlp.down_proj.weight"])
    logits = functional.linear(norm(x, "model.norm.weight"), weights["lm_head.weight"])
    return functional.cross_entropy(logits.float().view(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def get_rate(step):
    if step <= WARMUP:
        return RATE * step / WARMUP
    return LAST_RATE + (RATE - LAST_RATE) * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))) / 2


def get_batch(text, step):
    """Depends only on the step, so that every run gets the same batches."""
    starts = np.random.default_rng([2, step]).integers(0, len(text) - CONTEXT, BATCH)
    return torch.from_numpy(np.stack([text[start:start + CONTEXT + 1] for start in starts]).astype(np.int64))


def train(state, text, first, last):
    """AdamW; state: {"master", "m", "v": {name: tensor}} after step `first`, changed in place. Yields step, loss."""
    master, m, v = (state[key] for key in ("master", "m", "v"))
    for step in range(first + 1, last + 1):
        weights = {name: tensor.bfloat16().requires_grad_() for name, tensor in master.items()}
        loss = compute_loss(weights, get_batch(text, step))
        gradients = [gradient.float() for gradient in torch.autograd.grad(loss, list(weights.values()))]
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        rate = get_rate(step)
        for name, gradient in zip(weights, gradients):
            gradient *= min(1.0, CLIP / (norm + 1e-6))
            m[name].mul_(BETA1).add_(gradient, alpha=1 - BETA1)
            v[name].mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            if gradient.ndim == 2:
                master[name].mul_(1 - rate * DECAY)
            master[name].addcdiv_(m[name], (v[name] / (1 - BETA2 ** step)).sqrt_().add_(EPSILON), value=-rate / (1 - BETA1 ** step))
        yield step, loss.item()


def save_snapshot(folder, state):
    if os.path.isdir(folder):
        return
    shutil.rmtree(folder + ".part", ignore_errors=True)
    for key, file in FILES.items():
        tensors = {name: (tensor.bfloat16().view(torch.uint16) if key == "model" else tensor).numpy()
                   for name, tensor in state["master" if key == "model" else key].items()}
        write_tensors("%s.part/%s.safetensors" % (folder, file), tensors)
    os.rename(folder + ".part", folder)


def load_snapshot(folder):
    return {key: {name: torch.from_numpy(array) for name, array in read_tensors("%s/%s.safetensors" % (folder, FILES[key])).items()} for key in ("master", "m", "v")}


def flatten(tensors):
    return torch.cat([tensor.reshape(-1) for tensor in tensors.values()]).numpy()


# -- quantisers of moments; each returns the decoded array and the parts to be stored --

def snap(values, points):
    """Index of the nearest of the sorted points."""
    return np.searchsorted((points[1:] + points[:-1]) / 2, values).astype(np.uint8)


def fit_kmeans(array, _):
    """One codebook of 256 for the whole tensor: Lloyd's iteration on the values, from points whose density is the cube root of the values' density
    (near the optimum; other starts converge far from it). Zero stays zero, and nothing else becomes zero, which would ruin second moments."""
    values = np.sort(array[array != 0].astype(np.float64).reshape(-1))
    sums = np.concatenate(([0], np.cumsum(values)))
    edges = np.quantile(values, np.linspace(0, 1, 1025))
    mass = np.concatenate(([0], np.cumsum(np.diff(edges) ** (2 / 3))))
    points = np.interp((np.arange(255) + 0.5) / 255 * mass[-1], mass, edges)
    for _ in range(100):
        cuts = np.concatenate(([0], np.searchsorted(values, (points[1:] + points[:-1]) / 2), [len(values)]))
        counts = np.diff(cuts)
        moved = np.where(counts > 0, np.diff(sums[cuts]) / np.maximum(counts, 1), points)
        if np.array_equal(moved, points):
            break
        points = moved
    codes = np.where(array == 0, 255, snap(array, points)).astype(np.uint8)
    points = np.append(points, 0).astype(np.float32)
    return points[codes], {"codes": codes, "codebook": points}


def scale_blocks(array):
    """Blocks of 256 elements in a row, each with its largest magnitude."""
    flat = np.zeros(-(-array.size // 256) * 256, np.float32)
    flat[:array.size] = array.reshape(-1)
    blocks = flat.reshape(-1, 256)
    scales = np.abs(blocks).max(1)
    return blocks / np.where(scales > 0, scales, 1)[:, None], scales


def scale_back(points, codes, scales, array):
    return (points[codes] * scales[:, None]).reshape(-1)[:array.size].reshape(array.shape), {"codes": codes, "scales": scales}


def fit_linear(array, signed):
    blocks, scales = scale_blocks(array)
    points = np.arange(-127 if signed else 0, 128 if signed else 256).astype(np.float32) / np.float32(127 if signed else 255)
    return scale_back(points, snap(blocks, points), scales, array)


def fit_dynamic(array, signed):
    """Dettmers et al. (arXiv 2110.02861): seven decades, each with twice as many points as the one below it, in the middle of equal steps."""
    points = [0.0, 1.0]
    for decade in range(7):
        count = 2 ** decade * (1 if signed else 2)
        decade_points = 10.0 ** (decade - 6) * (0.1 + 0.9 * (np.arange(count) + 0.5) / count)
        points += list(decade_points) + (list(-decade_points) if signed else [])
    points = np.sort(np.array(points, np.float32))
    assert len(points) == 256
    blocks, scales = scale_blocks(array)
    return scale_back(points, snap(blocks, points), scales, array)


BASELINES = {"dynamic8": fit_dynamic, "kmeans": fit_kmeans, "linear8": fit_linear}


def compute_update(m, v):
    """The matrices' updates; the vectors are stored exactly in every mode."""
    return {name: m[name].numpy().astype(np.float64) / (np.sqrt(v[name].numpy().astype(np.float64)) + EPSILON) for name in m if m[name].ndim == 2}


def compare_updates(exact, state):
    """Relative error of all matrices together, and of the worst one."""
    exact, other = compute_update(exact["m"], exact["v"]), compute_update(state["m"], state["v"])
    parts = {name: (float(np.square(other[name] - exact[name]).sum()), float(np.square(exact[name]).sum())) for name in exact}
    total = math.sqrt(sum(error for error, _ in parts.values()) / sum(square for _, square in parts.values()))
    worst = max(parts, key=lambda name: parts[name][0] / parts[name][1])
    return total, worst, math.sqrt(parts[worst][0] / parts[worst][1])


class Modes:
    """restore(mode, snapshot): the state that training resumes from, and the size of both coded moments in bytes (or None)."""

    def __init__(self, lmc, temporary):
        self.lmc, self.temporary = lmc, temporary

    def call(self, *arguments):
        subprocess.run([self.lmc, "-q", "-f", *arguments], check=True)

    def place(self, name):
        path = os.path.join(self.temporary, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def measure(self, folder, *options):
        packed = os.path.join(self.temporary, "moments.lmc")
        self.call(*options, folder, "-o", packed)
        return os.path.getsize(packed)

    def restore(self, mode, snapshot):
        state, moments = load_snapshot(snapshot), self.place("moments")
        if mode.startswith("noise"):
            generator = torch.Generator().manual_seed(int(mode[5:]))
            for tensor in state["m"].values():
                tensor *= 1 + NOISE * torch.randn(tensor.shape, generator=generator)
            return state, None
        os.makedirs(moments)
        if mode in BASELINES:
            for key in "mv":
                stored = {}
                for name, tensor in state[key].items():
                    if tensor.ndim == 2:
                        decoded, parts = BASELINES[mode](tensor.numpy(), key == "m")
                        state[key][name] = torch.from_numpy(np.ascontiguousarray(decoded, np.float32))
                        stored.update({name + "." + part: array for part, array in parts.items()})
                    else:
                        stored[name] = tensor.numpy()
                write_tensors("%s/%s.safetensors" % (moments, FILES[key]), stored)
            return state, self.measure(moments)
        for key in "mv":
            shutil.copy("%s/%s.safetensors" % (snapshot, FILES[key]), moments)
        if mode == "exact":
            return state, self.measure(moments)
        packed, restored = os.path.join(self.temporary, "snapshot.lmc"), self.place("restored")
        self.call("--quant", LMC[mode], snapshot, "-o", packed)
        self.call("-d", packed, "-o", restored)
        for key in ("master", "model"):
            with open("%s/%s.safetensors" % (snapshot, FILES[key]), "rb") as a, open("%s/%s.safetensors" % (restored, FILES[key]), "rb") as b:
                assert a.read() == b.read(), "%s: %s is not what it was" % (mode, key)
        return load_snapshot(restored), self.measure(moments, "--quant", LMC[mode])


# -- the runs --

class Experiment:
    def __init__(self, work, text, lmc):
        self.work, self.modes = work, Modes(lmc, os.path.join(work, "temporary"))
        say("reads " + text)
        data = read_text(text)
        facts = {"text": hashlib.sha256(data).hexdigest(), "bytes": len(data), "torch": torch.__version__,
                 "network": [VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN, BATCH, CONTEXT], "rates": [WARMUP, STEPS, RATE, LAST_RATE], "stages": STAGES}
        if not os.path.exists(self.path("facts.json")):
            tokens = tokenise(data)
            write(self.path("tokens"), tokens.tobytes())
            write_json(self.path("facts.json"), dict(facts, tokens=len(tokens), parameters=sum(tensor.numel() for tensor in init_weights().values())))
        self.facts = read_json(self.path("facts.json"))
        different = [key for key in facts if self.facts[key] != facts[key]]
        if different:
            sys.exit("fidelity: %s has runs of another experiment (%s differs); take another --work or remove it" % (work, ", ".join(different)))
        self.text = np.fromfile(self.path("tokens"), np.uint16)

    def path(self, *parts):
        return os.path.join(self.work, *parts)

    def snapshot(self, step):
        return self.path("series", "step-%06d" % step)

    def weights(self, step):
        return self.path("weights", "%06d.npy" % step)

    def train_all(self):
        """The uninterrupted run, in pieces from stage to stage. A piece that was not finished starts again."""
        steps = list(STAGES.values())
        for first, last in zip([0] + steps, steps + [steps[-1] + RESUMED]):
            record = self.path("train-%d.json" % first)
            if os.path.exists(record):
                continue
            say("trains from step %d to %d" % (first, last))
            if first == 0:
                master = init_weights()
                state = {"master": master, **{key: {name: torch.zeros_like(tensor) for name, tensor in master.items()} for key in "mv"}}
            else:
                state = load_snapshot(self.snapshot(first))
            losses = []
            for step, loss in train(state, self.text, first, last):
                losses.append(loss)
                if any(step - start in SERIES for start in steps):
                    save_snapshot(self.snapshot(step), state)
                if any(0 < step - start <= RESUMED and (step - start) % EVERY == 0 for start in steps):
                    os.makedirs(self.path("weights"), exist_ok=True)
                    np.save(self.weights(step), flatten(state["master"]))
            write_json(record, losses)

    def read_losses(self):
        return [loss for first in [0] + list(STAGES.values()) for loss in read_json(self.path("train-%d.json" % first))]

    def resume(self, stage, mode):
        record, start = self.path("runs", "%s-%s.json" % (stage, mode)), STAGES[stage]
        if os.path.exists(record):
            return
        say("%s, %s" % (stage, mode))
        exact = load_snapshot(self.snapshot(start))
        state, size = self.modes.restore(mode, self.snapshot(start))
        update, worst, worst_update = compare_updates(exact, state)
        before, losses, strays = flatten(exact["master"]), [], []
        for step, loss in train(state, self.text, start, start + RESUMED):
            losses.append(loss)
            if (step - start) % EVERY == 0:
                wanted, got = np.load(self.weights(step)), flatten(state["master"])
                assert mode != "exact" or wanted.tobytes() == got.tobytes(), "the exact resume does not repeat the run: weights of step %d" % step
                strays.append(float(np.linalg.norm((got - wanted).astype(np.float64)) / np.linalg.norm((wanted - before).astype(np.float64))))
        assert mode != "exact" or losses == self.read_losses()[start:start + RESUMED], "the exact resume does not repeat the run: losses"
        write_json(record, {"stage": stage, "mode": mode, "update": update, "worst": worst, "worst_update": worst_update, "moments": size,
                            "losses": losses, "strays": strays})

    def collect(self):
        runs = [read_json(self.path("runs", name)) for name in sorted(os.listdir(self.path("runs"))) if name.endswith(".json")]
        write_json(self.path("fidelity.json"), dict(self.facts, compared=COMPARED, every=EVERY, losses=self.read_losses(), runs=runs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=os.path.join(ROOT, "build", "fidelity"))
    parser.add_argument("--text", default=sysconfig.get_path("stdlib"))
    parser.add_argument("--lmc", default=os.path.join(ROOT, "build", "lmc"))
    parser.add_argument("--seeds", type=int, default=3, help="noise controls (default 3)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    experiment = Experiment(arguments.work, arguments.text, arguments.lmc)
    experiment.train_all()
    modes = ["exact"] + ["noise%d" % seed for seed in range(1, arguments.seeds + 1)]
    if "--quant" in subprocess.run([arguments.lmc, "help"], capture_output=True, text=True).stdout:
        modes += list(LMC)
    else:
        say("this lmc has no --quant: its modes are left out")
    for mode in modes + list(BASELINES):
        for stage in STAGES:
            experiment.resume(stage, mode)
        experiment.collect()


if __name__ == "__main__":
    main()
