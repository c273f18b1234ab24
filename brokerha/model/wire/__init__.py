"""Every message between nodes, and its bytes.

    messages.py           every message between nodes, one frozen class each
    epoch_messages.py     messages between masters about the epoch that they are in, and the row that each says of itself
    process_messages.py   messages between the processes of one master, its primary and its backups
    channels.py           the channels that messages between nodes travel through
    tx_queues.py          names of the queues of transactions
    codec.py              bytes <-> messages and records; limits before decoding
    client_wire.py        what client programs and masters say to each other over AMQP
"""
