"""Which process of a master is primary, and what a primary holds back for its backups.

    role.py      the role of one process: elections, promises, fail-over
    table.py     the machine of roles
    config.py    settings of a role, the numbers of views, and the output of a role
    gate.py      the gate: a primary holds messages and replies back until sync-N backups have the records
    resting.py   orders of an operator to a backup: pause, coin, continue
"""
