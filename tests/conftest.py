"""For all tests."""

from hypothesis import settings

settings.register_profile("cutlayer", deadline=None)  # how long an example takes is no ground to fail
settings.load_profile("cutlayer")
