"""The old name of lmc_integrations.weight_sync, which is a program, too."""

from ._moved import lead_on

lead_on("lmc_codec.weight_sync", __name__)
