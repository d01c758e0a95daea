"""The old name of lmc_integrations.numcodecs."""

from ._moved import lead_on

lead_on("lmc_codec.numcodecs", __name__)
