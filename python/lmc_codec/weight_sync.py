"""The old name of lmc_integrations.weight_sync, which is a program, too."""

import sys

from ._moved import find_moved

_found = find_moved("weight_sync")
if __name__ == "__main__":
    sys.exit(_found.main())
sys.modules[__name__] = _found
