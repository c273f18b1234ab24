"""CORE: masters agree on one order of transactions (the TxLog sync protocol).

    epochs/           changes of the epoch (rules R8 to R12): who is missing, promises, reports, what is next, beginning it
    splits/           splits: what becomes of each side, and how a side goes back (rule R13)

    core.py           SyncCore: inputs take note, `collect` runs one round; above all parts
    streams.py        streams of entries and the incoming queue
    peers.py          rows and promises of the others: what may be added
    bodies.py         bodies travel apart from the protocol
    config.py         every wait and window
    modes.py          strategies of split recovery: what each one needs, and the steps between them
    catching_up.py    catching up: a part of the synchronised queue whose order is known elsewhere
    identity.py       whether a master is who it says it is, and whether it belongs to the cluster (rule R15)
    membership.py     changing who is a master of the cluster, one master at a time (rule R15)
    round.py          what one round of a master brings
    state.py          SyncState: what a master knows, and what it says of itself in its row; the parts work on it, and SyncCore is one
    transferring.py   state transfer: what a master takes over when nobody holds any more what comes next in its queue
    waiting.py        what a master waits for: the head of its queue, and whose word is missing for it (rule R8)
    PROTOCOL.md       words, messages, steps, rules, invariants

                post, bodies, fetch, accept
                          |
      take note  ->  collect: merge -> stamp -> add -> post
                          |
              records to log, then messages to send
"""
