"""Several errors are told by one, each once."""

import pytest

from graphmill.kernels.errors import Attempts, InputError, Mistakes, each_mistake, joined, refused_by


def fail(text: str) -> None:
    raise InputError(text, f"mend {text}")


def test_errors_are_told_together_each_once() -> None:
    attempts = Attempts()
    assert attempts(len, [1, 2]) == 2
    attempts.settle()
    attempts(fail, "one")
    attempts(fail, "two")
    with pytest.raises(Mistakes, match=r"(?s)^2 mistakes:\n  1\. one\n     remedy: mend one\n  2\. two") as caught:
        attempts.settle()
    again = joined([caught.value, *refused_by([lambda: fail("two"), lambda: fail("three")])])
    assert [error.problem for error in each_mistake(again)] == ["one", "two", "three"]


def test_one_error_stays_as_it_is() -> None:
    error = InputError("one", "mend")
    assert joined([error, InputError("one", "mend")]).problem == "one" and each_mistake(error) == (error,)
    with pytest.raises(ValueError, match="other"):
        Attempts()(int, "other")


def test_errors_that_are_told_together_keep_nothing_open():
    """The frames of a failed check would hold what it reads, such as the result of a query, for as long as the error."""
    closed = []

    def batches():
        try:
            yield 1
        finally:
            closed.append(True)

    def check():
        for _ in batches():
            raise InputError("wrong", "correct it")

    errors = refused_by([check])
    assert closed == [True] and [each.problem for each in errors] == ["wrong"]


def test_endless_words_are_cut_and_paths_are_not() -> None:
    error = InputError(f"lr = '{'9' * 5000}', but", f"write {'/'.join(['folder'] * 140)}")
    assert error.problem == f"lr = '{'9' * 100}... (5,000 characters)', but"
    assert error.remedy == f"write {'/'.join(['folder'] * 140)}"
