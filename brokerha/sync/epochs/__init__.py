"""Changes of the epoch (rules R8 to R12): suspicion, promises, reports, the decision, the beginning.

    epochs.py      epochs at one master: promises, reports, installing, and coming back (rules R8, R9, R11, R12)
    suspicion.py   when a master begins an epoch change (rule R8): which members are missing, which masters want to come back
    proposing.py   leading an epoch change: one attempt after the other, with growing patience (rules R8, R9)
    deciding.py    deciding the next epoch: a pure function of the reports at a proposer (rule R10)
    beginning.py   beginning another epoch: a master's queues, streams and peers in it (rule R11)
    recovery.py    the recovered list of an epoch at one member
"""
