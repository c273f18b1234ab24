"""What commands share: which cluster, options, input and output, exit codes.

    command.py    how a command is declared: what it takes, and what it answers
    cluster.py    the cluster that a command talks to: as a whole, or one of its masters; which one is meant
    options.py    options that mean the same everywhere
    inputs.py     an argument, a file, or standard input
    output.py     table, JSON, YAML, tab-separated values
    terminal.py   what a person at a terminal gets: a bar, a word while others are waited for, a question before something is gone
    exits.py      exit codes and error lines
    logs.py       where log lines of a command go
"""
