"""The results of the benchmark's programs, as rows: dictionaries, which find() selects."""
import json, os, subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.environ.get("RESULTS") or os.path.join(ROOT, "build", "results")

SHOWN = {"LMC avx512": "LMC, AVX-512", "LMC avx2": "LMC, AVX2", "LMC neon": "LMC, NEON", "LMC scalar": "LMC, portable C", "zipnn": "ZipNN", "OpenZL huffman": "OpenZL",
         "zstd -1, bytes": "zstd -1", "zstd -1, planes": "zstd -1, byte planes", "blosc2 bitshuffle, lz4": "blosc2", "pcodec": "pcodec"}


WEIGHTS = "examples/data" # the rows of peers.json that are shown first: real weights, in the repository


def build(name):
    """The path of a file of results."""
    return os.path.join(ROOT, "build", name) if name.startswith("fidelity/") else os.path.join(RESULTS, name)


def load(name):
    try:
        with open(build(name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def measure(program, options):
    """Writes the output of build/PROGRAM to the file of its results."""
    os.makedirs(RESULTS, exist_ok=True)
    printed = subprocess.run([os.path.join(ROOT, "build", program)] + options, stdout=subprocess.PIPE, check=True).stdout
    with open(build(program + ".json"), "wb") as file:
        file.write(printed)


def measured(program):
    """Its rows; the file must be there."""
    with open(build(program + ".json")) as file:
        return json.load(file)


def load_command():
    """command.tsv with hyperfine's medians, in seconds."""
    rows = []
    try:
        with open(build("command.tsv")) as file:
            for line in file:
                place, data, dtype, tool, threads, runs, size, packed, pack, unpack = line.rstrip("\n").split("\t")
                row = {"place": place, "data": data, "dtype": dtype, "tool": tool, "threads": int(threads), "runs": int(runs),
                       "bytes": int(size), "packed": int(packed)}
                for verb, name in (("pack", pack), ("unpack", unpack)):
                    with open(build("command/" + name)) as result:
                        row[verb] = json.load(result)["results"][0]["median"]
                rows.append(row)
    except FileNotFoundError:
        pass
    return rows


def find(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def load_checkpoint(name, series=""):
    try:
        with open(build(name)) as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
    except FileNotFoundError:
        return []
    return [{"pair": "%s%s-%s" % (series, old, new), "how": how, "parameters": int(parameters), "bytes": int(size), "stored": int(stored)}
            for old, new, how, parameters, size, stored, _ in rows]


FIDELITY = {"exact": "exact", "noise": "noise control", "lmc8": "LMC 8 bit", "lmc-finer": "LMC update:0.0066", "lmc-update": "LMC update:0.01",
            "lmc4": "LMC 4 bit", "dynamic8": "dynamic 8 bit, blocks of 256", "kmeans": "k-means per tensor, 8 bit", "linear8": "linear int8, blocks of 256"}


def load_fidelity():
    """The runs of fidelity.json, by stage, in FIDELITY's order; each with the difference of its losses from the exact run's. None if there is no such
    file."""
    report = load("fidelity/fidelity.json")
    if not report:
        return None, {}
    stages = {}
    for stage, start in report["stages"].items():
        runs = [dict(run, title=run["mode"].replace("noise", "noise control ") if run["mode"].startswith("noise") else FIDELITY[run["mode"]])
                for kind in FIDELITY for run in report["runs"] if run["stage"] == stage and run["mode"].rstrip("0123456789" if kind == "noise" else "") == kind]
        for run in runs:
            run["exact"] = report["losses"][start:start + len(run["losses"])]
            run["differences"] = [loss - exact for loss, exact in zip(run["losses"], run["exact"])]
            last = slice(-report["compared"], None)
            run["percent"] = 100 * sum(run["differences"][last]) / sum(run["exact"][last])
            run["apart"] = sum(map(abs, run["differences"][last])) / report["compared"]
            run["bits"] = 8 * run["moments"] / report["parameters"] if run["moments"] else None
        stages[stage] = runs
    return report, stages
