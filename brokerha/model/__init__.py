"""The words of brokerha: what every other part may know, and nothing that does anything.

    ids.py          node ids, transaction ids, LSNs, entries, the two clocks of an instant
    operations.py   what a transaction asks for, and the effect that it really had
    control.py      checks of the control suite
    fingerprints.py fingerprints of content, and etags.py ETags of keys
    channels.py     what messages travel through; tx_queues.py names of the queues of transactions
    messages.py     every message between nodes, one frozen class each
    process_messages.py   ... those between the processes of one master
    records.py      what a journal holds
    requests.py     what clients hand to a node, and what they get back
    client_wire.py  what client programs and masters say to each other over AMQP
    gathering.py    writes that wait a moment for each other, to travel together
    levels.py       levels of acknowledgement as people write them
    ready.py        Ready: what a core asks of the world, in the order in which it must happen
    codec.py        bytes <-> messages and records; limits before decoding
    numbers.py      what nodes count for /metrics
    states.py       the state words of nodes, with reason and action
    machines.py     state machines as tables
    errors.py       the whole error tree
    invariants.py   an assertion that survives ``python -O`` and carries facts

Nothing here reads a clock, draws a random number or does input or output.
"""
