"""The invariants, checked from outside during a run, without trust in the cores.

    checkers.py       all invariants of a world: routes each event to its checks
    truth.py          the true state of a world: the canon, the streams, and a mirror of each master's durable state
    model.py          the right content at each LSN
    durable.py        checks of durable records of a master: order, agreement, acknowledgement, clocks
    messages.py       checks of messages: only durable facts of the sender, and within the windows
    copies.py         checks of copies: loads, snapshots, confirmations
    readiness.py      checks of masters' decisions about their workers
    journals.py       checks of masters with backups
    transactions.py   checks of transactions: answers to clients against the safe state
    modes.py          checks of masters that go on on every side of a split
"""
