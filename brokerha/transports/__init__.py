"""The wire: everything that knows kombu, py-amqp and pika, and the only folder that may name an exchange.

For nodes (fulfils ports.Transport):
    kombu_transport.py    messages <-> bytes with a label; the URL chooses the link
    direct_link.py        embedded://  no threads     in_process.py, local_broker.py   the broker of this process
    log_stream.py         amqp://      one thread     log_session.py, log_messages.py: the log, for followers
    loop_link.py          amqp://      the loop       kept_connection.py, reader.py, writer.py
    inbox.py  outbox.py  unconfirmed.py  unsettled.py  parcels.py     what waits between loop and threads
    rabbitmq.py  frame_socket.py  waker.py  addresses.py               connections and sockets
For client programs (fulfils ports.Wire):
    pika_wire.py          writes and reads through ``brokerha.writes`` and ``brokerha.reads``
For both:
    topology.py           every name and argument in the broker      declaring.py   declares them
    config.py             limits and times
"""
