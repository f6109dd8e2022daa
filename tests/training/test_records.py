import re
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import enumeration as enum
import occupax as ox
from folders import reseal
from occupax.algorithms import Budget
from occupax.analysis import write_report
from occupax.analysis.describe import number
from occupax.exact.probabilities import probabilities
from occupax.io.records import RecordTable
from occupax.training import Logger, TensorBoard
from occupax.training.records import Records
from occupax.training.schedule import Schedule
from simulators import CALLS, Diary

PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 4, "batch": 2, "epoch_length": 3}
TSIVRPG = ox.TSIVRPG(**SIZES)
PLAIN = {"rule": "gradient", "baseline": "none"}


def train(algorithm=TSIVRPG, episodes=40, seeds=2, problem=PROBLEM, **options):
    settings = {"policy": ox.policies.tabular(0.5), "progress": False, **options}
    return ox.train(problem, algorithm, episodes, seeds, **settings)


def probs(policy):
    return enum.softmax(np.asarray(policy.table, float))


# Records of several iterations


@pytest.mark.parametrize("every", [2, 3, 7, 15, 100])
def test_a_record_is_what_its_iterations_were(every):
    single, joined = train(), train(record_every=every)  # 15 iterations
    drawn = np.array([4, 2, 2] * 5)
    starts = range(0, 15, every)
    np.testing.assert_array_equal(
        joined.episodes, [drawn[: start + every].sum() for start in starts]
    )
    np.testing.assert_array_equal(
        joined.steps, single.steps[:, [min(start + every, 15) - 1 for start in starts]]
    )
    for name, values in single.metrics.items():
        for j, start in enumerate(starts):
            part, weight = (
                values[:, start : start + every].astype(float),
                drawn[start : start + every],
            )
            expected = part.max(1) if name == "largest_weight" else part @ weight / weight.sum()
            np.testing.assert_allclose(
                joined.metrics[name][:, j], expected, rtol=1e-5, atol=1e-7, err_msg=name
            )
    for one, other in zip(single.policies, joined.policies, strict=True):
        np.testing.assert_array_equal(one.table, other.table)


