"""What the runner needs from the world, as Protocols; adapters fulfil them, the simulator fulfils them too.

transport.py   messages between nodes and from clients
journal.py     the durable record of a master
store.py       the data of a worker
clock.py       both clocks
wire.py        how a client program reaches a cluster
copies.py      a worker's copy as a whole: giving it away as a snapshot, and replacing it by one
disk.py        the files of one directory, as a log sees them: written at a place, synced, renamed
front.py       what a front door (HTTP, AMQP, an embedding program) may ask of a node
log_stream.py  what a master tells followers outside of its log, as both sides of that door see it
"""
