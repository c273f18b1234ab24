"""A nemesis: real processes over a cluster of RabbitMQ nodes, to which everything happens while everything is done; what was promised is checked.

    make nemesis SEED=7 HOURS=0.1          one page of results, in build/nemesis too; the seed repeats the schedule

    __main__.py       the command
    running.py        laps: faults one after the other, sometimes two at once, then everything back, judged
    schedule.py       which faults, in which order, for how long: a seed says it
    faults.py         each family of faults, begun and ended
    site.py           the cluster: what can be done to its processes, and the order of its log
    harmed.py         what runs a node whose clock and disk can be harmed
    workloads.py      what is done meanwhile, each for one lap, and its judge
    clients.py        clients of queues, two phases and sessions: what they were told, and what of it is not so
    bank.py           accounts in tables, a graph and queues, and transfers between them
    bank_books.py     what tellers were told and readers saw, and its judgement
    bank_clients.py   tellers and readers
    endless.py        a thread that works until it is told to end
    page.py           the page of results
    sums.py           a command of its own: pages of several seeds as one
    broker_table.py   a command of its own: what each fault of a broker node costs writers, in docs/benchmarks/broker-nodes.md
    test_*.py         a short run in CI, that a seed repeats its schedule, that the judge of the bank finds what is wrong, that pages are added

What is promised: docs/guarantees.md. Acknowledged writes are there once, refused ones nowhere; copies and orders are equal; a session sees
its own writes at every node; a read shows one moment; transactions are isolated as their level says; what was prepared can be committed; and
when a fault is over, everybody gets answers again.
"""
