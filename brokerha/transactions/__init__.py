"""CORE: a transaction is collected at the primary, followed by its backups, prepared, decided once.

PROTOCOL.md     words, events, steps, invariants, what happens when who dies
states.py       the two machines, as tables
config.py       every limit and wait
transaction.py  one transaction in memory: its operations and who waits for it
tx_feed.py      its events on their way to the backups
locks.py        messages that are accepted in it
outcomes.py     what became of those that are over
book.py         everything that the coordinator remembers, and what it wants done
collecting.py   begin, operations, take, pending, ping
deciding.py     prepare, commit, rollback, forget: the only place where anything is decided
coordinator.py  Coordinator: at the primary; answers of backups, lost backups, time-outs
participant.py  Participant: at a backup; holds the events and says when they are safe
read_set.py     what an isolated transaction has read, as expectations

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
