import pytest

from treelm.errors import InputError
from treelm.evaluation.syntaxgym.formula import parse_formula

VALUES = {("a", 1): 2.0, ("a", 2): 3.0, ("b", 1): 4.0, ("b", 2): 1.0, ("a-b_2", 1): 7.0}


@pytest.mark.parametrize(
    ("formula", "holds"),
    [
        ("(1;%a%) < (1;%b%)", True),
        ("(1;%a%) > (1;%b%)", False),
        ("(1;%a%)+(2;%b%) = (2;%a%)", True),  # 2 + 1 = 3
        ("(1;%b%) - (1;%a%) - (2;%b%) = 1", True),  # from left to right
        ("(1;%b%) - (1;%a%) + (2;%b%) = 3", True),
        ("(*;%a%) = (*;%b%)", True),
        ("[(1;%a%) > 0] & [(1;%b%) > 5]", False),
        ("[(1;%a%) > 0] | [(1;%b%) > 5]", True),
        ("(1;%a%) > 0 & (1;%b%) > 5 | (2;%a%) > 0", True),  # & binds before |
        ("(2;%a%) > 0 | (1;%b%) > 5 & (1;%a%) < 0", True),
        ("(1;%a%) > 0 & (2;%a%) > 0 & (1;%b%) > 100", False),  # all three count
        ("((1;%a%) > 0) & ([(1;%b%)] > 3.5)", True),
        ("[[(1;%b%) - (1;%a%)] > [(2;%a%) - (2;%b%)]]", False),  # 2 > 2
        ("(1;%a-b_2%) = 7.0e0", True),
        ("(1;%a%) > -(2;%a%)", True),
        ("  (1;%a%)<3  ", True),
    ],
)
def test_formula_holds(formula: str, holds: bool) -> None:
    assert parse_formula(formula).holds(VALUES) is holds


@pytest.mark.parametrize(("difference", "equal"), [(0.0009, True), (0.00102, True), (0.0011, False), (-0.0009, True)])
def test_equality_has_the_tolerance_of_syntaxgym(difference: float, equal: bool) -> None:
    # atol 1e-3 + rtol 1e-5 * 3
    formula = parse_formula("(1;%x%) = (1;%y%)")
    assert formula.holds({("x", 1): 3.0 + difference, ("y", 1): 3.0}) is equal


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        ("(1;%a%) + 2", "no prediction"),
        ("(1;%a%) < ", "cannot be read"),
        ("(1;%a%", "';' at character 3"),
        ("[(1;%a%) < 2", "cannot be read"),
        ("(1;%a%) (2;%a%) < 2", "cannot be read"),
        ("(x;%a%) < 2", "'x' at character 2"),
        ("(1;%a%) < 2 < 3", "all other signs numbers only"),
        ("(1;%a%) & (2;%a%)", "join comparisons only"),
        ("-[(1;%a%) < 2]", "all other signs numbers only"),
        ("", "cannot be read"),
        ("(1;%a%) ? 2", "'?' at character 9"),
    ],
)
def test_bad_formula_is_one_line(formula: str, part: str) -> None:
    with pytest.raises(InputError) as error:
        parse_formula(formula, where="suite.json")
    assert part in str(error.value)
    assert "\n" not in str(error.value)
    assert "suite.json" in str(error.value)
