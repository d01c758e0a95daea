"""LMC as a filter of HDF5. After importing this module, h5py finds the plug-in that is part of lmc_codec.

    f.create_dataset("x", data=a, chunks=True, **lmc_integrations.hdf5.LMC())

Other programs, such as h5dump: export HDF5_PLUGIN_PATH=$(python -m lmc_integrations.hdf5)
"""

from __future__ import annotations

import os
import sys

import lmc_codec

from ._core import _arrays, _chunks, level_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lmc_codec._types import Level

__all__ = ["ID", "LMC", "plugin_path"]

#: The number of the filter, in the range for private use.
ID = 47802


def plugin_path() -> str:
    """The directory for HDF5_PLUGIN_PATH."""
    return os.path.join(os.path.dirname(os.path.abspath(lmc_codec.__file__)), "plugins")


def LMC(level: Level = 0, dtype: Any = None) -> dict[str, Any]:  # hdf5plugin has such names
    """Arguments of create_dataset. level: as for lmc_codec.compress. dtype: of the elements, if the dataset has another
    type: "BF16" for bf16 that is stored as uint16."""
    name = _chunks.check_dtype(dtype)
    number = 0 if name is None else _arrays.NUMBERS[name]
    return {"compression": ID, "compression_opts": (level_number(level) & 0xFFFFFFFF, number)}


def main() -> int:
    print(plugin_path())
    return 0


try:
    from h5py import h5pl
except ImportError:
    pass  # without h5py, only plugin_path() is used
else:
    h5pl.prepend(os.fsencode(plugin_path()))

if __name__ == "__main__":
    sys.exit(main())
