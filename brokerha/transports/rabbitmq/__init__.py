"""Connections to RabbitMQ through kombu and py-amqp, and the link that a node's loop serves over them.

    connecting.py        connections to RabbitMQ through kombu and py-amqp
    addresses.py         broker URLs, read once and without guessing: what kombu, py-amqp and pika are given as plain values
    identity.py          what a connection says of itself to the broker
    quiet_channel.py     a channel for queues that come and go
    properties.py        properties and headers of messages on their way to and from RabbitMQ
    pulse.py             whether the broker still serves a channel
    loop_link.py         the link to RabbitMQ: two connections that the node's loop serves itself
    kept_connection.py   one connection to RabbitMQ that is kept
    reader.py            the reading half of a link: what the broker delivers goes into the inbox, acknowledgements go back
    reader_wishes.py     what the loop wants of the reading thread: written by the one, read by the other, at any time
    writer.py            the writing half of a link: takes from the outbox, publishes
    rejecting.py         what a node does with a message that it cannot use
"""
