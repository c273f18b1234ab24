"""CORE: masters agree on one order of transactions (the TxLog sync protocol).

    epochs/           changes of the epoch (rules R8 to R12): suspicion, promises, reports, the decision, the beginning
    splits/           splits of the cluster: how sides come together, and how a side goes back (rule R13)

    core.py           SyncCore: inputs are noted, `collect` runs one round
    streams.py        streams of entries and the incoming queue
    peers.py          rows and promises of the other masters: the limits of ADD
    bodies.py         bodies of transactions, which travel apart from the protocol
    config.py         every timeout and window
    modes.py          strategies of split recovery: the needs of each, and the steps between them
    catching_up.py    catching up: a part of the synchronised queue whose order another master knows
    identity.py       whether a master is who it says it is, and whether it belongs to the cluster (rule R15)
    membership.py     changing the masters of the cluster, one master at a time (rule R15)
    round.py          RoundResult: the result of one round of a master
    state.py          SyncState: the knowledge of one master; all parts work on it, and SyncCore is one
    transferring.py   state transfer: taken over when no master holds the next entry of the queue any more
    waiting.py        the head of the queue, and the members that hold it up (rule R8)
    PROTOCOL.md       words, messages, steps, rules, invariants

                post, bodies, fetch, accept
                          |
      take note  ->  collect: merge -> stamp -> add -> post
                          |
              records to log, then messages to send
"""
