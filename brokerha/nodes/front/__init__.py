"""What comes from outside, on its way to the core of a master: checked, put in order, answered.

    amqp_front.py              writes, reads and questions that apps publish
    checking.py                what is checked of a write or a read before it is taken in
    questions.py               questions about the cluster: which there are, what they take, and how a node is asked
    commands.py                operators' commands on their way through the loop
    transacting.py             transactions step by step, between the front doors of a master and its core
    transaction_arguments.py   what a node checks of a step of a transaction before the loop hears of it
    taking.py                  one consumer's way along a queue, from its head, until the core lets it have messages
    lanes.py                   work on messages that has to stay in order, some of it in threads
"""
