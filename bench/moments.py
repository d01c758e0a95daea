#!/usr/bin/env python3
"""Losses and sizes of quantised optimizer states, by the real command and by other methods.

  moments.py measure [--lmc FILE] [--json FILE] NAME=SNAPSHOT...   markdown to stdout: a table for each NAME, over its snapshots
  moments.py error SNAPSHOT RESTORED                               prints the error of the update
  moments.py choices [--lmc FILE] SNAPSHOT                         markdown to stdout: codebooks beside grids, for moments and master weights

A SNAPSHOT is a directory with exp_avg.f32.safetensors and exp_avg_sq.f32.safetensors. The update is u = m / (sqrt(v) + 1e-8), its error
|u' - u| / |u|, in doubles, over all matrices of the restored files: vectors stay exact in every mode."""
import argparse, json, os, shutil, subprocess, sys, tempfile, types
sys.modules.setdefault("torch", types.ModuleType("torch"))  # fidelity.py trains with it; the functions used here do not need it
import numpy as np
from fidelity import BASELINES, EPSILON, FILES, ROOT, read_tensors

RULES = ["bits:8", "bits:6", "bits:5", "bits:4", "kmeans:8", "kmeans:4", "update:0.0066", "update:0.01", "update:0.03", "update:0.1", "rel:1e-2", "rel:1e-3"]
TITLES = {"dynamic8": "dynamic 8 bit, blocks of 256", "linear8": "linear int8, blocks of 256", "kmeans": "k-means per tensor, 8 bit"}


def path_of(folder, key):
    return "%s/%s.safetensors" % (folder, FILES[key])


def read_moments(folder):
    """{"m", "v": {name: matrix}}"""
    return {key: {name: array for name, array in read_tensors(path_of(folder, key)).items() if array.ndim == 2} for key in "mv"}


def compute_update(moments, name):
    return moments["m"][name].astype(np.float64) / (np.sqrt(moments["v"][name].astype(np.float64)) + EPSILON)


def measure_error(exact, other):
    """The error of the update: over all matrices, and of the worst one. Of the elements of m and of v: the largest relative error."""
    parts = {}
    for name in exact["m"]:
        wanted, got = compute_update(exact, name), compute_update(other, name)
        parts[name] = float(np.square(got - wanted).sum()), float(np.square(wanted).sum())
    worst = max(parts, key=lambda name: parts[name][0] / parts[name][1])
    error = {"update": (sum(lost for lost, _ in parts.values()) / sum(square for _, square in parts.values())) ** 0.5,
             "worst": worst, "worst_update": (parts[worst][0] / parts[worst][1]) ** 0.5}
    for key in "mv":
        error["relative_" + key] = 0.0
        for name in exact[key]:
            wanted, got = exact[key][name].astype(np.float64), other[key][name].astype(np.float64)
            assert not got[wanted == 0].any(), "%s of %s: a zero is none any more" % (key, name)
            ratios = np.abs(got / np.where(wanted == 0, 1, wanted) - 1)[wanted != 0]
            error["relative_" + key] = max(error["relative_" + key], float(ratios.max(initial=0)))
    return error


