"""The connection of a client program to a cluster over AMQP.

    wire.py       writes and reads through ``brokerha.writes`` and ``brokerha.reads``
    thread.py     one connection of a client program, kept by one thread
    requests.py   open requests of a client program
"""
