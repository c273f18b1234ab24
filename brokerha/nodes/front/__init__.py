"""What comes from outside, on its way to the core of a master: checked, put in order, answered.

    amqp_front.py              writes, reads and questions that apps publish
    checking.py                what is checked of a write or a read before it is taken in
    questions.py               questions about the cluster: which there are, what they take, and how a node is asked
    commands.py                operators' commands on their way through the loop; reports of splits
    transacting.py             transactions step by step, between the front doors of a master and its core
    taking.py                  who takes messages of a queue, and what this master claims for them
"""
