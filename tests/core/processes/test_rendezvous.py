"""Where the nodes of a training without a supervisor meet."""

from __future__ import annotations

import pytest

from trainer_runtime.core.protocol.rendezvous import Rendezvous

GIVEN = {"MASTER_ADDR": "node1", "MASTER_PORT": "20007", "NODE_RANK": "1"}


def test_a_node_meets_the_others_where_its_variables_say() -> None:
    found = Rendezvous.of_variables(2, GIVEN)
    assert found is not None
    assert (found.address, found.port, found.node, found.nodes) == ("node1", 20007, 1, 2)
    assert Rendezvous.of_variables(1, {}) is None


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ValueError, match=r"compute\.nodes is 2: MASTER_PORT, NODE_RANK is not set"):
        Rendezvous.of_variables(2, {"MASTER_ADDR": "node1"})
