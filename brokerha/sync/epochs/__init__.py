"""Changes of the epoch (rules R8 to R12): who is missing, promises, reports, what is next, beginning it.

    epochs.py      epochs at one master: promises, reports, installing, and coming back (rules R8, R9, R11, R12)
    suspicion.py   when a master begins an epoch change (rule R8): who is missing, and who wants to come back
    proposing.py   leading an epoch change: one attempt after the other, with growing patience (rules R8, R9)
    deciding.py    what the next epoch is: a pure function of the reports that a proposer has got (rule R10)
    beginning.py   going on in another epoch: what a master's queues, streams and peers are when it begins (rule R11)
    recovery.py    the recovered list of an epoch at one member
"""
