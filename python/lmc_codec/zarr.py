"""The old name of lmc_integrations.zarr."""

from ._moved import lead_on

lead_on("lmc_codec.zarr", __name__)
