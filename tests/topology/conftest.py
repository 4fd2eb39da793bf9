"""A topology in memory, with the vhost `/`."""

import pytest

from ottermq.topology import Topology


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    topology.create_vhost("/")
    return topology
