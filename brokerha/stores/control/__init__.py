"""The control suite: checks that must hold after each transaction.

    suite.py    the control suite: checks at one LSN, what a transaction does to them and touches
    table.py    its rows on disk
    judge.py    the judgement of the control suite on one transaction
    keys.py     checks of keys: does a value fulfil a condition?
    sparql.py   queries as checks: what is allowed, the form that an update can evaluate
    run.py      evaluating them on what is nowhere yet, without a trace
"""
