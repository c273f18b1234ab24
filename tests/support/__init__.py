"""What several tests stand on.

private_broker.py   a RabbitMQ node of our own on free loopback ports; also a command
owned_processes.py  the processes of one folder of ours, to be ended without touching strangers
free_ports.py       ports for servers that tests start
configs.py          cluster files of tests that run their nodes in this process
waiting.py          waits for what takes a moment
management.py       the few calls of RabbitMQ's management interface that tests need
memory_store/       the store and the copy of a worker without files: the model of the contract tests, and a store for tests that need none
broker_source.py    where the broker comes from: URL given, local binary, Debian's package, container
"""
