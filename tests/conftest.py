"""For all tests: an example may take as long as compiling takes, since the first one that needs it pays for it."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
