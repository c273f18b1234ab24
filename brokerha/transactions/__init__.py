"""CORE: a transaction is collected at the primary, followed by its backups, prepared, decided once.

PROTOCOL.md     words, events, steps, invariants, failures
states.py       the two machines, as tables
config.py       every limit and timeout
transaction.py  one transaction in memory: its operations, the findings of its reads, and the clients that wait for it
tx_feed.py      its events on their way to the backups
locks.py        messages that are accepted in it
book.py         the memory of the coordinator, outcomes of transactions that are over, and its output
collecting.py   begin, operations, take, pending, ping
deciding.py     prepare, commit, rollback, forget: the only place of decisions
coordinator.py  Coordinator: at the primary; answers of backups, lost backups, timeouts participant.py  Participant: at a backup;
holds the events and says when they are safe

     client                 primary                                    backup
       | operations            |                                          |
       |---------------------->|--- TxJoin, TxEvents (tx-queue) --------->|
       | commit                |                                          |
       |---------------------->|=== TxPrepared (journal) ================>|
       |                       |--- prepare ----------------------------->|
       |                       |<-- TxAnswer prepared --------------------|
       |                       |=== TxDecided, Accepted (journal) =======>|
       |<----------------------|--- commit; tx-queue dropped after done ->|
"""
