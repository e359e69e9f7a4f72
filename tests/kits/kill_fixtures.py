"""Fixtures of the kill tests; a test module loads them by ``pytest_plugins = ("kill_fixtures",)``.

One stand serves all modules of a run's process, and where several begin with the same project it is made once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_proxy import FaultProxy
from fault_trials import PATIENCE_S
from kill_scenarios import Bases
from kill_stand import Stand


@pytest.fixture(scope="session")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A crowd server and clients that can be killed."""
    with Stand(tmp_path_factory.mktemp("trials")) as stand:
        yield stand


@pytest.fixture(scope="session")
def bases(stand: Stand, tmp_path_factory: pytest.TempPathFactory) -> Bases:
    """Projects as they stood before each scenario."""
    return Bases(stand, tmp_path_factory.mktemp("bases"))


@pytest.fixture(scope="session")
def proxy(stand: Stand) -> Iterator[FaultProxy]:
    """A proxy before that server, which passes everything on until it is told otherwise."""
    with FaultProxy(stand.port, late_s=PATIENCE_S * 1.5) as proxy:
        yield proxy
