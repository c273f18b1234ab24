"""What several tests stand on.

private_broker.py   a RabbitMQ node of our own on free loopback ports; also a command
management.py       the few calls of RabbitMQ's management interface that tests need
broker_source.py    where the broker comes from: URL given, local binary, Debian's package, container
"""
