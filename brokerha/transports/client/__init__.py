"""How a client program reaches a cluster over AMQP.

    wire.py       writes and reads through ``brokerha.writes`` and ``brokerha.reads``
    thread.py     one connection of a client program, kept by one thread
    requests.py   what a client program has asked and not been answered yet
"""
