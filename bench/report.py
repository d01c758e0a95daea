#!/usr/bin/env python3
"""Tables and plots from what the other programs here measured.

  report.py criteria [--quick]  is it as fast and as small as it set out to be? Markdown, from the JSON files; --quick: a word of warning
  report.py command             the command's rows, from build/command.tsv and build/command/*.json
  report.py fidelity            training resumed from quantised states, from build/fidelity/fidelity.json
  report.py plots DIRECTORY     SVG files; the same input gives the same bytes"""
import json, os, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEST, HUFFMAN = "avx512", ("huff0", "OpenZL huffman", "zipnn")


def build(name):
    return os.path.join(ROOT, "build", name)


def load(name):
    try:
        with open(build(name)) as file:
            return json.load(file)
    except FileNotFoundError:
        return []


def load_command():
    """build/command.tsv with hyperfine's medians, in seconds."""
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


# -- criteria --

ROWS = []


def judge(what, target, measured, passed):
    ROWS.append("| %s | %s | %s | %s |" % (what, target, measured, {True: "met", False: "**not met**", None: "not measured"}[passed]))


def find(rows, **wanted):
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def judge_speed(bench, what, names, tier, compress, decompress):
    rows = [row for row in find(bench, part="codec", tier=tier, level="default") if row["data"] in names]
    if not rows:
        judge("%s, %s" % (what, tier), "", "", None)
    for row in rows:
        encode, decode = (row[key] / row["memcpy_gb_s"] for key in ("encode_gb_s", "decode_gb_s"))
        judge("%s, %s, compress" % (row["data"], tier), "&ge; %.2f x memcpy" % compress, "%.3f" % encode, encode >= compress)
        judge("%s, %s, decompress" % (row["data"], tier), "&ge; %.2f x memcpy" % decompress, "%.3f" % decode, decode >= decompress)


def judge_peers(peers, data, compress, decompress):
    """compress, decompress: the multiples of memcpy that suffice where a multiple of a peer is more."""
    rows = find(peers, data=data)
    ours = find(rows, codec="LMC " + BEST)
    if not ours:
        return judge("%s against peers" % data, "", "", None)
    ours, memcpy = ours[0], rows[0]["memcpy_gb_s"]
    others = [row for row in rows if not row["codec"].startswith("LMC") and row["codec"] != "memcpy"]
    similar = [row for row in others if abs(row["encoded"] - ours["encoded"]) <= 0.02 * ours["encoded"]]
    for verb, key, times, share in (("compress", "encode_gb_s", 4, compress), ("decompress", "decode_gb_s", 3, decompress)):
        if similar:
            best = max(similar, key=lambda row: row[key])
            wanted = min(times * best[key], share * memcpy)
            judge("%s, %s against the fastest peer of similar size: %s, %.2f GB/s" % (data, verb, best["codec"], best[key]),
                  "&ge; %.2f GB/s (%s)" % (wanted, "%d x" % times if wanted == times * best[key] else "%.2f x memcpy" % share),
                  "%.2f GB/s (%.1f x)" % (ours[key], ours[key] / best[key]), ours[key] >= wanted)
    huffman = [row for row in others if row["codec"].startswith(HUFFMAN)]
    if huffman:
        best = min(huffman, key=lambda row: row["encoded"])
        above = 100 * (ours["encoded"] - best["encoded"]) / ours["bytes"]
        judge("%s, size against the smallest Huffman peer: %s, %.3f %%" % (data, best["codec"], 100 * best["encoded"] / best["bytes"]),
              "&le; +0.2 % of the input", "%+.3f %%" % above, above <= 0.2)


