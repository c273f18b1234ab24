"""The same store and the same copy without files: the model of the contract tests, and of the simulator.

    store.py         a store without files: the model in the contract tests, and the store of the simulator
    worker_copy.py   a copy without files, for tests and the simulator
    image.py         what a memory store holds, and what the changes of effects do to it; nothing else changes it
    quads.py         quads of a memory store while a transaction is evaluated
    reading.py       answering the reads of a memory store: the kinds of reads/reading.py, without SPARQL
"""
