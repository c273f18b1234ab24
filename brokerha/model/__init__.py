"""The words of brokerha: what every other part may know, and nothing that does anything.

    ids.py          node ids, transaction ids, LSNs, entries, the two clocks of an instant
    operations.py   what a transaction asks for, and the effect that it really had
    messages.py     every message between nodes, one frozen class each
    records.py      what a journal holds
    requests.py     what clients hand to a node, and what they get back
    levels.py       levels of acknowledgement as people write them
    ready.py        Ready: what a core asks of the world, in the order in which it must happen
    codec.py        bytes <-> messages and records; limits before decoding
    states.py       the state words of nodes, with reason and action
    errors.py       the whole error tree
    invariants.py   an assertion that survives ``python -O`` and carries facts

Nothing here reads a clock, draws a random number or does input or output.
"""
