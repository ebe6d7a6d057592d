"""When two texts ask the same question."""

import pytest

from macro_routing.tasks.task import normalize_question


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 36 - 32?", "what is 36-32"),
        ("At half-time, who led?", "At half time who led"),
        ("It cost 1,000 dollars.", "it cost 1000 dollars"),
        ("A 5-year-old child", "a 5 year old child"),
        ("Covid-19 began", "covid 19 began"),
        ("and/or", "and or"),
        ("36 + 32 = ?", "36+32=?"),
        ("Who wrote 'Emma'?", "who wrote emma"),
    ],
)
def test_the_same(one, other):
    assert normalize_question(one) == normalize_question(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 36 - 32?", "What is 36 + 32?"),
        ("What is 1 + 13?", "What is 11 + 3?"),
        ("What is 8 / 2?", "What is 8 * 2?"),
        ("What is -5 + 3?", "What is 5 + 3?"),
        ("What is 3.5 times 2?", "What is 35 times 2?"),
        ("What is 20% of 50?", "What is 20 of 50?"),
        ("Solve x + 3", "Solve x - 3"),
        ("What is (3 + 4) * 5?", "What is (3 + 4) - 5?"),
        ("What is √16?", "What is 16?"),
        ("Add 1 13", "Add 11 3"),
        ("1 13", "11 3"),
        ("36 + 32", "36 - 32"),
    ],
)
def test_another(one, other):
    assert normalize_question(one) != normalize_question(other)
