"""Clients of a world: writers, clients of transactions.

    workload.py       clients that write, give up and ask again
    transactions.py   clients that run transactions, and their memory: move tokens of the bank, take messages, prepare, commit, roll back
"""
