"""Cutlayer: split learning between organisations, with the labels kept from leaking."""

__version__ = "0.1.0"
