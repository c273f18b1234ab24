"""brokerha: the same data on many nodes, writable everywhere, over RabbitMQ."""