def test_callbacks_are_given_all_that_a_record_has():
    """Names and numbers are those of the result, and docs/diagnosis.md explains every name."""
    seen: list[Any] = []
    result = train(callbacks=[seen.append], exact=True)
    np.testing.assert_array_equal([progress.episodes for progress in seen], result.episodes)
    np.testing.assert_array_equal([progress.metrics["steps"] for progress in seen], result.steps.T)
    for name, values in result.metrics.items():
        np.testing.assert_array_equal([progress.metrics[name] for progress in seen], values.T)
    page = (Path(__file__).parents[2] / "docs/diagnosis.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \|", page.partition("## Metrics")[2], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    # metrics of other algorithms, actions and problems
    others = {"mixture_utility", "redrawn", "tried", "actions_clipped", "feasible"}
    others |= {"explained_variance", "kl", "epochs", "ratio_clipped"}
    assert {"episodes", *seen[0].metrics} == set(listed) - others


def test_records_do_not_depend_on_how_iterations_come_in():
    random, budget = (
        np.random.default_rng(0),
        Schedule(ox.TSIVRPG(snapshot_batch=4, batch=2, epoch_length=3)),
    )
    rows = {"utility": random.normal(size=(20, 3)), "steps": random.integers(1, 9, (20, 3))}
    whole, parts = Records(6, budget), Records(6, budget)
    whole.add(rows)
    first, given = 0, []
    for count in (1, 1, 5, 4, 6, 3):
        given.append(
            parts.add({name: column[first : first + count] for name, column in rows.items()})
        )
        first += count
        restored = Records(6, budget)  # as if interrupted here
        restored.restore(parts.arrays(), first, 3)
        parts = restored
    assert [0 if table is None else len(table.episodes) for table in given] == [0, 0, 1, 0, 1, 1]
    for complete, count in ((False, 4), (True, 3)):
        one, other = whole.table(complete), parts.table(complete)
        assert len(one.episodes) == count
        np.testing.assert_equal(one._asdict(), other._asdict())


# Exact values


def test_exact_records_are_the_values_and_gaps_of_the_policies():
    seen = []

    def look(progress):
        seen.append([ox.exact.certificate(PROBLEM, probs(policy)) for policy in progress.policies])

    result = train(ox.REINFORCE(batch=4), 24, record_every=2, exact=True, callbacks=[look])
    assert result.metrics["exact_utility"].dtype == result.metrics["gap"].dtype == np.float64
    for j, certificates in enumerate(seen):
        for i, certificate in enumerate(certificates):
            assert result.metrics["exact_utility"][i, j] == pytest.approx(
                certificate.value, abs=1e-12
            )
            assert result.metrics["gap"][i, j] == pytest.approx(certificate.gap, abs=1e-9)
    for i, policy in enumerate(result.policies):
        assert result.metrics["exact_utility"][i, -1] == pytest.approx(
            ox.exact.value(PROBLEM, probs(policy)), abs=1e-12
        )
        assert result.utilities[i] == result.metrics["exact_utility"][i, -1]
    assert (result.metrics["gap"] > 0).all()
    plain = train(ox.REINFORCE(batch=4), 24, record_every=2)
    np.testing.assert_array_equal(
        plain.metrics["utility"], result.metrics["utility"]
    )  # looking changes nothing


def test_the_last_record_is_exact_even_if_it_is_not_full():
    result = train(ox.REINFORCE(batch=4), 20, record_every=2, exact=True)  # 5 iterations
    assert result.episodes.tolist() == [8, 16, 20]
    for i, policy in enumerate(result.policies):
        assert result.metrics["exact_utility"][i, -1] == pytest.approx(
            ox.exact.value(PROBLEM, probs(policy)), abs=1e-12
        )


def test_a_mixture_has_a_utility_of_its_own():
    result = train(ox.MaxEnt(batch=4, mixing=0.5, step_size=0.5), 24, seeds=1)
    assert "mixture_utility" not in train().metrics
    utility, mixed = result.metrics["utility"][0], result.metrics["mixture_utility"][0]
    assert mixed[0] == utility[0]  # the first policy has all of it
    assert (mixed[1:] != utility[1:]).any()


# Functions of the user's own


def squares(u):
    return -jnp.sum((u - 1.0) ** 2)


def breaks(u):
    """Is not a number once too much of the third state is seen."""
    return jnp.where(u[2] > 1.9, jnp.nan, 1.0) * jnp.log(u + 0.1).sum()


def of_states(function, concave=False):
    utility = ox.utilities.Custom(function, features=ox.features.State(), concave=concave)
    return ox.Problem(enum.tiny(11, ()).problem("episodic").env, utility, discount=0.9, horizon=4)


def test_a_function_trains_and_is_saved_and_loaded(tmp_path):
    problem = of_states(squares, concave=True)
    result = train(ox.REINFORCE(batch=4), 24, problem=problem, exact=True, out=tmp_path)
    loaded = ox.load_result(tmp_path)
    assert loaded.problem is None
    with pytest.raises(
        ValueError, match=r"the problem cannot be restored.*load_result\(folder, problem=...\)"
    ):
        loaded.certificate()
    # what was known at the end of training is known again
    np.testing.assert_array_equal(loaded.utilities, result.utilities)
    np.testing.assert_array_equal(loaded.utilities, result.metrics["exact_utility"][:, -1])
    np.testing.assert_array_equal(loaded.assessment.gaps, result.metrics["gap"][:, -1])
    tables = [probabilities(problem, policy) for policy in result.policies]
    visits = [ox.exact.occupancy(problem, table).sum(1) for table in tables]
    np.testing.assert_allclose(np.asarray(loaded.assessment.visits), visits)
    np.testing.assert_array_equal(loaded.policy().table, result.policy().table)
    complete = ox.load_result(tmp_path, problem=problem)
    assert complete.certificate(seed=1).gap == result.certificate(seed=1).gap
    np.testing.assert_array_equal(complete.utilities, result.utilities)


def test_the_report_of_a_run_shows_what_was_known_when_it_ended(tmp_path):
    # a utility of one's own, which no file can restore: the page once showed the estimate of the
    # last record instead
    result = train(
        ox.REINFORCE(batch=4), 24, problem=of_states(squares, concave=True), out=tmp_path / "run"
    )
    write_report([("run", ox.load_result(tmp_path / "run"))], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Utility: exact." in " ".join(page.split())
    for exact, estimate in zip(result.utilities, result.metrics["utility"][:, -1], strict=True):
        assert f">{number(exact)}<" in page
        assert number(exact) != number(estimate)
    assert f">{number(result.certificate(seed=1).gap)}<" in page
    (tmp_path / "run" / "assessment.safetensors").unlink()
    write_report([("run", ox.load_result(tmp_path / "run"))], tmp_path / "page.html")
    assert (
        "not known, because the problem cannot be restored" in (tmp_path / "page.html").read_text()
    )


def test_the_report_of_a_simulator_says_how_many_episodes_were_played(tmp_path):
    problem = ox.Problem(ox.GymnasiumEnv(Diary), horizon=2)
    CALLS.clear()
    result = ox.train(
        problem, ox.REINFORCE(batch=2), 2, policy=ox.policies.linear(), progress=False
    )
    played = sum(call[0] == "reset" for call in CALLS)
    write_report([("run", result)], tmp_path / "page.html")
    assert "estimate from 100 new episodes" in (tmp_path / "page.html").read_text()
    estimates = 2 * 100  # of the trained policy and of the initial one
    density = 2 * 10
    assert sum(call[0] == "reset" for call in CALLS) - played == estimates + density


def test_a_running_estimate_is_not_taken_for_the_utility():
    # steps so long that weights mean nothing: the running estimate of a reward that is never
    # negative is negative
    problem = ox.Problem(
        ox.make("FrozenLake-v1"), ox.utilities.Linear(np.arange(64) / 64), discount=0.95, horizon=20
    )
    algorithm = ox.SRVRPG(
        snapshot_batch=6, batch=4, epoch_length=10, step_size=3.0, **PLAIN, weight_guard=None
    )
    result = train(algorithm, 420, 3, problem, policy=None)
    assert result.metrics["running_utility"].min() < -0.5
    assert result.metrics["utility"].min() > 0


def test_a_function_that_is_not_concave_has_no_gap():
    result = train(ox.REINFORCE(batch=4), 24, problem=of_states(squares), exact=True)
    assert "gap" not in result.metrics
    assert np.isfinite(result.metrics["exact_utility"]).all()


# Numbers that are not finite


def test_a_seed_that_breaks_stops_at_its_last_good_iterate_and_alone():
    problem, algorithm = (
        of_states(breaks),
        ox.REINFORCE(batch=4, step_size=0.3, mixing=1.0, **PLAIN),
    )
    seeds = list(range(8))
    result = train(algorithm, 40, seeds, problem)
    broken = [seed for seed in seeds if result.status[seed] != "finished"]
    fine = [seed for seed in seeds if seed not in broken]
    assert len(broken) > 1
    assert len(fine) > 1
    path = [[] for _ in seeds]
    train(
        algorithm,
        40,
        seeds,
        problem,
        callbacks=[lambda it: [p.append(q) for p, q in zip(path, it.policies, strict=True)]],
    )
    for seed in broken:
        bad = np.isnan(result.metrics["utility"][seed])
        first = int(bad.argmax())
        assert (
            result.status[seed]
            == f"stopped at iteration {first}: the gradient estimate is not finite"
        )
        assert bad[first:].all()
        for name, values in result.metrics.items():
            assert np.isfinite(values[seed, :first]).all(), name
            assert np.isnan(values[seed, first:]).all(), name
        assert (np.diff(result.steps[seed, max(first - 1, 0) :]) == 0).all()
        if first > 0:
            np.testing.assert_array_equal(result.policies[seed].table, path[seed][first - 1].table)
            alone = train(algorithm, 4 * first, [seed], problem)
            np.testing.assert_array_equal(result.policies[seed].table, alone.policies[0].table)
        assert np.isfinite(result.policies[seed].table).all()
    assert any(
        np.isfinite(result.metrics["utility"][seed, 0]) for seed in broken
    )  # not all from the beginning on
    others = train(algorithm, 40, fine, problem)
    for i, seed in enumerate(fine):
        assert (
            np.asarray(others.policies[i].table).tobytes()
            == np.asarray(result.policies[seed].table).tobytes()
        )
        for name, values in result.metrics.items():
            assert others.metrics[name][i].tobytes() == values[seed].tobytes(), name


def test_a_seed_that_begins_with_no_number_spoils_nothing(tmp_path):
    bad = [False, True, False]

    def source(env, key):
        policy = ox.policies.tabular(0.5)(env, key)
        return ox.policies.Tabular(policy.table * jnp.nan) if bad.pop(0) else policy

    result = train(ox.REINFORCE(batch=4), 24, 3, policy=source, exact=True, out=tmp_path)
    assert result.status[1] == "stopped at iteration 0: the gradient estimate is not finite"
    assert np.isnan(result.metrics["utility"][1]).all()
    assert np.isnan(result.metrics["exact_utility"][1]).all()
    clean = train(ox.REINFORCE(batch=4), 24, 3, exact=True)
    for seed in (0, 2):
        np.testing.assert_array_equal(result.policies[seed].table, clean.policies[seed].table)
        np.testing.assert_array_equal(
            result.metrics["exact_utility"][seed], clean.metrics["exact_utility"][seed]
        )
    np.testing.assert_array_equal(np.isnan(result.utilities), [False, True, False])
    best = result.policies[int(np.nanargmax(clean.utilities * [1, np.nan, 1]))]
    assert result.best_policy.table is best.table
    loaded = ox.load_result(tmp_path)
    assert loaded.status == result.status
    np.testing.assert_array_equal(loaded.metrics["utility"], result.metrics["utility"])


# Files


@pytest.mark.parametrize("double", [False, True])
def test_saved_results_are_the_same_in_every_bit(tmp_path, double):
    with jax.enable_x64(double):
        result = train(ox.REINFORCE(batch=4), 24, seeds=[4, 0, 9], exact=True, record_every=2)
        result.save(tmp_path / "first")
        loaded = ox.load_result(tmp_path / "first")
        loaded.save(tmp_path / "second")
    assert loaded.seeds == (4, 0, 9)
    assert loaded.status == result.status
    assert loaded.seconds == result.seconds
    assert loaded.config == result.config
    for name in ("episodes", "steps"):
        one, other = getattr(loaded, name), getattr(result, name)
        assert one.dtype == other.dtype == np.int64
        np.testing.assert_array_equal(one, other)
    assert list(loaded.metrics) == list(result.metrics)
    for name, values in result.metrics.items():
        assert values.dtype == (
            np.float64 if double or name in ("exact_utility", "gap") else np.float32
        )
        assert loaded.metrics[name].dtype == values.dtype
        assert loaded.metrics[name].tobytes() == values.tobytes(), name
    for one, other in zip(loaded.policies, result.policies, strict=True):
        assert one.table.dtype == other.table.dtype
        np.testing.assert_array_equal(one.table, other.table)
    texts = [(tmp_path / folder / "metrics.csv").read_bytes() for folder in ("first", "second")]
    assert texts[0] == texts[1]


def test_a_run_that_is_not_finished_or_not_whole_is_not_loaded(tmp_path):
    with pytest.raises(ValueError, match=r"is not the directory of a run: it has no config\.json"):
        ox.load_result(tmp_path / "nowhere")
    train(out=tmp_path)
    csv = tmp_path / "metrics.csv"
    whole = csv.read_bytes()
    for cut in (1, 3, 40, len(whole) - 5, len(whole)):
        csv.write_bytes(whole[:-cut])
        with pytest.raises(ValueError, match=r"metrics\.csv was changed after it was written"):
            ox.load_result(tmp_path)
        reseal(tmp_path)  # even if all checksums are right
        with pytest.raises(ValueError, match=r"metrics\.csv must be a complete file of records"):
            ox.load_result(tmp_path)
    (tmp_path / "summary.json").unlink()
    with pytest.raises(ValueError, match="holds a run that is not finished: resume it first"):
        ox.load_result(tmp_path)


# Who is told


@pytest.mark.parametrize("every", [1, 3])
def test_callbacks_are_told_every_record_once(every):
    seen_progress = []
    result = train(record_every=every, callbacks=[seen_progress.append])
    assert [progress.episodes for progress in seen_progress] == result.episodes.tolist()
    assert {progress.budget for progress in seen_progress} == {Budget(episodes=40)}
    for j, progress in enumerate(seen_progress):
        for name, values in result.metrics.items():
            np.testing.assert_array_equal(progress.metrics[name], values[:, j])
    for i, policy in enumerate(seen_progress[-1].policies):
        np.testing.assert_array_equal(policy.table, result.policies[i].table)
    alone = train(episodes=int(result.episodes[0]), record_every=every)
    np.testing.assert_array_equal(seen_progress[0].policies[0].table, alone.policies[0].table)


@pytest.mark.parametrize("yes", [True, np.True_, np.bool_(1)])
def test_a_callback_ends_training_by_saying_true(tmp_path, yes):
    result = train(
        callbacks=[lambda progress: yes if progress.episodes >= 12 else np.False_, lambda _: 1],
        out=tmp_path,
    )
    assert result.episodes.tolist() == [4, 6, 8, 12]
    whole, resumed = train(), train(out=tmp_path, resume=True)
    np.testing.assert_array_equal(whole.metrics["utility"], resumed.metrics["utility"])


class Listener(Logger):
    def __init__(self):
        self.heard = []

    def open(self, seeds, budget, table):
        self.heard.append(("open", list(seeds), budget.episodes, len(table.episodes)))

    def log(self, table):
        self.heard += [("record", int(episodes)) for episodes in table.episodes]

    def close(self):
        self.heard.append(("close",))


def test_loggers_are_opened_told_and_closed_whatever_happens(tmp_path):
    listener = Listener()
    train(episodes=12, callbacks=[listener], out=tmp_path)
    assert listener.heard == [
        ("open", [0, 1], 12, 0),
        *(("record", n) for n in (4, 6, 8, 12)),
        ("close",),
    ]

    def fail(_):
        raise RuntimeError("enough")

    listener = Listener()
    with pytest.raises(RuntimeError, match="enough"):
        train(episodes=20, callbacks=[listener, fail], out=tmp_path, resume=True)
    assert listener.heard == [("open", [0, 1], 20, 4), ("record", 14), ("close",)]


def test_the_console_shows_what_is_going_on(capsys):
    train(progress=True)
    assert capsys.readouterr().out == ""  # the standard output is left to the user


def scalars(folder):
    """Return the (step, value) pairs of each name in the event files of a folder.

    A file is a sequence of records: the length in 8 bytes, its checksum in 4, an event, and the
    checksum of the event in 4. An event that starts a session hides earlier events of later steps.
    """
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    found = {}
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        while content:
            stop = 12 + int.from_bytes(content[:8], "little")
            if stop + 4 > len(content):
                break
            event = Event.FromString(content[12:stop])
            if event.session_log.status == SessionLog.START:
                for name, pairs in found.items():
                    found[name] = [pair for pair in pairs if pair[0] < event.step]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
            content = content[stop + 4 :]
    return found


def test_tensorboard_is_given_every_number(tmp_path):
    pytest.importorskip("tensorboardX")
    result = train(callbacks=[TensorBoard(tmp_path)], episodes=12)
    for i in (0, 1):
        found = scalars(tmp_path / f"seed-{i}")
        assert found.keys() == result.metrics.keys()
        for name, pairs in found.items():
            steps, values = zip(*pairs, strict=True)
            assert list(steps) == result.episodes.tolist()
            np.testing.assert_allclose(values, result.metrics[name][i], rtol=1e-6)


def test_tensorboard_has_every_record_once_after_a_resume(tmp_path):
    pytest.importorskip("tensorboardX")
    given = {"out": tmp_path / "run", "callbacks": [TensorBoard(tmp_path / "board")]}
    train(episodes=12, **given)
    (lost,) = (tmp_path / "board/seed-1").iterdir()
    lost.write_bytes(lost.read_bytes()[:-5])  # as if the process had been killed while it wrote
    result = train(episodes=24, resume=True, **given)
    for i in (0, 1):
        for name, pairs in scalars(tmp_path / f"board/seed-{i}").items():
            assert [step for step, _ in sorted(pairs)] == result.episodes.tolist(), name
    again = train(
        episodes=12, callbacks=[TensorBoard(tmp_path / "board")]
    )  # another training in the same folder
    assert len(scalars(tmp_path / "board/seed-0")["utility"]) == len(result.episodes) + len(
        again.episodes
    )


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_is_given_every_number(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra wandb")
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
    logger = ox.training.WeightsAndBiases(
        "lake", mode="offline", dir=str(tmp_path), settings=settings
    )
    table = RecordTable(
        np.array([10, 20]), np.array([[31, 62]]), {"utility": np.array([[0.12345, np.nan]])}
    )
    logger.open([7], 100, table)
    logger.log(RecordTable(np.array([30]), np.array([[93]]), {"utility": np.array([[0.54321]])}))
    logger.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    texts, late = (b"utility", b"0.12345", b"0.54321", b"seed-7", b"93"), time.monotonic() + 60
    content = file.read_bytes()
    while not all(text in content for text in texts) and time.monotonic() < late:
        time.sleep(0.1)  # another process of wandb writes the file
        content = file.read_bytes()
    assert all(text in content for text in texts)
    assert b"NaN" not in content
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"needs wandb: install occupax\[wandb\]"):
        ox.training.WeightsAndBiases("lake")


def test_the_logger_for_mlflow_that_is_printed_works(monkeypatch):
    """With a stand-in for MLflow that keeps what it is given."""
    page = (Path(__file__).parents[2] / "docs/training.md").read_text()
    code = page.partition("```py\n")[2].partition("```")[0]
    logged: list[Any] = []
    stand_in = ModuleType("mlflow")
    vars(stand_in).update(
        start_run=lambda: logged.append("start"), end_run=lambda: logged.append("end")
    )
    vars(stand_in).update(
        log_metrics=lambda metrics, step: logged.append((metrics["utility"], step))
    )
    monkeypatch.setitem(sys.modules, "mlflow", stand_in)
    found: dict[str, Any] = {"ox": ox}
    exec(code, found)  # noqa: S102
    result = train(callbacks=[found["MLflow"]()], episodes=12)
    means = result.metrics["utility"].mean(0)
    assert logged[0] == "start"
    assert logged[-1] == "end"
    assert logged[1:-1] == [
        (pytest.approx(mean), step) for mean, step in zip(means, result.episodes, strict=True)
    ]


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboardX"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"needs tensorboardX: install occupax\[tensorboard\]"):
        TensorBoard(tmp_path)
