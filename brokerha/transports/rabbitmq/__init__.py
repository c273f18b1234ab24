"""Connections to RabbitMQ through kombu and py-amqp, and the link that a node's loop serves over them.

    connecting.py        connections to RabbitMQ through kombu and py-amqp
    addresses.py         broker URLs, parsed once into plain values for kombu, py-amqp and pika
    identity.py          the description of a connection for the broker
    quiet_channel.py     a channel for short-lived queues; whether the broker still serves a channel
    properties.py        properties and headers of messages on their way to and from RabbitMQ
    loop_link.py         the link to RabbitMQ: two connections that the node's loop serves itself
    kept_connection.py   one connection to RabbitMQ that is opened again after each loss
    reader.py            the reading half of a link: deliveries go into the inbox, acknowledgements go back
    reader_wishes.py     requests of the loop to the reading half
    writer.py            the writing half of a link: takes from the outbox, publishes
    rejecting.py         the handling of a message that a node cannot use
"""
