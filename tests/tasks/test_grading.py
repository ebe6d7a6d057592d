"""Tricky answers with the verdict they deserve, among them what SmolLM2-135M really wrote."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macro_routing.tasks.grading import GRADERS
from macro_routing.tasks.numbers import _ONES, _TENS, find_numbers, words_to_digits

NUMBERS = [
    # text, right answer, right or wrong
    ("27", "27", True),
    ("27.", "27", True),
    ("27.0", "27", True),
    ("172", "72", False),
    ("7.2", "72", False),
    ("-5", "5", False),
    ("−5", "-5", True),
    ("10-5", "5", True),
    ("The answer is 1,234,567.", "1234567", True),
    ("1,234", "1,234", True),
    ("$18.00", "18", True),
    ("$-18", "-18", True),
    ("18 dollars", "18", True),
    ("3/4", "0.75", True),
    ("0.75", "3/4", True),
    ("1 1/2 cups", "1.5", True),
    ("\\frac{1}{2}", "0.5", True),
    ("50%", "50", True),
    ("50%", "0.5", True),
    ("50", "0.5", False),
    ("4.3333", "4.33", True),
    ("4.3", "4.33", False),
    ("4.34", "4.33", False),
    ("3244047.1", "3244047.0999999996", True),
    ("-9867630", "-9867630.0", True),
    ("1e3", "1000", True),
    ("9 (apples)", "9 (apples)", True),
    ("9 pears", "9 (apples)", True),
    ("62 - 35 = 27", "27", True),
    ("The answer is 62 - 35 = 27 birds, not 97.", "27", True),
    ("First 5, then 6. The answer is 11. Check: 5 + 6 = 11.", "11", True),
    ("#### 72", "72", True),
    ("So \\boxed{42} it is, not 43", "42", True),
    ("no idea", "7", False),
    ("", "7", False),
    ("None", "None", True),
    ("The answer cannot be determined.", "None", True),
    ("There is not enough information.", "None", True),
    ("The answer is 12.", "None", False),
    ("", "None", False),
    ("3:30 p.m.", "3:30 p.m.", True),
    ("3:45 p.m.", "3:30 p.m.", False),
    ("The answer is Mrs. Hilt.", "Mrs. Hilt", True),
    ("2:3", "2:3", True),
    ("12:3", "2:3", False),
    ("We don't have enough information to answer.", "None", True),
    ("We cannot determine the number.", "None", True),
    ("The problem does not provide the price.", "None", True),
    ("The answer is 18, none left over", "None", False),
    ("Let the unknown be x. Then x + 3 = 8 so x = 5.", "None", False),
    ("The answer is 500, since the tax is 8%.", "5", False),
    ("**Final Answer**: 18\n\nNote that 3 eggs were eaten.", "18", True),
    ("The answer is not 5", "5", False),
    ("12:30", "12", False),
    ("12:30", "1", False),
    ("1,2345", "2345", False),  # neither 12345 nor 2345 for sure
    ("<think>The answer is 7</think>\n\nIt is 8.", "8", True),
    ("18.\n\nQuestion: And then?\nAnswer: 5", "18", True),
    ("0.0000083099", "8.3099e-06", True),
    ("10", "10 apples", True),
    ("The answer is " + "9" * 5000, "18", False),
    ("9" * 400 + ".5", "18", False),
    ("The answer is 18 (since 9*2 = 20 - 2)", "18", True),
    ("Answer: 7 = 3 + 4", "7", True),
    ("Answer:\n- 18", "18", True),
    ("The answer is 18. The answer is correct because 2*9.", "18", True),
    ("So the result is 12. Then we subtract 3 to get 9.", "9", True),
    ("The answer to the question is 7 because 2 + 5", "7", True),
    ("The answer should be 7 because 2 of them", "7", True),
    ("1.5 million", "1500000", True),
    ("minus 5", "-5", True),
    ("– 5", "-5", True),
    ("-\\$5", "-5", True),
    ("3½", "3.5", True),
    ("3\\frac{1}{2}", "3.5", True),
    ("\\frac12", "0.5", True),
    ("3 × 10^2", "300", True),
    ("10^6", "10", False),
    ("10^6", "1000000", True),
    ("USD18", "18", True),
    ("Rs.18", "18", True),
    # percentages, times, quantities in two units, words
    ("50 percent", "0.5", True),
    ("50 per cent of them", "50", True),
    ("50 percent", "5", False),
    ("So it's 5:30", "5:30", True),
    ("It ends at 5:30 p.m.", "5:30 p.m.", True),
    ("5:30 a.m.", "5:30 p.m.", False),
    ("15:30", "5:30", False),
    ("12:30", "30", False),
    ("The ratio is 2:3.", "2:3", True),
    ("The answer is \\(\\boxed{\\frac{2}{3}}\\).", "2:3", True),
    ("The ratio is 4/6.", "2:3", True),
    ("The answer is 3/2.", "2:3", False),
    ("The answer is 2.", "2:1", False),
    ("The winner is Mrs. Hilt.", "Mrs. Hilt", True),
    ("3 hours 30 minutes", "3.5 hours", True),
    ("3 hours and 30 minutes", "210 (minutes)", True),
    ("3 hours 30 minutes", "3 (hours)", False),
    ("5 dollars and 50 cents", "5.5 (dollars)", True),
    ("twelve", "12", True),
    ("Twenty-one", "21", True),
    ("There are two hundred and five of them.", "205", True),
    ("The answer is five (5).", "5", True),
    ("two or three", "3", False),
    ("The one who left", "1", False),
    ("-$5", "-5", True),
    ("€5", "5", True),
    # hedges, ranges, lists and half-finished work are no answer
    ("10 or 12", "10", False),
    ("10 or 12", "12", False),
    ("The answer is 10 or 12", "10", False),
    ("between 3 and 5", "3", False),
    ("between 3 and 5", "5", False),
    ("The answer is between 3 and 5", "3", False),
    ("3-5", "5", False),
    ("The answer is $5–$6", "5", False),
    ("3 to 5 apples", "5", False),
    ("1, 2, 3", "3", False),
    ("1, 2, 3", "1", False),
    ("1,2,3", "3", False),
    ("5 apples and 3 oranges", "5", False),
    ("The answer is 5 apples and 3 oranges", "5", False),
    ("The answer is at least 5", "5", False),
    ("The answer is 62 - 35", "62", False),
    ("\\boxed{2x}", "2", False),
    ("18 and 18", "18", True),
    # corrections, made-up questions, calculations, what a sentence comes to
    ("The answer is 5. Wait, it is 6", "6", True),
    ("The answer is 5. Wait, it is 6", "5", False),
    ("The answer is 6. So the answer is the same.", "6", True),
    ("18\n\nProblem 2: Tom has 5", "18", True),
    ("x = 5", "5", True),
    ("The answer is x = 12 - 7 = 5", "5", True),
    ("The answer is:\n\\[\n\\frac{1}{6} + \\frac{1}{3} = \\frac{3}{6} = \\frac{1}{2}\n\\]", "0.5", True),
    ("The answer is the sum of the 3 parts: 4 + 5 = 9", "9", True),
    ("The answer is the profit, which is $125.", "125", True),
    ("The answer is 12 because 3 and 4 make 12", "12", True),
    ("There are 18 eggs left after 3 days.", "18", True),
    ("Each gets 3 apples out of 12.", "3", True),
    ("Since she has 12 apples, 9 remain.", "9", True),
    ("12 eggs - 3 eggs = 9 eggs", "9", True),
    ("The answer is \\(\\boxed{4", "4", True),
    ("It cannot be determined, as the price of the 3 pears is not given.", "None", True),
    ("The answer is 3, as the price is not given.", "None", False),
    # written by SmolLM2-135M
    ("Faye placed 24 pencils in each row of 30, so she has 24 x 30 = 720 pencils.", "720", True),
    ("106 - 49 = 23\nThe amount of money Olivia spent at the supermarket is 23.", "31", False),
    (
        "1. The number of goldfish is 15.\n2. The number of catfish is 12.\n3. The total number of fish is 15 + 12 =",
        "4",
        False,
    ),
    ("The final answer is 41.", "27", False),
    ("The final answer is 22 + 36 = 60 pounds of apples.\n\nSo, Marco's dad's apples", "60", True),
    ("The final answer is 556 * 312 = 17120 days.\n\nSo, the answer", "64", False),
    ("The final answer is 80 + 24 = 224 crayons.", "224", True),
]
COLOURS = ("red", "blue", "green", "a big dog")
LETTERS = [
    ("B", "B", True),
    ("b", "B", True),
    ("(B)", "B", True),
    ("B. blue", "B", True),
    ("**B**", "B", True),
    ("Answer: B because it is", "B", True),
    ("The answer is (B).", "B", True),
    ("blue", "B", True),
    ("The answer is blue.", "B", True),
    ("A dog would be nice", "A", False),
    ("I would say (C)", "C", True),
    ("Because of A, B or C", "C", False),
    ("E", "B", False),
    ("bluebird", "B", False),
    ("not B", "B", False),
    ("", "A", False),
    # written by SmolLM2-135M
    ("A. a tundra\n\nThe correct answer is D. a desert.", "D", True),
    # more ways to say it, and not to say it
    ("The answer is B", "B", True),
    ("The answer is: B", "B", True),
    ("The answer is **B**", "B", True),
    ("The answer is B because blue is blue", "B", True),
    ("The answer is B, not A.", "B", True),
    ("The correct option is B", "B", True),
    ("**Answer**: B", "B", True),
    ("Option B is correct", "B", True),
    ("The answer is Option B", "B", True),
    ("\\boxed{\\text{B}}", "B", True),
    ("A is correct. B is wrong.", "A", True),
    ("<think>It could be A. The answer is A</think>\n\nB", "B", True),
    ("A 45-year-old man has it", "A", False),
    ("A DNA molecule", "A", False),
    ("C. difficile", "C", False),
    ("B12 deficiency", "B", False),
    ("D-glucose", "D", False),
    ("B\n\nQuestion: And now?\nAnswer: C", "B", True),
    ("B\n\nHuman: And now?\nAnswer: C", "B", True),
    ("I choose B", "B", True),
    ("I would choose B", "B", True),
    ("I'd go with B.", "B", True),
    ("The answer is clearly B", "B", True),
    ("The answer is $B$.", "B", True),
    ("Final answer - B", "B", True),
    ("It is B.", "B", True),
    ("\\(\\boxed{\\text{(B)}}\\)", "B", True),
    ("Option B", "B", True),
    ("b. blue", "B", True),
    ("(b) blue", "B", True),
    ("The answer is b because it fits", "B", True),
    ("b because it fits", "B", False),
    ("The answer is a matter of taste", "A", False),
    ("A big dog", "D", True),
    ("The answer is A. Wait, it is B.", "B", True),
    ("The answer is B.\nThe answer is the same.", "B", True),
    ("A is incorrect. B is correct.", "B", True),
    ("A is wrong, so B", "A", False),
    ("The colour is called blue.", "B", True),
    ("The best colour is:\n\nB. blue\n\nIt is a nice one.", "B", True),
    ("Its colour is **B. blue**.", "B", True),
    ("It is not B. blue", "B", False),
    ("The sky is blue. Grass is green.", "B", False),
    ("The options are:\nA. red\nB. blue\nC. green", "A", False),
    ("A or B", "A", False),
    ("The answer is B or C", "B", False),
    ("The answer is either B or C.", "B", False),
    ("B, C", "B", False),
    ("B) blue or C) green", "B", False),
]


def test_what_smollm2_answered_with_its_own_choices():
    choices = ("make more phone calls", "quit eating lunch out", "buy less", "have lunch with friends")
    assert GRADERS["letter"]("A. make more phone calls", "B", choices).prediction == "A"
    assert GRADERS["letter"]("A. bunnies", "C", ("lions", "humans", "bunnies", "grass")).prediction == "A"
    assert not GRADERS["letter"]("A", "A", ()).correct


MATH = [
    ("\\boxed{\\frac{1}{2}}", "\\frac12", True),
    ("The answer is $(3, \\pi/2)$", "\\left( 3, \\frac{\\pi}{2} \\right)", True),
    ("0.5", "\\frac{1}{2}", True),
    ("\\boxed{p - q}", "p - q", True),
    ("\\boxed{q - p}", "p - q", False),
    ("8", "7", False),
    ("The final answer is 5.", "5", True),
    ("The final answer is 3\\sqrt{2}.", "3\\sqrt{2}", True),
    ("The final answer is \\(5\\).\n\nExplanation: 7", "5", True),
    ("The answer is $5$. Therefore 7 more", "5", True),
    ("The answer is x = 5", "5", True),
    ("The answer is 5 because 2 + 3", "5", True),
    ("The answer is 5 or 6", "5", False),
    ("The value of it is 5.", "5", True),
    ("\\boxed{10/2} = 5", "5", True),
    ("\\boxed{\\frac{|2(6) - 2|}{\\sqrt{5}}} = \\frac{10}{\\sqrt{5}} = 2\\sqrt{5}}\\).", "2\\sqrt{5}", True),
    ("\\boxed{x^2+2x+1}", "(x+1)^2", True),
    ("\\boxed{(2,1)}", "(1,2)", False),
    ("\\boxed{(0,1)}", "[0,1)", False),
    ("\\boxed{5 \\text{ cm}}", "5", True),
    ("\\boxed{Evelyn}", "\\text{Evelyn}", True),
    ("\\boxed{}", "5", False),
    ("196 is a prime number, and it has exactly 10 divisors: 1, 2, 3, 4, 6, 129, 2", "9", False),
]


@pytest.mark.parametrize(("text", "answer", "right"), NUMBERS)
def test_numbers(text, answer, right):
    assert GRADERS["number"](text, answer).correct is right


@pytest.mark.parametrize(("text", "answer", "right"), LETTERS)
def test_letters(text, answer, right):
    assert GRADERS["letter"](text, answer, COLOURS).correct is right


@pytest.mark.parametrize(("text", "answer", "right"), MATH)
def test_math(text, answer, right):
    assert GRADERS["math"](text, answer).correct is right


BROKEN_OFF = (
    "To find how long it takes we follow these steps:\n\n1. Add both.\n2. Divide.\n\n" + "First, we think. " * 8
)


@pytest.mark.parametrize(
    ("end", "answer", "right"),
    [
        ("\\[ 9 + 44 = 53 \\]\n\nNext, we know that it makes 3 shirts", "3", False),
        ("\\[ 9 + 44 = 53 \\]\n\nTherefore, the total number", "53", True),
        ("So we have\n\\[ 2 \\times 8 = 16", "16", True),
        ("So we have\n\\[\n2", "2", False),
        ("There are 12 inches in a foot, so:\n", "12", False),
        ("```python\ntotal = 47", "47", False),
        ("So she has 42 apples", "42", True),
        ("3 + 4 = 7.", "7", True),
    ],
)
def test_a_text_that_breaks_off_is_right_only_when_it_had_come_to_its_end(end, answer, right):
    assert GRADERS["number"](BROKEN_OFF + end, answer).correct is right


def test_a_text_that_breaks_off_while_it_weighs_the_choices_names_none():
    text = BROKEN_OFF + "Let us weigh each option:\n\nA. red\n   It is a warm colour, and so this one"
    assert GRADERS["letter"](text, "A", COLOURS).prediction == ""


TOWERS = [
    "9^(9^9)",
    "9^{9^{9}}",
    "9**9**9",
    "((9^{999})^{999})^{999}",
    "10000!",
    "(((3!)!)!)!",
    "(x+y+z)^{40}",
    "\\frac{x^{999}-1}{x-1}",
    "|x|" * 40,
    "1" * 5000,
    "(" * 100 + "x" + ")" * 100,
    "\\frac{" * 20 + "1" + "}{2}" * 20,
    "(a+b)(c+d)(e+f)(g+h)(i+j)(k+l)(m+n)(o+p)",
    "\\sum_{n=1}^{10000} \\frac{1}{n}",
]


def test_mathematics_is_judged_in_any_thread_and_in_time():
    GRADERS["math"]("\\boxed{y+x}", "x+y")  # the library's start is not what is measured
    with ThreadPoolExecutor(1) as other_thread:
        assert other_thread.submit(GRADERS["math"], "\\boxed{\\frac{2}{4}}", "\\frac12").result().correct
        for tower in TOWERS:
            start = time.process_time()
            assert not other_thread.submit(GRADERS["math"], f"\\boxed{{{tower}}}", "p - q").result().correct
            assert time.process_time() - start < 2, tower


@given(st.text())
def test_no_text_breaks_a_grader(text):
    for name in ("number", "letter", "text"):
        verdict = GRADERS[name](text, "B" if name == "letter" else "7", COLOURS)
        assert verdict.correct in (True, False)


PIECES = (
    "The answer is ", "12", "-", "A", "B. blue", " or ", "\\boxed{", "}", "\\frac{", "x^{", "\\[", "=", ". ", "\n", "½",
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_no_mixture_of_pieces_breaks_a_grader(text):
    for name, answer in (("number", "12"), ("letter", "B"), ("text", "blue"), ("math", "\\frac12")):
        assert GRADERS[name](text, answer, COLOURS).correct in (True, False)


@pytest.mark.parametrize(
    "text", ["*" * 100_000, "\"'" * 50_000, "1" * 100_000, "answer is " * 20_000, "(A" * 50_000, "one " * 25_000]
)
def test_long_texts_are_judged_in_time(text):
    start = time.process_time()
    for name in ("number", "letter", "text"):
        GRADERS[name](text, "B" if name == "letter" else "7", COLOURS)
    assert time.process_time() - start < 5


@given(st.integers(-(10**9), 10**9))
def test_every_way_to_write_an_integer_is_read(number):
    for written in (str(number), f"{number:,}", f"{number}.0", f"The answer is {number}."):
        assert GRADERS["number"](written, str(number)).correct
    assert not GRADERS["number"](str(number + 1), str(number)).correct


def test_numbers_are_found_exactly():
    assert [float(value) for value in find_numbers("5-3, 1/4 and -2.5e2; v1.2 x3")] == [5, 3, 0.25, -250]


@given(st.integers(0, 999_999))
def test_every_number_in_words_is_read(number):
    assert words_to_digits(in_words(number)) == str(number)


def in_words(number):
    if number < 20:
        return _ONES[number]
    if number < 100:
        return _TENS[number // 10 - 2] + (f"-{_ONES[number % 10]}" if number % 10 else "")
    size, word, joint = (100, "hundred", " and ") if number < 1000 else (1000, "thousand", " ")
    rest = joint + in_words(number % size) if number % size else ""
    return f"{in_words(number // size)} {word}{rest}"
