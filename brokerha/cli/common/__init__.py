"""What commands share: which cluster, options, input and output, exit codes.

    access.py     which cluster, and the client that talks to it
    masters.py    which master a command about a worker goes to, and clients of single masters
    options.py    options that mean the same everywhere
    inputs.py     an argument, a file, or standard input
    output.py     table, JSON, YAML, tab-separated values
    progress.py   rate and time left, on a terminal only
    asking.py     a person at a terminal is asked before something is gone; a script is not, and is told what happens
    exits.py      exit codes and error lines
    logs.py       where log lines of a command go
"""
