"""What commands share: which cluster, options, input and output, exit codes.

    command.py    how a command is declared: what it takes, and what it answers
    cluster.py    the cluster that a command talks to: as a whole, or one of its masters; which one is meant
    options.py    options that mean the same everywhere
    inputs.py     an argument, a file, or standard input
    output.py     table, JSON, YAML, tab-separated values
    progress.py   rate and time left, on a terminal only
    waiting.py    waiting until others have done something, with an end
    asking.py     a person at a terminal is asked before something is gone; a script is not, and is told what happens
    exits.py      exit codes and error lines
    logs.py       where log lines of a command go
"""
