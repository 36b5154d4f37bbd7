"""Bytes to tokens: what a vocabulary makes of a grammar."""
