"""Tested releases of other projects. Each adapter checks this before it imports anything from its host project, because the
next release may have other classes and functions."""

from __future__ import annotations

import os
import re
import warnings
from importlib import metadata

#: Name of the distribution -> minor releases: "5.23" means all versions that begin with "5.23.".
TESTED = {
    "lightning": ("2.6",),
    "modelexpress": ("0.7",),
    "torch": ("2.13",),
    "transformers": ("5.18", "5.19", "5.20", "5.21", "5.22", "5.23", "5.24"),
    "verl": ("0.9",),
    "vllm": ("0.33",),
    "zarr": ("3.1", "3.4"),
}

#: An environment variable: with "1" the adapters try other releases.
TRY = "LMC_TRY_UNTESTED"


def check_host(host: str, adapter: str) -> None:
    """Raises ImportError unless a tested release of the host is installed."""
    tested = ", ".join(TESTED[host])
    try:
        version = metadata.version(host)
    except metadata.PackageNotFoundError:
        raise ImportError(f"lmc_integrations.{adapter} needs {host} {tested}, which is not installed") from None
    if ".".join(re.split(r"[.+-]", version)[:2]) in TESTED[host]:
        return
    said = f"lmc_integrations.{adapter} was tested with {host} {tested}, and {host} {version} is installed"
    if os.environ.get(TRY) != "1":
        raise ImportError(f"{said}: install a release that was tested, or set {TRY}=1 to try this one")
    warnings.warn(said, stacklevel=3)
