"""The contract of features that are handed on along links between rows."""

import numpy as np

from thali.core.protocols.engines.chains import ChainRows, LinkedRows
from thali.priors.proximity.decays import ExponentialDecay
from thali.priors.proximity.distance_dependent import DistanceDependentIBP
from thali.testing.contracts.example import BITS, Example
from thali.testing.contracts.telling import contract, near, unchanged


def check_linked_rows(example: Example) -> None:
    linked, rows = example.observation.engine(LinkedRows), example.observation.engine(ChainRows)
    data, local = example.placed()
    with contract("column_change must give the change of log_evidence."):
        for k, some in ((0, [1, 3]), (1, [0]), (1, [0, 1, 2, 3])):
            changed = rows.codes(local).astype(float)
            changed[some, k] = np.where(changed[some, k] != 0.0, 0.0, 1.0)
            with unchanged(local=local):
                change = linked.column_change(data, local, k, np.array(some))
            wanted = rows.log_evidence(data, rows.place(data, changed, rows.completed(data, local)))
            wanted -= rows.log_evidence(data, local)
            assert near(change, wanted, 1e-8), f"It is {change}, the evidence says {wanted}."
    prior = DistanceDependentIBP.from_times(np.arange(4.0), ExponentialDecay(0.5), mass=1.5)
    links = prior.draw_links(example.rng, BITS)
    with contract("linked_sweep must leave its arguments as they were and give links that lead to its bits."):
        for jointly in (False, True):
            for _ in range(5):
                with unchanged(local=local, links=links):
                    new, found, _ = linked.linked_sweep(
                        example.rng, data, local, prior.kernel_graph(), links, prior.owner_rates(), jointly
                    )
                rows.check(data, new)
                assert prior.leads_to(found, new.z), "They lead elsewhere."
                local, links = new, found
