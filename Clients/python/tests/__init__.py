"""Tests of the package against a real `groupstore` program, which $GROUPSTORE names.

usage: GROUPSTORE=/path/to/groupstore python3 -m unittest discover -s tests -t .
"""
