"""Clients of others, unmodified, at a running cluster over RabbitMQ: one module per client."""
