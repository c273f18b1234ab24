"""Commands that read and write the content of a cluster.

    read_write.py   ``brokerha update | query | get | put | delete | publish | consume``: reads and writes from a shell
    load.py         ``brokerha load``: RDF files of any size into a repository, as many small transactions
    stores.py       ``brokerha repository | table | snapshot | control``: RDF repositories, tables, snapshots of them, the control suite
    tx.py           ``brokerha tx``: transactions that are not over, and decisions by hand
"""
