"""The log of a master, published for followers outside.

    stream.py     publishes the log of a master for followers outside
    messages.py   the messages in which a batch of the log is published
    reader.py     reads the log that a master has published, up to where its stream ended when reading began
"""
