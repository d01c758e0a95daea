"""The old name of lmc_integrations.dcp."""

from ._moved import lead_on

lead_on("lmc_codec.dcp", __name__)
