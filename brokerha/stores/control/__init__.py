"""The control suite: checks that must hold after each transaction.

    suite.py    the control suite: checks at one LSN, what a transaction does to them and touches; its rows on disk
    judge.py    the judgement of the control suite on one transaction, and of a value on a condition
    sparql.py   queries as checks: what is allowed, the form that an update can evaluate, and its evaluation without a trace
"""
