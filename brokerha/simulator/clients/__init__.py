"""Who uses the cluster of a world: writers, clients of transactions, operators.

    workload.py       clients who write, give up and ask again
    transactions.py   clients that run transactions: move tokens of the bank, take messages, prepare, commit, roll back
    tx_steps.py       what clients of transactions remember
    operators.py      what operators tell masters
"""
