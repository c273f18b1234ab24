"""SIMULATOR: a whole cluster of the shipped code in one deterministic world, with bad luck drawn from a seed.

    simulate(seed)             one run: safety phase with faults, liveness phase after healing; a Report
    campaign(seeds, ...)       many runs over several processes; a Summary

    checks/        the invariants, checked from outside during a run, without trust in the cores
    faults/        faults of a world, and their times
    clients/       clients of a world: writers, clients of transactions

    world.py       the whole world, in two phases
    cluster.py     the nodes of a world and the links between them, by its options
    events.py      virtual time: a heap of events, one random generator, the story
    processes.py   common parts of all processes: clocks, turns, a wire, death and birth; and their view of the world
    nodes.py       masters of one process, and workers: the shipped runners, which can die anywhere
    backups.py     masters of several processes, one of which acts
    runs.py        simulate and campaign
    __main__.py    the command: one seed, or many
    copies.py      the copy of a worker: the shipped store, in a folder of the world
    disk.py        simulated disks for the shipped log: files that a crash tears
    drawing.py     options by seed: even seeds give a world of masters without backups
    members.py     masters that come and go in a world: current ones, spares, and the wishes of operators
    network.py     the wire between simulated nodes, and the queues of transactions in its broker
    options.py     options that a seed draws before a run

Equal seeds give equal runs on every machine. A violation comes with its seed, the command that repeats it, and the last events.
"""

from tests.simulator.runs import Report, Summary, campaign, simulate

__all__ = ["Report", "Summary", "campaign", "simulate"]
