"""The store and the copy of a worker without files: a second opinion for the contract tests, and a store for tests that need none.

    store.py         a store without files: the model in the contract tests
    worker_copy.py   a copy without files
    image.py         what a memory store holds, and what the changes of effects do to it; nothing else changes it
    quads.py         quads of a memory store while a transaction is evaluated
    reading.py       answering the reads of a memory store: the kinds of reads/reading.py, without SPARQL
"""
