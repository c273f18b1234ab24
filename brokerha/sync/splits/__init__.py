"""Splits: what becomes of each side, and how a side goes back (rule R13).

    choosing.py     choosing what becomes of a split, while the cluster runs: none, simple and smart among each other
    deciding.py     what the next epoch is where any side of a split may go on
    going_back.py   going back: what was synchronised on one side of a split only is given up
"""
