"""The old name of lmc_integrations.transformers."""

from ._moved import lead_on

lead_on("lmc_codec.transformers", __name__)
