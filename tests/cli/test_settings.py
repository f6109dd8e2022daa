import json
import math
import re

import equinox as eqx
import pytest

import occupax as ox
from occupax.algorithms import ALGORITHMS
from occupax.cli import output, settings
from occupax.utilities import UTILITIES


def targets(algorithm=None, utility=None):
    return {
        "": ox.TSIVRPG() if algorithm is None else algorithm,
        "utility": ox.utilities.LogCoverage() if utility is None else utility,
        "problem": {"discount": 0.99, "horizon": None, "termination": "episodic"},
        "env": {},
    }


def set_to(*words, **made):
    return settings.apply(settings.parse(words), targets(**made))


def test_words_are_split_at_the_first_equals_sign():
    assert settings.parse(["step_size=0.05", " env.map = a=b "]) == {
        "step_size": "0.05",
        "env.map": "a=b",
    }
    assert settings.parse([]) == {}


def test_lists_are_split_at_commas():
    assert settings.parse_lists(["step_size=0.01, 0.05,0.1", "rule=normalised"]) == {
        "step_size": ["0.01", "0.05", "0.1"],
        "rule": ["normalised"],
    }


@pytest.mark.parametrize("word", ["step_size", "step_size=", "=0.05", "=", "", "--json"])
def test_anything_but_a_name_and_a_value_is_refused(word):
    with pytest.raises(ValueError, match="must have the form name=value, got "):
        settings.parse([word])
    with pytest.raises(ValueError, match="must have the form name=value, got "):
        settings.parse_lists([word])


def test_a_name_given_twice_is_refused():
    with pytest.raises(
        ValueError, match=r"setting 'radius' must be given once, got the values '0.1' and '0.2'\."
    ):
        settings.parse(["radius=0.1", "step_size=1", "radius=0.2"])


def test_each_name_sets_its_own_target_and_leaves_the_rest():
    before = targets()
    words = settings.parse(
        ["step_size=0.5", "batch=7", "utility.sigma=0.25", "problem.horizon=20", "env.size=3"]
    )
    after = settings.apply(words, before)
    assert isinstance(after[""], ox.TSIVRPG)
    assert eqx.tree_equal(after[""], ox.TSIVRPG(step_size=0.5, batch=7))
    assert after["utility"] == ox.utilities.LogCoverage(0.25)
    assert after["problem"] == {"discount": 0.99, "horizon": 20, "termination": "episodic"}
    assert after["env"] == {"size": 3}
    assert eqx.tree_equal(before[""], ox.TSIVRPG())
    assert before["env"] == {}


def test_nothing_to_set_changes_nothing():
    assert eqx.tree_equal(set_to(), targets())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch", "100", 100),
        ("batch", "1e3", 1000),
        ("batch", "1_000", 1000),
        ("step_size", "0.05", 0.05),
        ("step_size", "5e-2", 0.05),
        ("step_size", "1", 1.0),
        ("radius", "inf", math.inf),
        ("radius", "0.3", 0.3),
        ("radius", "theory", "theory"),
        ("rule", "normalised", "normalised"),
        ("rule", "3", "3"),
        ("problem.horizon", "none", None),
        ("problem.horizon", "None", None),
        ("problem.horizon", "1e2", 100),
        ("problem.discount", "0.5", 0.5),
        ("problem.termination", "absorbing", "absorbing"),
        ("env.is_slippery", "false", False),
        ("env.is_slippery", "True", True),
        ("env.map_name", "4x4", "4x4"),
        ("env.seed", "3", 3),
        ("env.rate", "0.5", 0.5),
        ("env.desc", "none", None),
    ],
)
def test_values_are_read_by_what_the_field_takes(name, text, value):
    read = settings.read(name, text, targets())
    assert read == value
    assert type(read) is type(value)


def test_a_field_that_may_be_none_takes_none_or_a_number():
    hspga = {"": ox.HSPGA(mixing=0.5)}
    assert settings.read("mixing", "none", hspga) is None
    assert settings.read("mixing", "0.25", hspga) == 0.25
    with pytest.raises(
        ValueError, match=r"setting 'mixing' must be none or a number, got 'half'\."
    ):
        settings.read("mixing", "half", hspga)


def test_a_field_whose_annotation_is_open_is_read_like_its_present_value():
    class Options(eqx.Module):
        count: object = 3
        flag: object = False
        other: object = ()

    assert settings.read("count", "1e2", {"": Options()}) == 100
    assert settings.read("flag", "true", {"": Options()}) is True
    assert settings.read("other", "a", {"": Options()}) == "a"


