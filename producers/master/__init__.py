"""The master: takes writes in and emits the agreed log.

    main.py   the process
"""
