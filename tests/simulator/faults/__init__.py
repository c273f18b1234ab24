"""Faults of a world, and their times.

    timing.py    kinds of faults and their random times; faults of workers
    luck.py      common part of all faults: count and report, last for a while, choose a living process
    backups.py   faults of masters with backups: processes killed, frozen, separated from each other
    members.py   changes of the masters and of settings by operators during a run
"""
