"""The old name of lmc_integrations.stats, a program."""

from ._moved import lead_on

lead_on("lmc_codec.stats", __name__)
