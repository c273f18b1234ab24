"""Requests from outside on their way to the core of a master: checked, ordered, answered.

    amqp_front.py              writes, reads and questions of apps
    checking.py                checks of a write or a read before it is taken
    questions.py               questions about the cluster: their names, their arguments, and how a node is asked
    room.py                    how many messages wait for threads at one time
    commands.py                operators' commands on their way through the loop; reports of splits
    transacting.py             transactions step by step, between the front doors of a master and its core
    taking.py                  consumers of queues, and the messages that this master claims for them
"""
