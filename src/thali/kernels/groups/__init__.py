"""Compiled draws of the groups that rows follow."""
