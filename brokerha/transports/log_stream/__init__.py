"""The log of a master, published for followers outside.

    stream.py     publishes the log of a master for followers outside
    messages.py   the messages in which a batch of the log is published
    reader.py     reads the published log of a master, up to the end of its stream when reading began
"""
