"""The one exception that reaches a user as a single clear line."""


class UserError(Exception):
    """Bad input: the message says what was wrong, where, and what to do. The command line prints it and exits 1."""
