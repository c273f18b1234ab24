"""The wire: everything that knows kombu, py-amqp and pika, and the only folder that may name an exchange.

Nodes see ports.Transport, client programs ports.Wire.

    rabbitmq/            connections to RabbitMQ through kombu and py-amqp, and the link that a node's loop serves over them
    in_process/          the broker of this process: what stands behind ``embedded://``
    client/              how a client program reaches a cluster over AMQP
    log_stream/          the log of a master, published for followers outside
    tools/               for operators: what a broker can do, and what lies in quarantine

    kombu_transport.py   messages <-> bytes with a label; the URL chooses the link
    config.py            limits and times
    declaring.py         declares what topology.py lists, through a channel of py-amqp
    lanes.py             what waits between a node and its broker, and what it waits in
    link.py              a link carries labelled bytes between one node and its broker
    rights.py            the least rights that each user of a broker needs, as the patterns that RabbitMQ takes
    senders.py           whether a message between nodes was published by the node that it names
    topology.py          every name and every argument that brokerha has in a broker, and the only file that spells them
"""
