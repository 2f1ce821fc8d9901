"""Engines for any likelihood that can say how probable a cell is: features are kept, nothing is integrated out.

Slow beside engines of its own, and right: a new likelihood begins with these, and replaces what it wants to be fast.
"""
