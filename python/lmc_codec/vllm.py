"""The old name of lmc_integrations.vllm."""

from ._moved import lead_on

lead_on("lmc_codec.vllm", __name__)