def judge_max(bench):
    rows = find(bench, part="codec", tier=BEST, level="max")
    if not rows:
        judge("level `max`", "", "no such level here", None)
    for row in rows:
        if not row["data"].startswith("N(0, 0.02)") and row["data"] not in ("model.bf16", "master.f32", "model.f16"):
            continue
        default = find(bench, part="codec", tier=BEST, level="default", data=row["data"])[0]
        above = 100 * row["encoded"] / row["bytes"] - row["entropy_percent"]
        encode, decode = (row[key] / default[key] for key in ("encode_gb_s", "decode_gb_s"))
        judge("%s, `max`, size" % row["data"], "&le; entropy + 0.1 %", "%+.3f %%" % above, above <= 0.1)
        judge("%s, `max`, compress" % row["data"], "&ge; 0.25 x default", "%.2f" % encode, encode >= 0.25)
        judge("%s, `max`, decompress" % row["data"], "full speed (&ge; 0.9 x default)", "%.2f" % decode, decode >= 0.9)


def judge_threads(bench):
    for data in ("N(0, 0.02) bf16", "N(0, 0.02) fp32"):
        one, two = (find(bench, part="threads", data=data, threads=n) for n in (1, 2))
        if not one or not two:
            judge("%s, two threads" % data, "", "", None)
            continue
        for verb, key in (("compress", "encode_gb_s"), ("decompress", "decode_gb_s")):
            gain, share = two[0][key] / one[0][key], two[0][key] / two[0]["memcpy_gb_s"]
            judge("%s, two threads, %s" % (data, verb), "&ge; 1.8 x one, or as fast as memory allows: &ge; 0.9 x memcpy by two",
                  "%.2f x one, %.2f x memcpy" % (gain, share), gain >= 1.8 or share >= 0.9)


def judge_delta(rows):
    """Shares of the bound by how much changed; speeds of the default level."""
    sizes = [row for row in find(rows, part="sizes") if not row["data"].startswith(("exp_avg", "unrelated"))]
    if not rows:
        judge("deltas", "", "", None)
    for row in sizes:
        wanted = (95, 97) if row["changed"] > 0.5 else (92, 95) if row["changed"] > 0.05 else (82, 88)
        for level, share in zip(("default", "max"), (100 / 1.01, 100 / 1.01) if row["dtype"] == "F32" else wanted):
            measured = 100 * row["bound"] / row[level]
            judge("delta %s, %s, size" % (row["data"], level), "&ge; %.0f %% of the bound" % share, "%.1f %%" % measured, measured >= share)
    for level, direct in (("default", "direct"), ("max", "direct_max")) if rows else ():
        worst = max(find(rows, part="sizes"), key=lambda row: row[level] / row[direct])
        judge("deltas, %s, never larger than without base: worst of all pairs, %s" % (level, worst["data"]), "&le; 1 x",
              "%.4f" % (worst[level] / worst[direct]), worst[level] <= worst[direct])
    for row in find(rows, part="speed", level="default"):
        wanted = (0.28, 0.40) if row["changed"] < 0.2 else (0.20, 0.40) if row["dtype"] == "F32" else (0.20, 0.33)
        peer = find(rows, part="speed", data=row["data"], coder="xor, planes, zstd -1")[0]
        for verb, key, share in zip(("compress", "decompress"), ("encode_gb_s", "decode_gb_s"), wanted):
            speed, times = row[key] / row["memcpy_gb_s"], row[key] / peer[key]
            if row["tier"] == BEST:
                judge("delta %s, %s, %s" % (row["data"], BEST, verb), "&ge; %.2f x memcpy, &ge; 4 x xor, planes, zstd -1" % share,
                      "%.3f x memcpy, %.1f x" % (speed, times), speed >= share and times >= 4)
            elif row["tier"] == "avx2":
                judge("delta %s, avx2, %s" % (row["data"], verb), "&ge; %.3f x memcpy" % (0.4 * share), "%.3f" % speed, speed >= 0.4 * share)


def load_checkpoint(name, series=""):
    try:
        with open(build(name)) as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
    except FileNotFoundError:
        return []
    return [{"pair": "%s%s-%s" % (series, old, new), "how": how, "parameters": int(parameters), "bytes": int(size), "stored": int(stored)}
            for old, new, how, parameters, size, stored, _ in rows]


