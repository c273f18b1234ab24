"""The vocabulary of brokerha: types, messages and limits that every other part can use, without behaviour.

    wire/             every message between nodes, and its bytes
    reserved/         the key-value tables that brokerha keeps for itself
    outside/          input from outside, checked before use: JSON, msgpack, arguments, words for levels

    ids.py            node ids, transaction ids, LSNs, entries, the two clocks of an instant
    operations.py     the operations of a transaction, and its effect: what it changed
    operation_checks.py   checks of the names and sizes of an operation
    unfolding.py      the changes of a large transaction, from the parts that the log names
    control.py        checks of the control suite
    records.py        the records of a journal
    requests.py       requests of clients to a node, and the answers
    gathering.py      writes that wait a moment for each other, to travel together
    ready.py          Ready: the actions that a core requests, in the order in which they must happen
    numbers.py        numbers that nodes count for /metrics, by name
    states.py         the state words of nodes, with reason and action
    errors.py         the whole error tree
    invariants.py     an assertion that survives ``python -O`` and carries facts
    epochs.py         epochs: the set of masters that agree at a time, and the start of their agreement
    etags.py          ETags of keys: a text that identifies a value by its content, the same on every node and interface
    faults.py         a fault in a few lines of a log
    fingerprints.py   fingerprints as values: how they travel, and how they are shown
    forgetting.py     entries of the order after which ids below an LSN no longer count
    given_up.py       transactions that a master gave up when its synchronised queue went back: the lines of its split book
    log_lineages.py   lineages of a log, for readers by LSN

Nothing here reads a clock, draws a random number or does input or output.
"""

VERSION = "0.2.0"
"""Version of the whole distribution; the build reads it here, so that a clone knows it too."""
