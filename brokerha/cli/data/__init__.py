"""Commands that read and write the content of a cluster.

    read_write.py   ``brokerha update | query | get | put | delete``: reads and writes from a shell
    load.py         ``brokerha load``: RDF files of any size into a repository, as many small transactions
    queues.py       ``brokerha publish`` and ``brokerha consume``: messages of queues, from and to a shell
    table.py        ``brokerha table``: key-value tables, which exist from their first key to their last
    snapshot.py     ``brokerha snapshot``: named content of tables at one LSN
    repository.py   ``brokerha repository``: RDF repositories, which are created and removed through the log
    control.py      the control suite: add, list, remove
    tx.py           ``brokerha tx``: transactions that are not over, and decisions by hand
"""
