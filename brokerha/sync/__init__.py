"""CORE: masters agree on one order of transactions (the TxLog sync protocol).

    PROTOCOL.md    words, messages, rules, invariants, and what differs from the paper
    core.py        SyncCore: inputs take note, `collect` runs one round
    streams.py     streams of entries and the incoming queue
    peers.py       rows and promises of the others: what may be added
    posting.py     which post goes to whom, and when
    bodies.py      bodies travel apart from the protocol
    clock.py       the hybrid clock: timestamps and promises
    config.py      every wait and window

                post, bodies, fetch, accept
                          |
      take note  ->  collect: merge -> stamp -> add -> post
                          |
              records to log, then messages to send
"""
