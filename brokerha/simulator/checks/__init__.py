"""The invariants, checked from outside while the world runs; nothing of the cores is believed.

    checkers.py       all invariants of a world: which check is shown what happened
    truth.py          what is true in a world: the canon, the streams, and a mirror of what each master holds durably
    model.py          what the content must be at each LSN
    durable.py        checks of what becomes durable at a master: order, agreement, acknowledgement, clocks
    messages.py       checks of what a message reveals: only what is durable at its sender, and within the windows
    copies.py         checks of copies: what is loaded and given away, what is confirmed
    readiness.py      checks of what masters make of their workers
    journals.py       checks of masters with backups
    transactions.py   checks of transactions: what clients are told against what is safe
    modes.py          what is checked of masters that go on on every side of a split
"""
