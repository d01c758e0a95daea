"""Does LMC reach its targets of speed and size? The last table of REPORT.md."""
from results import WEIGHTS, find, load, load_checkpoint, load_command, load_fidelity

BEST, HUFFMAN = "avx512", ("huff0", "OpenZL huffman", "zipnn")
ROWS = []  # of the table, in order


def judge(what, target, measured, passed):
    ROWS.append("| %s | %s | %s | %s |" % (what, target, measured, {True: "met", False: "**not met**", None: "not measured"}[passed]))


def judge_speed(bench, what, names, tier, compress, decompress):
    rows = [row for row in find(bench, part="codec", tier=tier, level="default") if row["data"] in names]
    if not rows:
        judge("%s, %s" % (what, tier), "", "", None)
    for row in rows:
        encode, decode = (row[key] / row["memcpy_gb_s"] for key in ("encode_gb_s", "decode_gb_s"))
        judge("%s, %s, compress" % (row["data"], tier), "&ge; %.2f x memcpy" % compress, "%.3f" % encode, encode >= compress)
        judge("%s, %s, decompress" % (row["data"], tier), "&ge; %.2f x memcpy" % decompress, "%.3f" % decode, decode >= decompress)


def judge_peers(peers, data, compress, decompress):
    """compress, decompress: the multiples of memcpy that are enough where a multiple of a peer is more."""
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
    """Shares of the bound, by the share of changes; speeds of the default level."""
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


def judge_checkpoint():
    """Targets: those that a prototype reached on all tensors of that network."""
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
    """Targets: the results of a study for such networks, each of the worst snapshot of a series. Bits are those of the matrices."""
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


def judge_quantize(rows):
    rows = find(rows, tier=BEST)
    if not rows:
        judge("speed of quantising", "", "", None)
    for row in rows:
        what, least = "%s moments, %s, %s" % (row["moment"], row["mode"], BEST), {"second": 2, "first": 1}[row["moment"]]
        judge(what + ", quantise", "&ge; %d GB/s" % least, "%.2f GB/s" % row["quantise"], row["quantise"] >= least)
        judge(what + ", restore", "&ge; 0.6 x memcpy", "%.2f" % row["restore_x"], row["restore_x"] >= 0.6)


def judge_fidelity():
    """Targets: those of the study, which had another network."""
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


def put_targets(out):
    bench, peers = load("bench.json"), load("peers.json")
    judge_speed(bench, "bf16", ("N(0, 0.02) bf16", "model.bf16"), BEST, 0.50, 0.90)
    judge_speed(bench, "fp32", ("N(0, 0.02) fp32", "master.f32"), BEST, 0.55, 0.85)
    judge_speed(bench, "fp16", ("N(0, 0.02) fp16", "model.f16"), BEST, 0.40, 0.60)
    judge_speed(bench, "bf16", ("N(0, 0.02) bf16", "model.bf16"), "avx2", 0.22, 0.50)
    low = [row["data"] for row in find(bench, part="codec", tier=BEST) if " % one " in row["data"]]
    judge_speed(bench, "planes with entropy below 1.5 bits", low, BEST, 0.7, 1.0)
    for data, compress, decompress in (("N(0, 0.02) bf16", 0.50, 0.90), (WEIGHTS, 0.50, 0.90),
                                       ("N(0, 0.02) fp32", 0.55, 0.85), ("master.f32", 0.55, 0.85)):
        if find(peers, data=data) or data.startswith("N"):
            judge_peers(peers, data, compress, decompress)
    judge_max(bench)
    judge_threads(bench)
    judge_delta(load("delta.json"))
    judge_checkpoint()
    judge_command(load_command())
    judge_moments(load("moments.json"))
    judge_quantize(load("quantize.json"))
    out("Computed from the measurements above. \"Similar size\": within 2 % of LMC's. \"x memcpy\": the speed relative to memcpy of the same buffer.\n")
    put_table(out)


def put_table(out):
    out("| what | target | measured | |\n|---|---|---|---|\n" + "\n".join(ROWS))
    out("\n%d met, %d not met, %d not measured." % tuple(sum(row.endswith("| %s |" % word) for row in ROWS) for word in ("met", "**not met**", "not measured")))