def test_every_field_of_every_algorithm_and_utility_takes_its_own_default():
    for make in ALGORITHMS.values():
        for name, value in settings.known({"": make()}).items():
            assert settings.read(name, str(value), {"": make()}) == value, name
    for make in UTILITIES.values():
        for name, value in settings.known({"utility": make()}).items():
            assert settings.read(name, str(value), {"utility": make()}) == value, name


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("batch=1.5", "setting 'batch' must be an integer, got '1.5'."),
        ("batch=inf", "setting 'batch' must be an integer, got 'inf'."),
        ("batch=nan", "setting 'batch' must be an integer, got 'nan'."),
        ("batch=none", "setting 'batch' must be an integer, got 'none'."),
        ("batch=ten", "setting 'batch' must be an integer, got 'ten'."),
        ("step_size=fast", "setting 'step_size' must be none or a number, got 'fast'."),
        ("step_size=0.05,", "setting 'step_size' must be none or a number, got '0.05,'."),
        ("utility.sigma=none", "setting 'utility.sigma' must be a number, got 'none'."),
        (
            "problem.horizon=long",
            "setting 'problem.horizon' must be none or an integer, got 'long'.",
        ),
        ("problem.discount=true", "setting 'problem.discount' must be a number, got 'true'."),
    ],
)
def test_a_value_that_cannot_be_read_is_named_with_what_the_setting_takes(word, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        set_to(word)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("batch=0", "batch must be an integer of at least 1, got 0."),
        ("batch=-1e3", "batch must be an integer of at least 1, got -1000."),
        ("step_size=-1", "step_size must be a finite number of at least 0, got -1.0."),
        ("step_size=nan", "step_size must be a finite number of at least 0, got nan."),
        ("rule=normalized", "Did you mean 'normalised'?"),
        ("radius=theorie", "Did you mean 'theory'?"),
        ("utility.sigma=0", "sigma must be a finite number above 0, got 0.0."),
    ],
)
def test_the_checks_of_the_constructor_reach_the_user(word, said):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        set_to(word)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("stepsize", "step_size"),
        ("step-size", "step_size"),
        ("step_sise", "step_size"),
        ("utility.sgma", "utility.sigma"),
        ("sigma", "utility.sigma"),
        ("discount", "problem.discount"),
        ("utilty.sigma", "utility.sigma"),
        ("algorithm.batch", "batch"),
        ("env", "env.OPTION"),
        ("env.", "env.OPTION"),
        ("env.source", "env.OPTION"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest_and_all_known_ones(name, meant):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        set_to(f"{name}=1")
    said = str(refused.value)
    assert said.startswith(f"setting {name!r} is not known. Did you mean {meant!r}? Known: ")
    for other in settings.known(targets()):
        assert other in said


def test_options_of_the_environment_are_offered_only_where_it_can_be_set():
    with pytest.raises(ValueError, match=r"Known: utility.sigma\."):
        settings.apply({"env.size": "3"}, {"utility": ox.utilities.LogCoverage()})


def test_known_gives_present_values_under_dotted_names():
    shown = settings.known(targets(ox.REINFORCE(batch=7)))
    assert shown["batch"] == 7
    assert shown["utility.sigma"] == 0.125
    assert shown["problem.horizon"] is None
    assert settings.known({"utility": ox.utilities.Reward()}) == {}


def test_json_has_no_infinities(capsys):
    output.print_json({"a": [math.inf, -math.inf, math.nan, 1.5], "b": (1, None, True, "x")})
    printed = capsys.readouterr().out

    def refuse(constant):
        raise AssertionError(constant)

    values = json.loads(printed, parse_constant=refuse)
    assert values == {"a": ["Infinity", "-Infinity", "NaN", 1.5], "b": [1, None, True, "x"]}
    assert [float(text) for text in values["a"][:2]] == [math.inf, -math.inf]


def test_numbers_of_tables_have_three_digits(capsys):
    numbers = (-25.5227886, 500.0, 0.15, 0.0, -1.234e-5, 123456.7, 1234567.0)
    output.print_table("numbers", [{"x": number} for number in numbers])
    shown = re.findall(r"│ +(\S+) │", capsys.readouterr().out)
    assert shown == ["-25.5", "500", "0.150", "0", "-1.23e-05", "123,457", "1,234,567"]
