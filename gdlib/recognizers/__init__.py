"""Given the bytes so far, what may follow."""
