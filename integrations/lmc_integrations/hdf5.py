"""LMC as a filter of HDF5. Importing this module lets h5py find the plug-in that lmc_codec brings.

    f.create_dataset("x", data=a, chunks=True, **lmc_integrations.hdf5.LMC())

Programs other than this one, h5dump for instance: export HDF5_PLUGIN_PATH=$(python -m lmc_integrations.hdf5)
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

#: The filter's number, of the range for private use.
ID = 47802


def plugin_path() -> str:
    """The directory for HDF5_PLUGIN_PATH."""
    return os.path.join(os.path.dirname(os.path.abspath(lmc_codec.__file__)), "plugins")


def LMC(level: Level = 0, dtype: Any = None) -> dict[str, Any]:  # a name as hdf5plugin has them
    """Arguments of create_dataset. level: as of lmc_codec.compress. dtype: what the elements are, where the dataset's
    type is not it: "BF16" for bf16 that is kept as uint16."""
    name = _chunks.check_dtype(dtype)
    number = 0 if name is None else _arrays.NUMBERS[name]
    return {"compression": ID, "compression_opts": (level_number(level) & 0xFFFFFFFF, number)}


def main() -> int:
    print(plugin_path())
    return 0


try:
    from h5py import h5pl
except ImportError:
    pass  # only the directory is wanted
else:
    h5pl.prepend(os.fsencode(plugin_path()))

if __name__ == "__main__":
    sys.exit(main())