def judge_checkpoint():
    """Targets: what a prototype reached on all tensors of that network."""
    targets = {"1000-1001": 1.74, "1000-1010": 1.56}
    rows, own = load_checkpoint("checkpoint.tsv"), load_checkpoint("checkpoint-own.tsv", "own series, ")
    if not rows:
        judge("whole checkpoint as a delta", "", "", None)
    for row in find(rows, how="LMC, delta"):
        others = ["; %s: %.2f" % (other["how"], row["bytes"] / other["stored"]) for other in find(rows, pair=row["pair"]) if other["how"].startswith("xor")]
        judge("whole checkpoint %s by the command" % row["pair"], "&ge; %.2f x smaller" % targets[row["pair"]],
              "%.2f%s" % (row["bytes"] / row["stored"], "".join(others)), round(row["bytes"] / row["stored"], 2) >= targets[row["pair"]])
    for rule, most in (("bits:8", 5.1), ("bits:4", 4.1)):
        for row in find(rows + own, how="LMC, delta, `*=%s`" % rule):
            exact, = find(rows + own, pair=row["pair"], how="LMC, delta")
            bytes_each, exact_each = (each["stored"] / each["parameters"] for each in (row, exact))
            judge("whole checkpoint %s, moments `%s`" % (row["pair"], rule), "&le; %g bytes per parameter" % most,
                  "%.2f (exact delta: %.2f)" % (bytes_each, exact_each), bytes_each <= most)


