"""Interfaces of the runner to the outside, as Protocols; adapters implement them, and the simulator too.

transport.py   messages between nodes and from clients
journal.py     the durable record of a master
store.py       the data of a worker
clock.py       both clocks
wire.py        how a client program reaches a cluster
copies.py      a worker's copy as a whole: giving it away as a snapshot, and replacing it by one
disk.py        the files of one directory, as a log sees them: written at a place, synced, renamed
front.py       the requests of a front door (HTTP, AMQP, an embedding program) to a node
log_stream.py  the log as it is published to followers outside of it, for both sides of that door
"""
