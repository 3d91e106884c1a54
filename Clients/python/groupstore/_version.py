"""The version, which is the one of the `groupstore` program that this package was released with."""

__version__ = "0.1.0"
