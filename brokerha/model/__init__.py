"""The words of brokerha: what every other part may know, and nothing that does anything.

    wire/             every message between nodes, and its bytes
    reserved/         the key-value tables that brokerha keeps for itself
    outside/          what comes from outside, measured before it is believed: JSON, msgpack, arguments, words for levels

    ids.py            node ids, transaction ids, LSNs, entries, the two clocks of an instant
    operations.py     what a transaction asks for, and the effect that it really had
    operation_checks.py   what is wrong with the names and sizes of an operation
    unfolding.py      what a large transaction changes, by the parts that the log names
    control.py        checks of the control suite
    records.py        what a journal holds
    requests.py       what clients hand to a node, and what they get back
    gathering.py      writes that wait a moment for each other, to travel together
    ready.py          Ready: what a core asks of the world, in the order in which it must happen
    numbers.py        what nodes count for /metrics
    states.py         the state words of nodes, with reason and action
    errors.py         the whole error tree
    invariants.py     an assertion that survives ``python -O`` and carries facts
    epochs.py         epochs: the set of masters that agree at a time, and where their agreement begins
    etags.py          ETags of keys: a text that names a value by its content, the same on every node and at every door
    faults.py         a fault in a few lines of a log
    fingerprints.py   fingerprints as values: how they travel, and how they are shown
    given_up.py       what a master gave up when its synchronised queue went back: the lines of its split book
    log_lineages.py   lineages of a log for those who read it by LSN

Nothing here reads a clock, draws a random number or does input or output.
"""

VERSION = "0.2.0"
"""Of the whole distribution; the build takes it from here, so that a clone knows it as well as an installation."""
