"""vLLM: models from LMC files (`vllm serve DIR --load-format lmc`), and weight updates by deltas while it serves.

Each process of vLLM loads this by the entry point "vllm.general_plugins". If a release of vLLM lacks what one of the two
interfaces needs, a line in the log "lmc_integrations.vllm" says so, and the other one is registered.
"""

from __future__ import annotations

import logging
from importlib import import_module

__all__ = ["register"]

_registered: set[str] = set()


def register() -> None:
    """vLLM calls this in each process, perhaps repeatedly. It raises nothing."""
    log = logging.getLogger(__name__)
    for module, what in (("_vllm_loader", "--load-format lmc"), ("_vllm_engine", "the weight-transfer backend lmc")):
        if module in _registered:
            continue
        try:
            import_module(f"{__package__}.{module}").register()
        except Exception as error:  # usually an ImportError; others if vLLM's classes have changed
            log.warning("there is no %s with this vLLM: %s: %s", what, type(error).__name__, error)
        else:
            _registered.add(module)
