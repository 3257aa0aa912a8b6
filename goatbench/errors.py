"""The one exception that means: the user can fix this."""


class UsageError(Exception):
    """What was wrong, the value, what is allowed, what to do, in one line. The command line prints it and exits with 2."""
