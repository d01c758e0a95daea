"""vLLM: models from LMC files (`vllm serve DIR --load-format lmc`), and weights that come as deltas while it serves.

vLLM finds this by itself, by the entry point "vllm.general_plugins", in each of its processes: also for who uses this
package for something else, and whatever vLLM it is. So what that vLLM does not have is left out, with a line in the log of
"lmc_codec.vllm", and the rest is registered. Written against vLLM 0.33.
"""

from __future__ import annotations

import logging
from importlib import import_module

__all__ = ["register"]

_registered: set[str] = set()


def register() -> None:
    """What vLLM calls, in each process; it may call again. It raises nothing."""
    for module, what in (("_vllm_loader", "--load-format lmc"), ("_vllm_engine", "the weight-transfer backend lmc")):
        if module in _registered:
            continue
        try:
            import_module(f"{__package__}.{module}").register()
        except Exception as error:  # of an import, as a rule; others where vLLM's classes have changed
            logging.getLogger(__name__).info("there is no %s with this vLLM: %s: %s", what, type(error).__name__, error)
        else:
            _registered.add(module)
