"""The old name of lmc_integrations.transformers."""

import sys

from ._moved import find_moved

sys.modules[__name__] = find_moved("transformers")