def measure_lmc(lmc, rule, snapshot, exact):
    """Bits of m and v: for each element of the matrices. Bits of both: the whole file with the two moments, including vectors, for each parameter."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, packed, restored = (os.path.join(temporary, name) for name in ("moments", "packed.lmc", "restored"))
        os.mkdir(folder)
        for key in "mv":
            shutil.copy(path_of(snapshot, key), folder)
        subprocess.run([lmc, "-q", "--quant", "*=" + rule, folder, "-o", packed], check=True)
        subprocess.run([lmc, "-d", "-q", packed, "-o", restored], check=True)
        listed = json.loads(subprocess.run([lmc, "-l", "--json", packed], check=True, stdout=subprocess.PIPE).stdout)
        other = read_moments(restored)
        row = measure_error(exact, other)
        assert all(np.array_equal(exact["v"][name] > 0, other["v"][name] > 0) for name in exact["v"]), rule + ": a second moment became zero"
        row["both"] = 8 * os.path.getsize(packed) / sum(array.size for array in read_tensors(path_of(snapshot, "m")).values())
        for key in "mv":
            tensors = next(file["tensors"] for file in listed["files"] if file["path"] == os.path.basename(path_of(snapshot, key)))
            row[key] = 8 * sum(tensor["packed_size"] for tensor in tensors if tensor["name"] in exact[key]) / sum(array.size for array in exact[key].values())
        return row


def entropy(codes):
    """Order-0 entropy in bits, of all codes together."""
    counts = np.bincount(codes.reshape(-1)).astype(np.float64)
    counts = counts[counts > 0]
    return float((counts * np.log2(codes.size / counts)).sum())


def measure_baseline(scheme, exact):
    """Bits: the entropy of the codes, for each tensor, and 32 for each scale or entry of a codebook."""
    other, row = {}, {"both": 0.0}
    for key in "mv":
        other[key], row[key] = {}, 0.0
        for name, array in exact[key].items():
            other[key][name], parts = BASELINES[scheme](array, key == "m")
            row[key] += sum(entropy(part) if part.dtype == np.uint8 else 32 * part.size for part in parts.values())
        row[key] /= sum(array.size for array in exact[key].values())
        row["both"] += row[key]
    return dict(row, **measure_error(exact, other))


def span(form, values):
    return " to ".join(dict.fromkeys((form % min(values), form % max(values))))


def main_measure(arguments):
    parser = argparse.ArgumentParser(prog="moments.py measure")
    parser.add_argument("--lmc", default=os.path.join(ROOT, "build", "lmc"))
    parser.add_argument("--json")
    parser.add_argument("snapshots", nargs="+", metavar="NAME=SNAPSHOT")
    options = parser.parse_args(arguments)
    rows, modes = [], RULES + list(TITLES)
    for argument in options.snapshots:
        series, _, snapshot = argument.partition("=")
        exact = read_moments(snapshot)
        for mode in modes:
            row = measure_baseline(mode, exact) if mode in TITLES else measure_lmc(options.lmc, mode, snapshot, exact)
            rows.append(dict(row, series=series, snapshot=os.path.basename(os.path.normpath(snapshot)), mode=mode))
    for series in dict.fromkeys(row["series"] for row in rows):
        mine = [row for row in rows if row["series"] == series]
        print("\n**%s**: %s\n" % (series, ", ".join(dict.fromkeys(row["snapshot"] for row in mine))))
        print("| | error of the update | worst matrix | bits, m | bits, v | both | largest relative error, m | v |\n|---|---|---|---|---|---|---|---|")
        for mode in modes:
            same = [row for row in mine if row["mode"] == mode]
            worst = max(same, key=lambda row: row["worst_update"])
            cells = ["%.4g, %s" % (worst["worst_update"], worst["worst"].replace("model.", "").replace(".weight", ""))]
            for key, form in (("m", "%.2f"), ("v", "%.2f"), ("both", "%.2f"), ("relative_m", "%.4g"), ("relative_v", "%.4g")):
                cells.append(span(form, [row[key] for row in same]))
            print("| %s | %s | %s |" % (TITLES.get(mode, "`*=%s`" % mode), span("%.4g", [row["update"] for row in same]), " | ".join(cells)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


CHOICES = ["lossless"] + ["kmeans:%d" % bits for bits in range(1, 9)] + ["bits:%d" % bits for bits in range(4, 9)] + ["update:0.1", "update:0.01"]
CHOICES_OF_WEIGHTS = CHOICES[:-2] + ["nmse:0.01", "nmse:0.0001"]


def compute_nmse(exact, other):
    lost = square = 0.0
    for name, array in exact.items():
        wanted = array.astype(np.float64)
        lost += float(np.square(other[name].astype(np.float64) - wanted).sum())
        square += float(np.square(wanted).sum())
    return lost / square


def measure_choice(lmc, rule, snapshot, keys):
    """Bits: of each matrix's elements, as stored. Seconds: of CPU time, compressing the files of these keys. Size: of the LMC file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, packed, restored = (os.path.join(temporary, name) for name in ("files", "packed.lmc", "restored"))
        os.mkdir(folder)
        for key in keys:
            shutil.copy(path_of(snapshot, key), folder)
        start = os.times()
        subprocess.run([lmc, "-q", "-T1", "--quant", rule, folder, "-o", packed], check=True)
        end = os.times()
        subprocess.run([lmc, "-d", "-q", packed, "-o", restored], check=True)
        listed = json.loads(subprocess.run([lmc, "-l", "--json", packed], check=True, stdout=subprocess.PIPE).stdout)
        row = {"size": os.path.getsize(packed), "seconds": end.children_user + end.children_system - start.children_user - start.children_system}
        exact, other = ({key: {name: array for name, array in read_tensors(path_of(where, key)).items() if array.ndim == 2} for key in keys} for where in (snapshot, restored))
        for key in keys:
            tensors = next(file["tensors"] for file in listed["files"] if file["path"] in (os.path.basename(path_of(snapshot, key)), ""))
            row["bits_" + key] = 8 * sum(tensor["packed_size"] for tensor in tensors if tensor["name"] in exact[key]) / sum(array.size for array in exact[key].values())
            row["nmse_" + key] = compute_nmse(exact[key], other[key])
        if "m" in keys:
            row["update"] = measure_error(exact, other)["update"]
        return row


def main_choices(arguments):
    parser = argparse.ArgumentParser(prog="moments.py choices")
    parser.add_argument("--lmc", default=os.path.join(ROOT, "build", "lmc"))
    parser.add_argument("snapshot")
    options = parser.parse_args(arguments)
    print("| moments, `*=` | bits, m | bits, v | error of the update | NMSE, m | NMSE, v | MB | s |\n|---|---|---|---|---|---|---|---|")
    for rule in CHOICES:
        row = measure_choice(options.lmc, "*=" + rule, options.snapshot, "mv")
        print("| `%s` | %.2f | %.2f | %.3g | %.2g | %.2g | %.2f | %.2f |" % (rule, row["bits_m"], row["bits_v"], row["update"], row["nmse_m"], row["nmse_v"], row["size"] / 1e6, row["seconds"]))
    print("\n| weights, `*,role=weight=` | bits | NMSE | MB | s |\n|---|---|---|---|---|")
    for rule in CHOICES_OF_WEIGHTS:
        row = measure_choice(options.lmc, "*,role=weight=" + rule, options.snapshot, ["master"])
        print("| `%s` | %.2f | %.2g | %.2f | %.2f |" % (rule, row["bits_master"], row["nmse_master"], row["size"] / 1e6, row["seconds"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        main_measure(sys.argv[2:])
    elif sys.argv[1:2] == ["choices"]:
        main_choices(sys.argv[2:])
    elif sys.argv[1:2] == ["error"] and len(sys.argv) == 4:
        print("%.6f" % measure_error(*map(read_moments, sys.argv[2:]))["update"])
    else:
        sys.exit(__doc__)
