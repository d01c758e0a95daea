"""vLLM: models from LMC files (`vllm serve DIR --load-format lmc`), and weights that come as deltas while it serves.

vLLM finds this by itself, by the entry point "vllm.general_plugins", in each of its processes. With a vLLM that it was not
tested with nothing is registered, and a warning in the log of "lmc_integrations.vllm" names the releases that it was tested
with. What an installation of vLLM lacks is left out, with a line in that log, and the rest is registered.
"""

from __future__ import annotations

import logging
from importlib import import_module

from ._hosts import check_host

__all__ = ["register"]

_registered: set[str] = set()


def register() -> None:
    """What vLLM calls, in each process; it may call again. It raises nothing."""
    log = logging.getLogger(__name__)
    try:
        check_host("vllm", "vllm")
    except Exception as error:  # an ImportError, or a warning that the interpreter was told to raise
        log.warning("%s", error)
        return
    for module, what in (("_vllm_loader", "--load-format lmc"), ("_vllm_engine", "the weight-transfer backend lmc")):
        if module in _registered:
            continue
        try:
            import_module(f"{__package__}.{module}").register()
        except Exception as error:  # of an import, as a rule; others where vLLM's classes have changed
            log.info("there is no %s with this vLLM: %s: %s", what, type(error).__name__, error)
        else:
            _registered.add(module)
