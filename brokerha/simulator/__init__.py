"""SIMULATOR: a whole cluster of the shipped code in one deterministic world, with bad luck drawn from a seed.

    simulate(seed)             one run: safety phase with faults, liveness phase after healing; a Report
    campaign(seeds, ...)       many runs over several processes; a Summary

    drawing.py      what a seed draws: shape, settings, faults, load (options.py)
    world.py        virtual time, events, the two phases
    processes.py    masters and workers: the shipped runners, which may die anywhere
    backups.py      masters of several processes: whichever of them acts
    network.py      the wire          disk.py    journals and stores          clocks.py    clocks
    tx_queues.py    queues of transactions in the broker
    faults.py       what goes wrong; worker_faults.py: with workers and their copies; backup_faults.py: with primaries and backups
    workload.py     clients who write, give up and ask again
    tx_clients.py   clients who run transactions, and coordinators who die and recover (tx_steps.py)
    operators.py    what operators tell masters
    checkers.py     the invariants: durable_checks, message_checks, worker_checks, copy_checks, readiness_checks, reply_checks,
                    journal_checks, tx_checks, over truth.py and model.py
    settling.py     what the healer does for workers, and what keeps a site from coming together
    trace.py        the story of a run and its digest
    mistakes.py     (and worker_mistakes.py, deferring_mistakes.py and others) planted mistakes, to know that the checkers see
    runs.py         simulate and campaign

Equal seeds give equal runs on every machine. A violation comes with the seed, the command that repeats it, and the last events.
"""

from brokerha.simulator.runs import Report, Summary, campaign, simulate

__all__ = ["Report", "Summary", "campaign", "simulate"]
