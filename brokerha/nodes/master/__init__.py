"""A master as one process holds it; and the processes of a master with backups.

    node.py              a master: core, journal, transport, front
    runner.py            turn() of a master: receive, step, log, send, answer; used by production and by the simulator
    settings.py          settings at run time at a master: learnt from a worker or another master, told to others, changed by command
    tickets.py           who gets the reply of which write
    address_book.py      which process acts for a master, and a transport that sends there
    change_log.py        what is told to followers outside, made from the journal
    journal_lines.py     lines of the log from a journal: for stores, for masters, and for followers
    process_node.py      a process of a master with backups: a master while it is primary, else a standby
    process_runner.py    turn() of such a process, and the change from one to the other
    orders.py            operators' orders to single processes of one master: promote, pause, coin, continue
    journal_copying.py   the journal of such a process as a whole: snapshots, chunks, loads
"""
