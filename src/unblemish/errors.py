"""What can go wrong in ways that the caller can mend: one sentence each, no traceback needed."""


class BadInput(ValueError):
    """An argument, file or row that cannot be used; the message names it and says what to do."""


class Diverged(RuntimeError):
    """Training met numbers that are not finite too often; the model holds its last good state."""
