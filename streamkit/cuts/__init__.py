"""Cuts: what is agreed about them in the control topic, and what follows from it. No I/O.

the control topic    notes ledger
"""
