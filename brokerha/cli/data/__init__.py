"""Commands that read and write what a cluster holds.

    read_write.py   ``brokerha update | query | get | put | delete``: reads and writes from a shell
    load.py         ``brokerha load``: RDF files of any size into a repository, as many small transactions
    queues.py       ``brokerha publish`` and ``brokerha consume``: messages of queues, from and to a shell
    table.py        ``brokerha table``: key-value tables, which begin with their first key and end with their last
    snapshot.py     ``brokerha snapshot``: what tables held at one LSN, kept by name
    repository.py   ``brokerha repository``: RDF repositories, which are created and removed through the log
    control.py      the control suite: add, list, remove
    tx.py           ``brokerha tx``: transactions that are not over, and ending them by hand
"""
