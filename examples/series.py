# A series of checkpoints: how small the deltas are, and why.
#
#     pip install ./python torch matplotlib
#     python examples/series.py [DIRECTORY]
#
# Trains a small language model on this repository's own text. At several points of the training it
# saves the bf16 weights of two steps, the second as a delta of the first. Then it plots the size of
# the deltas, and how many elements have changed. The cells (# %%) run one by one in Jupyter (as a
# notebook: `jupytext --to ipynb`), VS Code and Spyder. This takes a minute on two cores.

# %% A model: eight tokens predict the next one, bytes are tokens.
import glob
import os
import sys
import tempfile

import torch

import lmc_codec
from lmc_codec.torch import load_file, save_file

here = os.path.dirname(os.path.abspath(sys.argv[0] if "__file__" in globals() else "."))
folder = sys.argv[1] if len(sys.argv) > 1 and "__file__" in globals() else tempfile.mkdtemp()
n_steps = int(os.environ.get("STEPS", "600"))
os.makedirs(folder, exist_ok=True)

torch.manual_seed(1)
context, width = 8, 256
model = torch.nn.Sequential(
    torch.nn.Embedding(256, 64),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * context, width),
    torch.nn.GELU(),
    torch.nn.Linear(width, width),
    torch.nn.GELU(),
    torch.nn.Linear(width, 256),
)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

# %% Its training: AdamW in fp32, a learning rate that rises and falls. Only bf16 weights are saved.
pages = sorted(glob.glob(os.path.join(here, "..", "docs", "*.md"))) or [__file__]
text = torch.tensor(list(b"".join(open(page, "rb").read() for page in pages)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=n_steps)


def train_step():
    at = torch.randint(len(text) - context, (256,))
    inputs = torch.stack([text[i : i + context] for i in at])
    loss = torch.nn.functional.cross_entropy(model(inputs), text[at + context])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


def weights():
    return {name: t.to(torch.bfloat16) for name, t in model.state_dict().items()}


# %% The series. A delta needs the file before it; each tenth of the training begins with a full file.
rows = []  # step, loss, bytes per byte of a full file and of a delta, elements that have changed
before, path_before = None, None
for step in range(1, n_steps + 1):
    loss = train_step()
    phase = step % (n_steps // 10)
    if phase > 1:
        continue  # keep two consecutive steps of each tenth
    now, path = weights(), os.path.join(folder, f"step-{step:04}.lmc")
    raw = sum(t.nbytes for t in now.values())
    if phase == 0:
        save_file(now, path, metadata={"step": str(step)})
    elif before is not None:
        save_file(now, path, metadata={"step": str(step)}, base=path_before)
        changed = sum(int((now[k].view(torch.int16) != before[k].view(torch.int16)).sum()) for k in now)
        kept = now
        rows.append((step, loss, os.path.getsize(path_before) / raw, os.path.getsize(path) / raw, 2 * changed / raw))
    before, path_before = now, path

print(" step   loss   full   delta   changed")
for step, loss, full, delta, density in rows:
    print(f"{step:5} {loss:6.2f} {full:6.1%} {delta:7.2%} {density:8.1%}")

# %% Restoring: the loaded weights equal the saved weights, and a wrong base is refused.
last = f"step-{rows[-1][0]:04}.lmc"
base = f"step-{rows[-1][0] - 1:04}.lmc"
again = load_file(os.path.join(folder, last), base=os.path.join(folder, base))
assert all(torch.equal(again[name].view(torch.int16), t.view(torch.int16)) for name, t in kept.items())
try:
    load_file(os.path.join(folder, last), base=os.path.join(folder, f"step-{rows[0][0] - 1:04}.lmc"))
    raise SystemExit("a wrong base was taken")
except lmc_codec.WrongBaseError as error:
    print("refused, as it should be:", error)

# %% The plot: the size of a delta follows the number of changed elements.
try:
    import matplotlib.pyplot as plt
except ImportError:
    print("pip install matplotlib for the plot")
else:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    steps = [row[0] for row in rows]
    left.plot(steps, [100 * row[2] for row in rows], "o-", label="full")
    left.plot(steps, [100 * row[3] for row in rows], "o-", label="delta of the step before")
    left.set(xlabel="step", ylabel="% of the bf16 weights", ylim=(0, None))
    left.legend()
    right.plot(steps, [100 * row[4] for row in rows], "o-")
    right.set(xlabel="step", ylabel="% of the elements change in a step", ylim=(0, None))
    figure.tight_layout()
    figure.savefig(os.path.join(folder, "series.svg"))
    print("the plot:", os.path.join(folder, "series.svg"))
