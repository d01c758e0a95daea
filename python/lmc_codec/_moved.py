"""Adapters that moved to the distribution lmc-integrations in 1.0.0. Their old names import the new modules."""

import sys
from importlib import import_module


def lead_on(name: str, module: str) -> None:
    """name: the old name, "lmc_codec.vllm"; module: the caller's __name__, "__main__" if it is run as a program."""
    new = name.replace("lmc_codec", "lmc_integrations")
    try:
        import_module("lmc_integrations")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{name} is {new} now: install the distribution lmc-integrations, from a clone of LMC by pip install ./integrations"
        ) from None
    found = import_module(new)
    if module == "__main__":
        sys.exit(found.main())
    sys.modules[module] = found
