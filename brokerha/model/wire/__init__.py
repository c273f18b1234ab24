"""Every message between nodes, and its bytes.

    messages.py           every message between nodes, one frozen class each
    epoch_messages.py     messages between masters about their epoch, and the row of each
    process_messages.py   messages between the processes of one master, its primary and its backups
    channels.py           the channels for messages between nodes
    tx_queues.py          names of the queues of transactions
    codec.py              bytes <-> messages and records; limits before decoding
    client_wire.py        bodies and headers between client programs and masters over AMQP
"""
