"""What the runner needs from the world, as Protocols; adapters fulfil them, the simulator fulfils them too.

transport.py   messages between nodes and from clients
journal.py     the durable record of a master
store.py       the data of a worker
clock.py       both clocks
wire.py        how a client program reaches a cluster
"""
