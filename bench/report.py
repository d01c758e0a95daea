#!/usr/bin/env python3
"""The benchmark's pages and plots, made from the results of the other programs here, in a directory (RESULTS; default: build/results).

  report.py stamp PART SECONDS   notes in PART.stamp the lmc.h and the machine of a part's results; bench/run calls it after each part report.py page
  DIRECTORY writes REPORT.md. All parts must have one lmc.h, machine and compiler, else it fails and names them; with MIX=1 the top of the page says
  which part has which
  report.py fidelity DIRECTORY   writes fidelity.md: training resumed from quantised states, from build/fidelity/fidelity.json
  report.py plots DIRECTORY      SVG files; the same input gives the same bytes"""
import datetime, hashlib, json, os, platform, re, subprocess, sys

import plots
from results import RESULTS, ROOT, SHOWN, WEIGHTS, build, find, load, load_checkpoint, load_command, load_fidelity
from targets import judge_fidelity, put_table, put_targets

PARTS = {"bench": "in process", "peers": "beside other codecs", "delta": "deltas", "checkpoint": "whole checkpoints", "moments": "quantised moments",
         "command": "the command", "sizes": "sizes of whole files"}


# -- the command --

def put_command(out):
    rows = load_command()
    if not rows:
        out("\nNot measured.")
    seen = []
    for row in rows:
        key = row["place"], row["data"]
        if key not in seen:
            seen.append(key)
            out("\n**%s, %s**\n\n| tool | threads | MB | runs | size | compress GB/s | x cp | restore GB/s | x cp |\n|---|---|---|---|---|---|---|---|---|" % key)
        cp = find(rows, place=row["place"], data=row["data"], tool="cp")
        speeds = [row["bytes"] / row[verb] / 1e9 for verb in ("pack", "unpack")]
        times = ["%.2f" % (s / (cp[0]["bytes"] / cp[0][v] / 1e9)) if cp else "" for s, v in zip(speeds, ("pack", "unpack"))]
        out("| %s | %d | %d | %d | %.2f %% | %.3f | %s | %.3f | %s |" % (row["tool"], row["threads"], row["bytes"] // 1000000, row["runs"],
              100 * row["packed"] / row["bytes"], speeds[0], times[0], speeds[1], times[1]))


# -- fidelity --

def span(form, values):
    return " to ".join(dict.fromkeys((form % min(values), form % max(values))))


