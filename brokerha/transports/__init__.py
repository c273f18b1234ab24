"""The wire: all code that knows kombu, py-amqp and pika. Only this folder names exchanges.

Nodes see ports.Transport, client programs ports.Wire.

    rabbitmq/            connections to RabbitMQ through kombu and py-amqp, and the link that a node's loop serves over them
    in_process/          the broker of this process: the implementation of ``embedded://``
    client/              the connection of a client program to a cluster over AMQP
    log_stream/          the log of a master, published for followers outside
    tools/               for operators: features of a broker, and messages in quarantine

    kombu_transport.py   messages <-> bytes with a label; the URL chooses the link
    config.py            limits and times
    declaring.py         declares the entries of topology.py, through a channel of py-amqp
    lanes.py             messages that wait between a node and its broker, and their containers
    link.py              a link carries labelled bytes between one node and its broker
    rights.py            the least rights of each user of a broker, and whether a message was published by the node that it names
    topology.py          every name and every argument that brokerha has in a broker; only this file spells them
"""
