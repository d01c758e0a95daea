"""Adapters that are in a distribution of their own, lmc-integrations, since 0.6.0. Their old names lead there."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def find_moved(name: str) -> ModuleType:
    try:
        import_module("lmc_integrations")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"lmc_codec.{name} is lmc_integrations.{name} now: install the distribution lmc-integrations,"
            " from a clone of LMC by pip install ./integrations"
        ) from None
    return import_module(f"lmc_integrations.{name}")
