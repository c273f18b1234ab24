"""SIMULATOR: a whole cluster of the shipped code in one deterministic world, with bad luck drawn from a seed.

    simulate(seed)             one run: safety phase with faults, liveness phase after healing; a Report
    campaign(seeds, ...)       many runs over several processes; a Summary

    checks/        the invariants, checked from outside while the world runs; nothing of the cores is believed
    faults/        what goes wrong in a world, and when
    clients/       who uses the cluster of a world: writers, clients of transactions, operators

    world.py       all of it together, in two phases
    cluster.py     the nodes of a world and the links between them, as its options say
    events.py      virtual time: a heap of events, one source of luck, the story
    processes.py   what all processes have in common: turns, a wire, death and birth; and what they know of the world
    nodes.py       masters of one process, and workers: the shipped runners, which may die anywhere
    backups.py     masters of several processes: whichever of them acts
    tx_queues.py   queues of transactions in the broker
    runs.py        simulate and campaign
    clocks.py      virtual clocks: one true time for the world, and what each node takes it for
    copies.py      the copy of a worker: the shipped store, in a folder of the world
    disk.py        simulated disks: files that a crash tears, on which the shipped log runs
    drawing.py     what a seed draws: even ones a world of masters without backups
    members.py     masters that come and go in a world: who is one now, who waits to be added, and what operators want
    network.py     the wire between simulated nodes
    options.py     what one seed draws before it begins

Equal seeds give equal runs on every machine. A violation comes with the seed, the command that repeats it, and the last events.
"""

from brokerha.simulator.runs import Report, Summary, campaign, simulate

__all__ = ["Report", "Summary", "campaign", "simulate"]
