"""The one error that a user can cause and mend.

The command line prints an `InputError` as it stands and exits with 1; everything else is a defect and keeps its traceback.
"""


class InputError(ValueError):
    """What was given, the rule it breaks, and what to do about it.

    Args:
        problem: the finding, with the value and the place (file, line, array, row).
        remedy: the next thing to do, a command where there is one.
    """

    def __init__(self, problem: str, remedy: str = ""):
        super().__init__(f"{problem}\n  remedy: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy
