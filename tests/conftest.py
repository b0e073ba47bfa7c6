"""Settings of all tests."""

from hypothesis import settings

# No test asserts a time, and continuous integration should not fail at random.
settings.register_profile("treelm", deadline=None, derandomize=True)
settings.load_profile("treelm")
