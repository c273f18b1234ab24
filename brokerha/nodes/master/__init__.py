"""A master in one process; and the processes of a master with backups.

    node.py              a master: core, journal, transport, front
    runner.py            turn() of a master: receive, step, log, send, answer; used by production and by the simulator
    settings.py          run-time settings at a master: learnt from a worker or a master, sent to others, changed by command
    address_book.py      the process that acts for each master, and a transport that sends to it
    journal_lines.py     lines of the log from a journal: for stores, for masters, and for followers outside the cluster
    process_node.py      one process of a master with backups: a master while it is primary, otherwise a standby
    process_runner.py    turn() of such a process, and the change between primary and standby; snapshots, chunks and loads of its journal
    orders.py            operators' orders to single processes of one master: promote, pause, coin, continue
    tickets.py           tickets that connect each reply to the caller of its write
"""
