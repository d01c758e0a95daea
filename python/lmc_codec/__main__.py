"""The command: `python -m lmc_codec` runs `lmc`, which was built into the package."""

from __future__ import annotations

import os
import sys


def command() -> str:
    """The path of the executable."""
    if os.name == "nt":
        raise SystemExit("The command lmc needs POSIX, so it is not in packages for Windows: use it in WSL.")
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "lmc")
    if not os.path.exists(path):
        raise SystemExit(
            "lmc_codec was built without the command, which needs POSIX and jansson."
            " Install jansson (Debian: libjansson-dev) and install the package anew, from its sources:"
            " pip install --force-reinstall --no-deps ./python"
        )
    return path


def main() -> int:
    path = command()
    sys.stdout.flush()
    os.execv(path, ["lmc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
