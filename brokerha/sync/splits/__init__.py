"""Splits of the cluster: how sides come together, and how a side goes back (rule R13).

    choosing.py     choosing the strategy of split recovery while the cluster runs
    deciding.py     deciding the next epoch where any side of a split can go on
    going_back.py   going back: entries that only one side of a split synchronised are given up
"""
