import pytest
from lmc_integrations import _hosts

collect_ignore = ["test_weight_sync.py"]  # a program, and a suite of its own


@pytest.fixture
def pretend(monkeypatch):
    """pretend(HOST, VERSION): that release is installed; of None, that there is none."""

    def pretend(host, version):
        found = _hosts.metadata.version

        def find(name):
            if name != host:
                return found(name)
            if version is None:
                raise _hosts.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(_hosts.metadata, "version", find)

    return pretend
