"""The benchmark's plots: SVG files; the same input gives the same bytes."""
import os

from results import FIDELITY, SHOWN, WEIGHTS, find, load, load_fidelity

def save(figure, directory, name):
    figure.savefig(os.path.join(directory, name + ".svg"), metadata={"Date": None, "Creator": None})


def plain(axis):
    """Plain numbers on a logarithmic axis."""
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


def place_labels(axis, points):
    """Puts a label beside each point, at the nearest of some places where it covers neither points nor labels nor the frame."""
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
            continue # too crowded: the marker has no label
        taken.append(box)


def plot_ratio(plt, directory, peers):
    """The first plot in README.md: few codecs, with labels at their points."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), dpi=72, sharey=True) # 72: the SVG's resolution, so that labels are measured as they are
                                                                              # drawn
    rows = [row for row in find(peers, data=WEIGHTS) if row["codec"] in SHOWN]
    memcpy = find(peers, data=WEIGHTS)[0]["memcpy_gb_s"]
    figure.subplots_adjust(left=0.07, right=0.99, bottom=0.12, top=0.91, wspace=0.04)
    for axis, key, verb in ((axes[0], "encode_gb_s", "compress"), (axes[1], "decode_gb_s", "decompress")):
        points = [(row[key], row["bytes"] / row["encoded"], SHOWN[row["codec"]], "tab:red" if row["codec"].startswith("LMC") else "#333333") for row in rows]
        for x, y, label, colour in points:
            axis.plot(x, y, "o", color=colour, markersize=9 if label.startswith("LMC") else 7)
        axis.axvline(memcpy, color="grey", linestyle=":")
        axis.set_xscale("log")
        axis.set_xlim(0.7 * min(row["encode_gb_s"] for row in rows), 24) # the same on both sides
        axis.set_ylim(1.23, 1.6)
        plain(axis.xaxis)
        axis.set_xlabel("%s, GB/s of original bytes" % verb, fontsize=11)
        axis.tick_params(labelsize=10)
        axis.grid(True, which="major", alpha=0.25)
        axis.text(memcpy * 0.95, 1.24, "memcpy", rotation=90, ha="right", va="bottom", fontsize=9, color="grey")
        place_labels(axis, sorted(points, key=lambda point: -point[0]))
    axes[0].set_ylabel("times smaller (axis from 1.23)", fontsize=11)
    figure.suptitle("bf16 weights on one core: smaller is higher, faster is further right", fontsize=13)
    save(figure, directory, "ratio-speed")


def plot_tiers(plt, directory, bench):
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
    figure.tight_layout()
    save(figure, directory, "tiers")


def plot_threads(plt, directory, bench):
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
    figure.tight_layout()
    save(figure, directory, "threads")


def plot_restore(plt, directory, peers):
    """Time to have 1 GB of bf16 weights back from storage that reads B GB/s. If reading and decoding overlap, the longer of the two; else their
    sum."""
    rows = find(peers, data=WEIGHTS)
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
    figure.tight_layout()
    save(figure, directory, "restore")


def plot_fidelity(plt, directory):
    """Above, the distance of the weights; below, the difference of the losses, in means of ten steps. The noise controls are a grey band."""
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
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    save(figure, directory, "fidelity")


def draw(directory):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    plt.rcParams.update({"svg.hashsalt": "lmc", "svg.fonttype": "none", "font.family": "sans-serif"})
    bench, peers = load("bench.json"), load("peers.json")
    if peers:
        plot_ratio(plt, directory, peers)
        plot_restore(plt, directory, peers)
    if bench:
        plot_tiers(plt, directory, bench)
        plot_threads(plt, directory, bench)
    if load("fidelity/fidelity.json"):
        plot_fidelity(plt, directory)
