"""The control suite: checks that must hold after each transaction.

    suite.py    the control suite: checks at one LSN, what a transaction does to them and touches
    table.py    the rows of the control suite on disk
    judge.py    the judgement of the control suite on one transaction
    keys.py     checks of keys: does a value fulfil a condition?
    sparql.py   queries as checks: what is allowed, and the form that an update can evaluate
    run.py      evaluates queries on a state that is not committed, and leaves no trace
"""