def put_fidelity(out):
    report, stages = load_fidelity()
    if report is None:
        return out("Not measured.")
    every, resumed = report["every"], len(report["runs"][0]["losses"])
    marks = [step for step in (10, 50, 100, 150) if step <= resumed]
    out("%.2f M parameters, PyTorch %s, %.1f MB of text, %.1f M tokens; stages: steps %s." % (report["parameters"] / 1e6, report["torch"],
          report["bytes"] / 1e6, report["tokens"] / 1e6, ", ".join("%d (%s)" % (step, stage) for stage, step in report["stages"].items())))
    for stage, runs in stages.items():
        out("\n**%s, step %d**\n" % (stage, report["stages"][stage]))
        out("| restored through | error of the update | worst tensor | bits, m + v | loss, last %d steps | mean distance | %s |" %
              (report["compared"], " | ".join("dW after %d" % step for step in marks)))
        out("|---|---|---|---|---|---|" + "---|" * len(marks))
        rows = {}
        for run in runs:
            title = "noise controls" if run["mode"].startswith("noise") else run["title"]
            rows.setdefault(title, []).append(run)
        for title, row in rows.items():
            cells = [span("%.3g", [run["update"] for run in row]), span("%.3g", [run["worst_update"] for run in row]),
                     span("%.2f", [run["bits"] for run in row]) if row[0]["bits"] else "",
                     span("%+.4f", [run["percent"] for run in row]) + " %", span("%.5f", [run["apart"] for run in row])]
            cells += [span("%.4f", [run["strays"][step // every - 1] for run in row]) for step in marks]
            out("| %s | %s |" % (title if len(row) == 1 else "%s, %d seeds" % (title, len(row)), " | ".join(cells)))


# -- stamps: the origin of results --

def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout.partition("\n")[0].strip()
    except FileNotFoundError:
        return ""


def read_text(path, otherwise=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return otherwise


def proc(path, pattern):
    found = re.search(pattern, read_text("/proc/" + path), re.M)
    return found[1] if found else "?"


def cache(index):
    return read_text("/sys/devices/system/cpu/cpu0/cache/index%d/size" % index, "?").strip()


def make_stamp(seconds):
    header = read_text(os.path.join(ROOT, "lmc.h"))
    return {"lmc.h": re.search(r'define LMC_VERSION "(.*)"', header)[1], "digest": hashlib.sha256(header.encode()).hexdigest()[:12],
            "machine": "%s, %d CPUs, L2 %s, L3 %s, %s" % (proc("cpuinfo", "^model name[^:]*: (.*)"), os.cpu_count(), cache(2), cache(3), proc("meminfo", "MemTotal: *(.*)")),
            "compiler": "%s, %s" % (first_line(*(os.environ.get("CC") or "cc").split(), "--version"), os.environ.get("CFLAGS") or "-O2"),
            "commit": first_line("git", "rev-parse", "--short", "HEAD"), "system": "%s %s" % (platform.system(), platform.release()),
            "ended": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "seconds": seconds,
            "settings": " ".join("%s=%s" % (name, os.environ[name]) for name in ("MB", "PAIR_MB", "REPS", "RUNS", "SLOW_MB") if name in os.environ),
            "load": " ".join(read_text("/proc/loadavg").split()[:3])}


FULL = "MB=256 PAIR_MB=500 REPS=7 RUNS=5 SLOW_MB=16"  # bench/run's own settings
OF_ONE = "lmc.h", "digest", "machine", "compiler", "settings"


def load_stamps():
    stamps = {}
    for part in PARTS:
        text = read_text(build(part + ".stamp"))
        if text:
            stamps[part] = json.loads(text)
    return stamps


def is_one(stamps):
    return len({tuple(stamp[key] for key in OF_ONE) for stamp in stamps.values()}) == 1


def table_of_stamps(stamps):
    rows = ["| part | lmc.h | commit | ended | settings | took |", "|---|---|---|---|---|---|"]
    for part, stamp in stamps.items():
        rows.append("| %s | %s | %s | %s | %s | %s |" % (PARTS[part], stamp["lmc.h"], stamp["commit"], stamp["ended"], stamp["settings"],
                                                         "%d s" % stamp["seconds"] if stamp["seconds"] else "not noted"))
    return "\n".join(rows)


# -- the page --

def percent(row):
    return "%.1f %%" % (100 * row["encoded"] / row["bytes"])


def put_summary(out):
    """The most important figures of the tables that follow."""
    bench, peers, delta, command = load("bench.json"), load("peers.json"), load("delta.json"), load_command()
    names = [name for name in ("N(0, 0.02) bf16", "N(0, 0.02) fp16", "N(0, 0.02) fp32", "N(0, 1) fp8") if find(bench, part="codec", data=name)]
    tiers = [tier for tier in ("scalar", "neon", "simde", "avx2", "avx512") if find(bench, part="codec", tier=tier)]
    if names:
        out("**Size and speed.** One thread, GB/s (compress/decompress), Gaussian data, checksums on:\n")
        out("| | size | %s | memcpy |\n|---|---|%s---|" % (" | ".join(tiers), "---|" * len(tiers)))
        for name in names:
            rows = [find(bench, part="codec", data=name, tier=tier, level="default")[0] for tier in tiers]
            out("| %s | %s | %s | %.1f |" % (name, percent(rows[0]), " | ".join("%.2f/%.2f" % (row["encode_gb_s"], row["decode_gb_s"]) for row in rows), rows[0]["memcpy_gb_s"]))
    rows = [row for row in find(peers, data=WEIGHTS) if row["codec"] in SHOWN]
    if rows:
        out("\n**Beside other codecs.** The bf16 weights of `examples/data`, repeated to fill the buffer, one core, taking turns:\n\n| | size | compress GB/s | decompress GB/s |\n|---|---|---|---|")
        for row in rows:
            out("| %s | %s | %.2f | %.2f |" % (SHOWN[row["codec"]], percent(row), row["encode_gb_s"], row["decode_gb_s"]))
    rows = [row for row in find(delta, part="sizes") if row["data"] in ("bf16 1000-1001", "bf16 1700-1701", "bf16 1950-1951", "master 1000-1001")]
    if rows:
        out("\n**Deltas** between steps of one training run, in % of the new array; speed with the best tier, GB/s:\n")
        out("| steps | elements changed | LMC | xor, planes, zstd -1 | compress | decompress |\n|---|---|---|---|---|---|")
        for row in rows:
            speed = [other for other in find(delta, part="speed", data=row["data"], level="default") if other["tier"] in ("avx512", "avx2", "neon")][-1:]
            out("| %s | %.1f %% | %.2f %% | %.2f %% | %s |" % (row["data"], 100 * row["changed"], 100 * row["default"] / row["bytes"], 100 * row["xor_zstd"] / row["bytes"],
                                                        " | ".join("%.2f" % speed[0][key] for key in ("encode_gb_s", "decode_gb_s")) if speed else " | "))
    rows = load_checkpoint("checkpoint.tsv")
    if rows:
        out("\n**A whole checkpoint** (bf16 weights, fp32 masters, both moments: 14 bytes per parameter), one step after its base:\n\n| | bytes per parameter | times smaller |\n|---|---|---|")
        for row in find(rows, pair=rows[0]["pair"]):
            out("| %s | %.2f | %.2f |" % (row["how"], row["stored"] / row["parameters"], row["bytes"] / row["stored"]))
    rows = [row for row in find(command, data="N(0, 0.02) BF16") if row["tool"] in ("cp", "lmc", "zstd -1", "zipnn", "lmz", "lz4")]
    places = list(dict.fromkeys(row["place"] for row in rows))
    if rows:
        out("\n**The command**, %d MB of Gaussian bf16; compress/restore, GB/s; on a disk until all is on it:\n\n| | threads | size | %s |\n|---|---|---|%s" %
            (rows[0]["bytes"] // 1000000, " | ".join(places), "---|" * len(places)))
        for row in find(rows, place=places[0]):
            there = [find(rows, place=place, tool=row["tool"], threads=row["threads"]) for place in places]
            out("| %s | %d | %.1f %% | %s |" % (row["tool"], row["threads"], 100 * row["packed"] / row["bytes"],
                  " | ".join("/".join("%.2f" % (found["bytes"] / found[verb] / 1e9) for verb in ("pack", "unpack")) for found, in filter(None, there))))


def put_part(out, name):
    out(read_text(build(name), "Not measured.\n").rstrip("\n"))


TEXT = {
    "units": """MB and GB are 10^6 and 10^9 bytes. GB/s count original bytes, whichever way. c/B are cycles of the time stamp counter per original byte: its rate is fixed,
while the core may run faster or slower. "x memcpy" compares with memcpy of the same buffer in the same repetitions. "entropy" is the sum of the order-0 entropies
of the byte planes of each block of 64 Ki elements, "distance" what the size is above it; both in % of the input. Everything that was coded was decoded and compared.""",
    "peers": """One thread, one core, the same buffer, all codecs taking turns. The codecs "planes" and "huff0" are LMC's own split and join (AVX2 or NEON) around
a library, without checksums or format; huff0 (of libzstd) codes the plane of the exponent only. OpenZL writes checksums; blosc2, pcodec and ZipNN do not.
Slow codecs are measured three times. Real checkpoints are repeated to fill the buffer; none of these codecs looks back that far.""",
    "delta": """Snapshots of one training run (their steps), and synthetic pairs whose elements change alike, mostly to the next float. The first lines of `bench/delta.c`
say how. The bound is the order-0 entropy of the differences given the exponents of the base; "xor, planes, zstd -1" is a vectorised xor and split around libzstd; the
bitmask is computed.""",
    "command": """By hyperfine, medians. Threads are what the tool is told; reading and writing may take another. Slow tools run once, on a smaller file. Rows of Python packages
(blosc2, ZipNN, OpenZL, pcodec) include the start of the interpreter and of the package: a tenth of a second and more. tmpfs is /dev/shm; on disk each command is
followed by `sync` of its output; "cold": caches are dropped before it. "real" are tensors of the checkpoints, each once; those of successive steps
resemble each other, which tools with a large window see.""",
    "checkpoint": """bf16 weights, fp32 master weights and both moments, 14 bytes per parameter, by the command (`bench/checkpoint`): `lmc`, `lmc --base` ("delta"), and with
`--quant RULE`. Exact ones were restored and compared; of quantised ones the weights were, and the error of the update is that of the restored moments, over all
matrices. Others code each file by itself: "xor, planes, zstd -1" with `bench/peers.c`; ZipNN by its C core, which groups bytes and codes them with Huffman, of the files and
of the xor with the base; their headers are counted as they are.""",
    "moments": """What `lmc --quant` makes of both moments, read from restored files, beside other methods (`bench/moments.py`). Update: u = m / (sqrt(v) + 1e-8); its error is
|u - u'| / |u| over all matrices together and of the worst matrix. Bits are per element of the matrices in the file; "both" is all of a file with the two moments, with
vectors (exact), index and record, by parameter; that is much for so small a network. For the other methods: order-0 entropy of the codes of each tensor, and 32 bits for each
scale and entry of a codebook. Where a second moment becomes zero (a relative error of 1), its update is m / 1e-8.""",
    "quantise": """`build/quantize`: synthetic moments of 2^25 elements, 128 MiB each, one core, CPU time. "quantise" is fitting and coding together, GB/s of fp32; restoring a first
moment reads the restored second one. "fit" is the part that finds the codes.""",
    "fidelity": """A small LLaMA-like network is resumed from a snapshot whose moments went through each mode (`bench/fidelity.py` says how; LMC through the real command), for 150
steps with the batches of the uninterrupted run. The resume from the snapshot itself repeats that run bit for bit: that was checked. The noise controls multiply each first
moment by 1 + 1e-6 N(0, 1): rounding does as much. The error of the update is that of m / (sqrt(v) + 1e-8) over all matrices (vectors stay exact everywhere). Bits are those of both
moments of a parameter together, as `lmc` stores them: quantised by `--quant`, or the codes and scales of the other methods, losslessly. dW is the distance of the master weights
from the exact run's, relative to how far that run has come since the snapshot. The loss is the mean difference from the exact run; the distance, of the absolute differences."""}


def main_page(directory):
    stamps, lines = load_stamps(), []
    out = lines.append
    quick = bool(os.environ.get("QUICK"))
    if not stamps:
        sys.exit("report.py: nothing was measured yet")
    mixed = not is_one(stamps)
    if mixed and not os.environ.get("MIX"):
        sys.exit("report.py: the results in %s are not of one run; measure all parts again (make bench), or allow it by MIX=1:\n%s" % (RESULTS, table_of_stamps(stamps)))
    newest = max(stamps.values(), key=lambda stamp: stamp["ended"])
    out("# Benchmark\n")
    if quick:
        out("**A quick run: little data, few repetitions. Its figures show that the benchmark works, not how fast anything is.**\n")
    elif any(stamp["settings"] != FULL for stamp in stamps.values()):
        out("**A short run:** %s, where a full one has %s. Sizes are exact; speeds are medians of few repetitions, and what other programs do to the machine\n"
            "shows in them: compare a row with its own memcpy.\n" % (newest["settings"], FULL))
    if mixed:
        out("**Not of one run.** Each part is of the lmc.h in this table; the next `make bench` measures all of them with one:\n\n" + table_of_stamps(stamps))
        out("\nMachine: %s. Compiler: %s." % (newest["machine"], newest["compiler"]))
    else:
        out("lmc.h %s (its SHA-256 begins with %s), commit %s, measured on %s by `make bench`. Machine: %s. Compiler: %s." %
            tuple(newest[key] for key in ("lmc.h", "digest", "commit", "ended", "machine", "compiler")))
    if os.path.exists(os.path.join(RESULTS, "note.md")):  # written by hand: what was measured again, or disturbed
        with open(os.path.join(RESULTS, "note.md")) as file: out("\n**Of this run.** " + file.read().strip())
    missing = [PARTS[part] for part in PARTS if part not in stamps]
    if missing:
        out("\nNot measured: %s." % ", ".join(missing))
    out("\n## In short\n")
    put_summary(out)
    out("\nHow all this was measured stands below; targets come last.")
    for title, name in (("Ratio against speed", "ratio-speed"), ("Speed by tier", "tiers"), ("Scaling with threads", "threads"), ("Restore time against storage bandwidth", "restore")):
        if os.path.exists(os.path.join(directory, name + ".svg")):
            out("\n![%s](%s.svg)" % (title, name))
    out("\n## In process\n\n%s" % TEXT["units"])
    put_part(out, "bench.md")
    out("\n## Beside other codecs\n\n%s" % TEXT["peers"])
    put_part(out, "peers.md")
    out("\n## Deltas\n\n%s" % TEXT["delta"])
    put_part(out, "delta.md")
    out("\n## The command\n\n%s" % TEXT["command"])
    put_command(out)
    if "checkpoint" in stamps:
        out("\n## Whole checkpoints\n\n%s\n" % TEXT["checkpoint"])
        put_part(out, "checkpoint.md")
        if read_text(build("checkpoint-own.md")):
            out("\nThe series that `bench/fidelity.py` leaves, with a distance of 50 steps, at three stages:\n")
            put_part(out, "checkpoint-own.md")
    if "moments" in stamps:
        out("\n## Quantised moments")
        if read_text(build("moments.md")):
            out("\n### Errors and sizes\n\n%s" % TEXT["moments"])
            put_part(out, "moments.md")
        out("\n### Speeds\n\n%s\n" % TEXT["quantise"])
        put_part(out, "quantize.md")
    if "sizes" in stamps:
        out("\n## Sizes of whole files\n")
        put_part(out, "sizes.md")
    out("\n## How it was measured\n")
    if not mixed:
        out(table_of_stamps(stamps) + "\n")
    out("* system: %s; load at the end of each part: %s" % (newest["system"], "; ".join("%s %s" % (PARTS[part], stamp["load"]) for part, stamp in stamps.items()
                                                                                     if stamp["load"]) or "not noted"))
    out(read_text(build("tools.md"), "* tools: not noted").rstrip("\n"))
    out("\n## Targets\n")
    put_targets(out)
    with open(os.path.join(directory, "REPORT.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main_fidelity(directory):
    lines = ["# Training resumed from quantised moments\n"]
    stamp = json.loads(read_text(build("fidelity/stamp")) or "{}")
    if stamp:
        lines.append("lmc.h %s, commit %s, %s, by `PARTS=fidelity make bench`. Machine: %s.\n" % (stamp["lmc.h"], stamp["commit"], stamp["ended"], stamp["machine"]))
    lines += [TEXT["fidelity"], "\n![training resumed from quantised moments](fidelity.svg)\n"]
    put_fidelity(lines.append)
    lines.append("\n## Targets\n")
    judge_fidelity()
    put_table(lines.append)
    with open(os.path.join(directory, "fidelity.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main_stamp(part, seconds):
    stamp = make_stamp(float(seconds))
    if part == "fidelity": # it continues from run to run, with its own settings
        stamp["settings"] = ""
    with open(build("fidelity/stamp" if part == "fidelity" else part + ".stamp"), "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1)


if __name__ == "__main__":
    verb, arguments = sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]
    mains = {("stamp", 2): main_stamp, ("page", 1): main_page, ("fidelity", 1): main_fidelity, ("plots", 1): plots.draw}
    if (verb, len(arguments)) not in mains:
        sys.exit(__doc__)
    mains[verb, len(arguments)](*arguments)