def judge_command(command):
    most = max((row["threads"] for row in command), default=0)
    rows = find(command, place="tmpfs", tool="lmc", threads=most)
    if not rows:
        judge("the command on tmpfs, all cores", "", "", None)
    for row in rows:
        cp = find(command, place="tmpfs", tool="cp", data=row["data"])
        if cp:
            unpack, pack = cp[0]["unpack"] / row["unpack"], cp[0]["pack"] / row["pack"]
            where = "%s, %d MB on tmpfs, %d threads" % (row["data"], row["bytes"] // 1000000, row["threads"])
            judge("%s, `lmc -d`" % where, "&ge; 1 x cp", "%.2f" % unpack, unpack >= 1)
            judge("%s, `lmc`" % where, "&ge; 0.5 x cp", "%.2f" % pack, pack >= 0.5)


def judge_moments(rows):
    """Targets: what a study found for such networks; each is of the worst snapshot of a series. Bits are those of the matrices."""
    if not rows:
        judge("quantised moments", "", "", None)
    for row in rows:
        row["bits"] = row["m"] + row["v"]
    for series in dict.fromkeys(row["series"] for row in rows):
        mine = find(rows, series=series)
        for rule, error, bits in (("bits:8", 0.0066, 15.47), ("bits:4", 0.105, 7.53)):
            worst, most = (max(row[key] for row in find(mine, mode=rule)) for key in ("update", "bits"))
            others = ", ".join("%s %.3g" % (mode, max(row["update"] for row in find(mine, mode=mode))) for mode in ("dynamic8", "kmeans"))
            judge("%s, moments `%s`, error of the update" % (series, rule), "&le; %g" % error, "%.5f (%s)" % (worst, others), worst <= error)
            judge("%s, moments `%s`, size of both" % (series, rule), "&le; %g bits" % bits, "%.2f" % most, most <= bits)
        pairs = [(row["bits"], find(mine, mode="dynamic8", snapshot=row["snapshot"])[0]["bits"]) for row in find(mine, mode="update:0.0066")]
        ours, dynamic = max(pairs, key=lambda pair: pair[0] - pair[1])
        judge("%s, moments `update:0.0066`, size of both" % series, "&le; entropy of dynamic 8 bit, %.2f bits" % dynamic, "%.2f" % ours, ours <= dynamic)
        for kind, keys, what in (("update:", ["worst_update"], "error of the update, each matrix"), ("rel:", ["relative_m", "relative_v"], "relative error, each element")):
            share, at = max((row[key] / float(row["mode"][len(kind):]), row["mode"]) for row in mine if row["mode"].startswith(kind) for key in keys)
            judge("%s, moments `%s`, %s" % (series, kind, what), "&le; the bound", "%.4f x at `%s`" % (share, at), share <= 1)


def judge_quantise(rows):
    rows = find(rows, tier=BEST)
    if not rows:
        judge("speed of quantising", "", "", None)
    for row in rows:
        what, least = "%s moments, %s, %s" % (row["moment"], row["mode"], BEST), {"second": 2, "first": 1}[row["moment"]]
        judge(what + ", quantise", "&ge; %d GB/s" % least, "%.2f GB/s" % row["quantise"], row["quantise"] >= least)
        judge(what + ", restore", "&ge; 0.6 x memcpy", "%.2f" % row["restore_x"], row["restore_x"] >= 0.6)


FIDELITY = {"exact": "exact", "noise": "noise control", "lmc8": "LMC 8 bit", "lmc-finer": "LMC update:0.0066", "lmc-update": "LMC update:0.01",
            "lmc4": "LMC 4 bit", "dynamic8": "dynamic 8 bit, blocks of 256", "kmeans": "k-means per tensor, 8 bit", "linear8": "linear int8, blocks of 256"}


def load_fidelity():
    """Its runs, by stage, in FIDELITY's order; each with the difference of its losses from the exact run's. None if there is no such file."""
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


def judge_fidelity():
    """Targets: the study's, whose network was another."""
    _, stages = load_fidelity()
    if not any(find(runs, mode="lmc8") for runs in stages.values()):
        return judge("training resumed from quantised moments", "", "", None)
    for stage, runs in stages.items():
        noise = [run for run in runs if run["mode"].startswith("noise")]
        for mode, error, bits in (("lmc8", 0.0066, 15.47), ("lmc4", 0.105, 7.53)):
            for run in find(runs, mode=mode):
                what = "%s, moments %s" % (stage, run["title"])
                judge(what + ", error of the update", "&le; %g" % error, "%.5f" % run["update"], run["update"] <= error)
                judge(what + ", size of both", "&le; %g bits" % bits, "%.2f" % run["bits"], run["bits"] <= bits)
        for run in find(runs, mode="lmc8"):
            what = "%s, resumed from moments %s" % (stage, run["title"])
            percents, strays = ([other["percent"] for other in noise], [other["strays"][-1] for other in noise])
            judge(what + ", mean loss", "within 0.1 % of the exact run's", "%+.4f %% (noise controls %+.4f to %+.4f)" % (run["percent"], min(percents), max(percents)),
                  abs(run["percent"]) <= 0.1)
            few = strays[:3]
            judge(what + ", dW at the end", "inside three noise controls: &le; %.5f" % max(few), "%.5f (these from %.5f; all %d: %.5f to %.5f)" %
                  (run["strays"][-1], min(few), len(strays), min(strays), max(strays)), run["strays"][-1] <= max(few))


def main_criteria(quick):
    bench, peers = load("bench.json"), load("peers.json")
    judge_speed(bench, "bf16", ("N(0, 0.02) bf16", "model.bf16"), BEST, 0.50, 0.90)
    judge_speed(bench, "fp32", ("N(0, 0.02) fp32", "master.f32"), BEST, 0.55, 0.85)
    judge_speed(bench, "fp16", ("N(0, 0.02) fp16", "model.f16"), BEST, 0.40, 0.60)
    judge_speed(bench, "bf16", ("N(0, 0.02) bf16", "model.bf16"), "avx2", 0.22, 0.50)
    low = [row["data"] for row in find(bench, part="codec", tier=BEST) if " % one " in row["data"]]
    judge_speed(bench, "planes with entropy below 1.5 bits", low, BEST, 0.7, 1.0)
    for data, compress, decompress in (("N(0, 0.02) bf16", 0.50, 0.90), ("model.bf16", 0.50, 0.90),
                                       ("N(0, 0.02) fp32", 0.55, 0.85), ("master.f32", 0.55, 0.85)):
        if find(peers, data=data) or data.startswith("N"):
            judge_peers(peers, data, compress, decompress)
    judge_max(bench)
    judge_threads(bench)
    judge_delta(load("delta.json"))
    judge_checkpoint()
    judge_command(load_command())
    judge_moments(load("moments.json"))
    judge_quantise(load("quantise.json"))
    judge_fidelity()
    if quick:
        print("**A quick run: little data, few repetitions. Its figures show that the benchmark works, not how fast anything is.**\n")
    print("Computed from the measurements below. \"Similar size\": within 2 % of LMC's.\n")
    print("| what | target | measured | |\n|---|---|---|---|\n" + "\n".join(ROWS))
    print("\n%d met, %d not met, %d not measured." % tuple(sum(row.endswith("| %s |" % word) for row in ROWS) for word in ("met", "**not met**", "not measured")))


# -- the command --

def main_command():
    rows = load_command()
    if not rows:
        print("\nNot measured.")
    seen = []
    for row in rows:
        key = row["place"], row["data"]
        if key not in seen:
            seen.append(key)
            print("\n**%s, %s**\n\n| tool | threads | MB | runs | size | compress GB/s | x cp | restore GB/s | x cp |\n|---|---|---|---|---|---|---|---|---|" % key)
        cp = find(rows, place=row["place"], data=row["data"], tool="cp")
        speeds = [row["bytes"] / row[verb] / 1e9 for verb in ("pack", "unpack")]
        times = ["%.2f" % (s / (cp[0]["bytes"] / cp[0][v] / 1e9)) if cp else "" for s, v in zip(speeds, ("pack", "unpack"))]
        print("| %s | %d | %d | %d | %.2f %% | %.3f | %s | %.3f | %s |" % (row["tool"], row["threads"], row["bytes"] // 1000000, row["runs"],
              100 * row["packed"] / row["bytes"], speeds[0], times[0], speeds[1], times[1]))


# -- fidelity --

def span(form, values):
    return " to ".join(dict.fromkeys((form % min(values), form % max(values))))


def main_fidelity():
    report, stages = load_fidelity()
    if report is None:
        return print("Not measured.")
    every, resumed = report["every"], len(report["runs"][0]["losses"])
    marks = [step for step in (10, 50, 100, 150) if step <= resumed]
    print("%.2f M parameters, PyTorch %s, %.1f MB of text, %.1f M tokens; stages: steps %s." % (report["parameters"] / 1e6, report["torch"],
          report["bytes"] / 1e6, report["tokens"] / 1e6, ", ".join("%d (%s)" % (step, stage) for stage, step in report["stages"].items())))
    for stage, runs in stages.items():
        print("\n**%s, step %d**\n" % (stage, report["stages"][stage]))
        print("| restored through | error of the update | worst tensor | bits, m + v | loss, last %d steps | mean distance | %s |" %
              (report["compared"], " | ".join("dW after %d" % step for step in marks)))
        print("|---|---|---|---|---|---|" + "---|" * len(marks))
        rows = {}
        for run in runs:
            title = "noise controls" if run["mode"].startswith("noise") else run["title"]
            rows.setdefault(title, []).append(run)
        for title, row in rows.items():
            cells = [span("%.3g", [run["update"] for run in row]), span("%.3g", [run["worst_update"] for run in row]),
                     span("%.2f", [run["bits"] for run in row]) if row[0]["bits"] else "",
                     span("%+.4f", [run["percent"] for run in row]) + " %", span("%.5f", [run["apart"] for run in row])]
            cells += [span("%.4f", [run["strays"][step // every - 1] for run in row]) for step in marks]
            print("| %s | %s |" % (title if len(row) == 1 else "%s, %d seeds" % (title, len(row)), " | ".join(cells)))


# -- plots --

def save(figure, name, bottom=0):
    figure.tight_layout(rect=(0, bottom, 1, 1))
    figure.savefig(os.path.join(sys.argv[2], name + ".svg"), metadata={"Date": None, "Creator": None})


def plain(axis):
    """Numbers on a logarithmic axis as people write them."""
    from matplotlib.ticker import FuncFormatter, LogLocator
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: "%g" % value))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


LOOKS = (("LMC avx512, max", "darkred", "h"), ("LMC avx512", "tab:red", "o"), ("LMC avx2", "tab:orange", "o"), ("LMC neon", "tab:orange", "o"), ("LMC scalar", "tab:pink", "o"),
         ("huff0", "tab:blue", "s"), ("OpenZL huffman, mask", "darkgreen", "^"), ("OpenZL huffman, huf0", "lime", "<"), ("OpenZL huffman", "tab:green", ">"),
         ("OpenZL fse", "olive", "v"), ("zipnn", "tab:purple", "D"), ("zstd -1, planes", "tab:brown", "P"), ("zstd -3, planes", "peru", "P"),
         ("zstd -1, bytes", "sandybrown", "P"), ("lz4", "tab:gray", "p"), ("blosc2 bit", "darkcyan", "X"), ("blosc2 shuffle", "cyan", "X"),
         ("pcodec", "navy", "*"))


def look(codec):
    """Colour and marker: the same codec looks the same in every plot."""
    return next(((colour, marker) for start, colour, marker in LOOKS if codec.startswith(start)), ("black", "."))


SHOWN = {"LMC avx512": "LMC, AVX-512", "LMC avx2": "LMC, AVX2", "LMC neon": "LMC, NEON", "LMC scalar": "LMC, portable C", "zipnn": "ZipNN", "OpenZL huffman": "OpenZL",
         "zstd -1, bytes": "zstd -1", "zstd -1, planes": "zstd -1, byte planes", "blosc2 bitshuffle, lz4": "blosc2", "pcodec": "pcodec"}


def place_labels(axis, points):
    """A label beside each point, on the nearest of some places where it covers neither points nor labels nor the frame."""
    frame = axis.get_window_extent()
    taken = []
    for x, y, _, _ in points:
        x, y = axis.transData.transform((x, y))
        taken.append((x - 7, y - 7, x + 7, y + 7))
    places = [(dx, dy) for away in (11, 20, 32, 46, 62, 80) for dx, dy in ((away, 0), (-away, 0), (0, away), (0, -away), (away, away), (-away, away), (away, -away), (-away, -away))]
    for x, y, label, colour in points:
        for dx, dy in places:
            text = axis.annotate(label, (x, y), (dx, dy), textcoords="offset points", fontsize=10, color=colour, va="center" if dy == 0 else "bottom" if dy > 0 else "top",
                                 ha="center" if dx == 0 else "left" if dx > 0 else "right", weight="bold" if label.startswith("LMC") else "normal",
                                 arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 4} if max(abs(dx), abs(dy)) > 12 else None)
            box = text.get_window_extent()
            box = box.x0 - 1, box.y0, box.x1 + 1, box.y1
            if box[0] > frame.x0 and box[2] < frame.x1 and box[1] > frame.y0 and box[3] < frame.y1 and not any(
                    box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken):
                break
            text.remove()
        else:
            continue # too crowded: its marker stays without a name
        taken.append(box)


def plot_ratio(plt, peers):
    """The first thing that a reader of README.md sees: few codecs, named where they stand."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), dpi=72, sharey=True) # 72: the SVG's, so that labels are measured as they are drawn
    rows = [row for row in find(peers, data="N(0, 0.02) bf16") if row["codec"] in SHOWN]
    memcpy = find(peers, data="N(0, 0.02) bf16")[0]["memcpy_gb_s"]
    figure.subplots_adjust(left=0.07, right=0.99, bottom=0.12, top=0.91, wspace=0.04)
    for axis, key, verb in ((axes[0], "encode_gb_s", "compress"), (axes[1], "decode_gb_s", "decompress")):
        points = [(row[key], row["bytes"] / row["encoded"], SHOWN[row["codec"]], "tab:red" if row["codec"].startswith("LMC") else "#333333") for row in rows]
        for x, y, label, colour in points:
            axis.plot(x, y, "o", color=colour, markersize=9 if label.startswith("LMC") else 7)
        axis.axvline(memcpy, color="grey", linestyle=":")
        axis.set_xscale("log")
        axis.set_xlim(0.06, 17)
        axis.set_ylim(1.23, 1.6)
        plain(axis.xaxis)
        axis.set_xlabel("%s, GB/s of original bytes" % verb, fontsize=11)
        axis.tick_params(labelsize=10)
        axis.grid(True, which="major", alpha=0.25)
        axis.text(memcpy * 0.95, 1.24, "memcpy", rotation=90, ha="right", va="bottom", fontsize=9, color="grey")
        place_labels(axis, sorted(points, key=lambda point: -point[0]))
    axes[0].set_ylabel("times smaller", fontsize=11)
    figure.suptitle("bf16 weights on one core: smaller is higher, faster is further right", fontsize=13)
    figure.savefig(os.path.join(sys.argv[2], "ratio-speed.svg"), metadata={"Date": None, "Creator": None})


def plot_tiers(plt, bench):
    rows = find(bench, part="codec", level="default")
    tiers = [tier for tier in ("scalar", "neon", "simde", "avx2", "avx512") if find(rows, tier=tier)]
    names = [name for name in ("N(0, 0.02) bf16", "N(0, 0.02) fp16", "N(0, 0.02) fp32", "N(0, 1) fp8", "bf16, 95 % one exponent") if find(rows, data=name)]
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True)
    for axis, key, verb in ((axes[0], "encode_gb_s", "compress"), (axes[1], "decode_gb_s", "decompress")):
        for i, tier in enumerate(tiers):
            values = [find(rows, data=name, tier=tier)[0][key] for name in names]
            bars = axis.bar([x + (i - (len(tiers) - 1) / 2) * 0.8 / len(tiers) for x in range(len(names))], values, 0.8 / len(tiers), label=tier)
            axis.bar_label(bars, fmt="%.1f", fontsize=7)
        for x, name in enumerate(names):
            copy = find(rows, data=name)[0]["memcpy_gb_s"]
            axis.hlines(copy, x - 0.45, x + 0.45, color="black", linestyle=":", label="memcpy" if x == 0 else "_")
        axis.set_xticks(range(len(names)), [name.replace("N(0, 0.02) ", "").replace("N(0, 1) ", "").replace(", ", ",\n") for name in names], fontsize=8)
        axis.set_title(verb)
        axis.set_ylim(top=1.25 * max(max(values), *(row["memcpy_gb_s"] for row in rows if row["data"] in names)))
        axis.legend(fontsize=8, ncol=len(tiers) + 1, loc="upper left")
    axes[0].set_ylabel("GB/s of original bytes")
    figure.suptitle("Speed by tier, one thread")
    save(figure, "tiers")


def plot_threads(plt, bench):
    rows = find(bench, part="threads")
    names = sorted({row["data"] for row in rows})
    figure, axes = plt.subplots(1, len(names), figsize=(6 * len(names), 4.5), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names):
        mine = sorted(find(rows, data=name), key=lambda row: row["threads"])
        x = [row["threads"] for row in mine]
        for key, label, style in (("memcpy_gb_s", "memcpy", "k:"), ("encode_gb_s", "compress", "o-"), ("decode_gb_s", "decompress", "s-")):
            axis.plot(x, [row[key] for row in mine], style, label=label)
        axis.set_xticks(x)
        axis.set_xlabel("threads")
        axis.set_ylim(bottom=0)
        axis.set_title(name)
        axis.grid(True, alpha=0.2)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel("GB/s of original bytes")
    save(figure, "threads")


def plot_restore(plt, peers):
    """Time to have 1 GB of bf16 weights back from storage that reads B GB/s. Reading and decoding at the same time: the longer of
    the two; one after the other: their sum."""
    rows = find(peers, data="N(0, 0.02) bf16")
    bandwidth = [10 ** (i / 50 - 1) for i in range(101 + 30)]  # 0.1 .. 40
    figure, axis = plt.subplots(figsize=(9, 5.5))
    axis.plot(bandwidth, [1 / b for b in bandwidth], "k:", label="read uncompressed")
    for name in ("LMC avx512", "LMC avx2", "LMC neon", "LMC scalar", "huff0, exponent plane", "OpenZL huffman, mask tree (pivco)", "zipnn", "zstd -1, planes"):
        for row in find(rows, codec=name):
            share, decode = row["encoded"] / row["bytes"], 1 / row["decode_gb_s"]
            colour = look(name)[0]
            axis.plot(bandwidth, [max(share / b, decode) for b in bandwidth], color=colour, label=name + ", overlapped")
            if name in ("LMC avx512", "huff0, exponent plane"):
                axis.plot(bandwidth, [share / b + decode for b in bandwidth], "--", color=colour, label=name + ", one after the other")
    axis.set_xscale("log")
    axis.set_yscale("log")
    plain(axis.xaxis)
    plain(axis.yaxis)
    axis.set_xlabel("storage, GB/s")
    axis.set_ylabel("seconds for 1 GB restored")
    axis.grid(True, which="both", alpha=0.2)
    axis.legend(fontsize=8)
    axis.set_title("Restoring bf16 weights, one core: computed from the measured speeds and sizes")
    save(figure, "restore")


def plot_fidelity(plt):
    """Above, how far the weights stray; below, how far apart the losses are, in means of ten steps. The noise controls are a grey band."""
    report, stages = load_fidelity()
    figure, axes = plt.subplots(2, len(stages), figsize=(4.2 * len(stages), 8), sharex=True, sharey="row", squeeze=False)
    every = report["every"]
    for column, (stage, runs) in enumerate(stages.items()):
        steps = range(every, len(runs[0]["losses"]) + 1, every)
        for run in runs:
            run["apart"] = [sum(map(abs, run["differences"][step - every:step])) / every for step in steps]
        noise = [run for run in runs if run["mode"].startswith("noise")]
        for axis, key in zip(axes[:, column], ("strays", "apart")):
            if noise:
                values = list(zip(*(run[key] for run in noise)))
                axis.fill_between(steps, list(map(min, values)), list(map(max, values)), color="black", alpha=0.3, linewidth=1, label="noise controls")
            for mode, colour in zip(FIDELITY, (None, None, "tab:red", "tab:pink", "tab:orange", "tab:purple", "tab:blue", "tab:green", "tab:brown")):
                for run in find(runs, mode=mode) if colour else []:
                    axis.plot(steps, run[key], color=colour, linewidth=1.3, label=run["title"])
            axis.set_yscale("log")
            axis.grid(True, alpha=0.2)
        axes[0][column].set_title("%s, from step %d" % (stage, report["stages"][stage]))
        axes[1][column].set_xlabel("steps since the snapshot")
    axes[0][0].set_ylabel("dW")
    axes[1][0].set_ylabel("distance of the losses")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8)
    save(figure, "fidelity", 0.06)


def main_plots():
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "lmc", "svg.fonttype": "none", "font.family": "sans-serif"})
    bench, peers = load("bench.json"), load("peers.json")
    if peers:
        plot_ratio(plt, peers)
        plot_restore(plt, peers)
    if bench:
        plot_tiers(plt, bench)
        plot_threads(plt, bench)
    if load("fidelity/fidelity.json"):
        plot_fidelity(plt)


if __name__ == "__main__":
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "criteria":
        main_criteria(sys.argv[2:] == ["--quick"])
    elif verb == "command":
        main_command()
    elif verb == "fidelity":
        main_fidelity()
    elif verb == "plots" and len(sys.argv) == 3:
        main_plots()
    else:
        sys.exit(__doc__)
