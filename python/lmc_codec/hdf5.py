"""The old name of lmc_integrations.hdf5, which is a program, too."""

from ._moved import lead_on

lead_on("lmc_codec.hdf5", __name__)
