"""The command `occupax sweep`: ranking, page, resuming and errors."""

import json

import numpy as np
import pytest

import occupax as ox
from commands import ICE, SIZES, interrupt_after, occupax
from occupax.analysis.verdict import short
from occupax.exact.probabilities import probabilities
from occupax.training.setup import first_policy
from results import Page

BASE = (
    ICE,
    "--utility",
    "log-coverage",
    "--horizon",
    "10",
    "--seeds",
    "2",
    "--no-progress",
    *SIZES,
)
SWEEP = ("sweep", *BASE, "--over", "step_size=0.01,0.3", "radius=0.1,0.5", "--episodes", "40")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A sweep over four points: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("sweeps") / "done"
    code, out, err = occupax(*SWEEP, "--out", folder)
    assert (code, err) == (0, "")
    return folder, out


def test_the_ranking_has_a_row_for_each_point_the_best_first(done):
    folder, out = done
    rows = [
        [word.strip() for word in line.split("│")[1:-1]]
        for line in out.splitlines()
        if line.startswith("│")
    ]
    assert {(step_size, radius) for _, step_size, radius, _, _, _ in rows} == {
        (step_size, radius) for step_size in ("0.01", "0.3") for radius in ("0.1", "0.5")
    }
    scores = [float(row[0]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    for score, step_size, radius, learned, stopped, name in rows:
        result = ox.load_result(folder / name)
        assert score == short(np.mean(result.utilities))
        assert result.algorithm == ox.TSIVRPG(
            6, 4, 3, step_size=float(step_size), radius=float(radius), output="last"
        )
        assert (learned, stopped) == ("yes", "0")
    page = folder / "sweep.html"
    assert out.splitlines()[-2:] == [f"saved: {folder}", f"page: {page}"]
    cells = Page(page.read_text()).cells
    assert [cell for cell in cells if cell.startswith("point-")] == [row[-1] for row in rows]


def test_the_best_settings_can_be_pasted(done):
    _, out = done
    (line,) = (line for line in out.splitlines() if line.startswith("best: --set "))
    best = line.removeprefix("best: --set ").split()
    assert best[:3] == list(SIZES[3:])
    code, printed, _ = occupax("train", *BASE[:-4], "--set", *best, "--episodes", 40, "--json")
    assert code == 0
    score = np.mean([seed["utility"] for seed in json.loads(printed)["seeds"]])
    assert short(score) in next(line for line in out.splitlines() if line.startswith("│"))


def test_settings_of_policy_and_problem_are_swept_and_can_be_pasted(tmp_path):
    """Steps are too small to matter, so that the best policy is the best initial one."""
    base = (
        ICE,
        "--policy",
        "mlp",
        "--horizon",
        "10",
        "--no-progress",
        "--algorithm",
        "reinforce",
        "--restarts",
        "false",
    )
    over = (
        "--over",
        "policy.hidden=3,5x4",
        "policy.scale=0.5,3",
        "discount=0.5,0.9",
        "step_size=1e-9",
    )
    code, out, err = occupax("sweep", *base, *over, "--episodes", "20", "--json", "--out", tmp_path)
    assert (code, err) == (0, "")
    printed = json.loads(out)
    tried = {(*point["settings"].values(),) for point in map(flat, printed["points"])}
    assert tried == {
        (h, s, d, 1e-9) for h in ((3,), (5, 4)) for s in (0.5, 3.0) for d in (0.5, 0.9)
    }
    best = printed["points"][0]["settings"]
    widths = "x".join(map(str, best["policy.hidden"]))
    words = f"policy.hidden={widths} policy.scale={best['policy.scale']} "
    words += f"problem.discount={best['discount']}"
    assert printed["best"] in (None, f"restarts=false {words} step_size=1e-09")
    code, out, err = occupax(
        "train", *base, "--set", *words.split(), "step_size=1e-9", "--episodes", 20, "--json"
    )
    assert (code, err, json.loads(out)["discount"]) == (0, "", best["discount"])
    problem = ox.Problem(ICE, discount=0.99, horizon=10)
    policy = ox.policies.mlp(best["policy.hidden"], scale=best["policy.scale"])
    table = probabilities(problem, first_policy(problem, policy))
    assert printed["points"][0]["score"] == pytest.approx(ox.exact.value(problem, table), rel=1e-4)


def flat(point):
    """The point with widths that can be compared."""
    widths = tuple(point["settings"]["policy.hidden"])
    return {**point, "settings": {**point["settings"], "policy.hidden": widths}}


def test_what_learned_nothing_is_not_called_the_best():
    """Steps of a millionth of a logit: thirty of them do not come near a hundredth of the way."""
    still = (
        "sweep",
        *BASE,
        "rule=gradient",
        "baseline=none",
        "--over",
        "step_size=1e-9,1e-8",
        "--episodes",
        "130",
    )
    code, out, err = occupax(*still)
    assert (code, err) == (0, "")
    assert "best" not in out
    assert "no setting learned anything: none is clearly better" in out
    code, out, _ = occupax(*still, "--json")
    printed = json.loads(out)
    assert (code, printed["best"]) == (0, None)
    assert [point["learned"] for point in printed["points"]] == [False, False]


def test_an_interrupted_sweep_goes_on(done, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(1, patch)
        code, _, err = occupax(*SWEEP, "--out", tmp_path)
    assert (code, err) == (
        130,
        "occupax: stopped; repeat the command with --resume to resume it.\n",
    )
    code, _, err = occupax("train", "--out", tmp_path / "groups" / "0", "--resume")
    assert code == 2
    assert "is a part of a sweep: repeat the command that began it, with --resume." in err
    code, out, err = occupax(*SWEEP, "--out", tmp_path, "--resume", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert [point["score"] for point in printed["points"]] == pytest.approx(
        sorted(
            (point["score"] for point in json.loads((done[0] / "sweep.json").read_text())),
            reverse=True,
        )
    )
    assert printed["points"][0]["folder"].startswith(str(tmp_path))
    assert printed["best"].endswith(
        " ".join(f"{k}={v}" for k, v in printed["points"][0]["settings"].items())
    )
    for i in range(4):
        metrics = [
            (folder / f"point-{i}" / "metrics.csv").read_bytes() for folder in (tmp_path, done[0])
        ]
        assert metrics[0] == metrics[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((ICE, "--episodes", "200"), "--over"),
        ((ICE, "--over", "--episodes", "200"), "--over must name values to try"),
        ((ICE, "--over", "step_size=0.1"), "--episodes"),
        (("--over", "step_size=0.1", "--episodes", "200"), "ENV must be given"),
        ((ICE, "--over", "stepsize=0.1", "--episodes", "200"), "Did you mean 'step_size'?"),
        (
            (ICE, "--over", "utility.sigma=0.1", "--episodes", "200"),
            "setting 'utility.sigma' is not known",
        ),
        (
            (ICE, "--over", "step_size=0.1,,0.2", "--episodes", "200"),
            "setting 'step_size' must be none or a number, got ''.",
        ),
        (
            (ICE, "--over", "batch=10,0", "--episodes", "200"),
            "batch must be an integer of at least 1, got 0.",
        ),
        (
            (ICE, "--over", "batch=10", "--episodes", "0"),
            "episodes must be an integer of at least 1, got 0.",
        ),
        (
            (ICE, "--over", "batch=10", "--episodes", "200", "--out", __file__),
            "out must be a directory, but",
        ),
        (
            (ICE, "--over", "batch=10", "--episodes", "200", "--resume"),
            "resume must be False without out",
        ),
    ],
)
def test_mistakes_end_in_a_sentence_and_exit_code_2(arguments, said):
    code, out, err = occupax("sweep", *arguments)
    assert code == 2
    assert said in out + err
    assert "Traceback" not in out + err


def test_a_sweep_that_exists_is_not_begun_again(done):
    code, _, err = occupax(*SWEEP, "--out", done[0])
    assert code == 2
    assert "holds a run already" in err
