"""Invalid input of the command line and of Python: each one must give a proper error message."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import occupax as ox
from occupax import cli
from occupax.training.trackers import TensorBoard

CHAIN = ox.TabularMDP.chain(3)
PROBLEM = ox.Problem(CHAIN, horizon=4)
TARGET, COSTS = np.full(3, 1 / 3), np.arange(6.0).reshape(3, 2)
UNIFORM = ox.policies.Tabular(jnp.zeros((3, 2)))
LIMITED = ox.Problem(CHAIN, horizon=4, constraints=[ox.Constraint(COSTS, at_most=90.0)])
PROBS = np.full((3, 2), 0.5)
CARTPOLE = ox.make("CartPole-v1")
NETWORK = ox.policies.mlp((2,))(CARTPOLE, jax.random.key(0)).for_env(CARTPOLE)
WORDS = [
    "",
    " ",
    "-1",
    "0",
    "nan",
    "inf",
    "1e30",
    "1.5",
    "x",
    "None",
    "[]",
    "1,2",
    "--",
    "\0",
    "é",
    "9" * 40,
]
NUMBERS = ("--horizon", "--episodes", "--seeds", "--record-every")
FINE = {
    "step_size": ("None", "0", "1.5", "1e30", "9" * 40),
    "radius": ("0", "inf", "1.5", "1e30", "9" * 40),
    "utility.sigma": ("1.5", "1e30", "9" * 40),
}
"""Words that mean something."""
TRAIN = ("train", "FrozenLake-v1", "--episodes", "20", "--horizon", "5")


def commands() -> Iterator[tuple[str, ...]]:
    """Command lines that mean nothing."""
    for option, word in product(NUMBERS, WORDS):
        yield (*TRAIN, option, word)
    for option, word in product(
        ("--utility", "--algorithm", "--policy", "--termination", "--workers"), WORDS
    ):
        if word not in ("None", *(("1e30", "9" * 40) if option == "--workers" else ())):
            yield (*TRAIN, option, word)
    for word in WORDS:
        yield (*TRAIN, "--discount", {"0": "1", "1.5": "1.5"}.get(word, word))
        yield ("train", word, "--episodes", "20")
        yield ("solve", word)
        yield ("evaluate", word, "FrozenLake-v1")
        yield ("report", word)
        yield ("check-env", word)
        if word != "--":
            yield (*TRAIN, "--set", word)
    for name, word in product(
        ("step_size", "radius", "batch", "rule", "utility.sigma", "output"), WORDS
    ):
        if word not in FINE.get(name, ("None",)):
            yield (*TRAIN, "--utility", "log-coverage", "--set", f"{name}={word}")
    for word in ("maybe", "-1", "1.5", "None"):
        yield (*TRAIN, "--set", f"env.is_slippery={word}")
    yield from (("",), ("tarin",), ("train",), ("--frobnicate",), ("train", "--resume"))
    yield ("train", "--out", "/dev/null")
    yield ("train", "FrozenLake-v1", "--episodes", "20", "--out", "/dev/null/run")
    yield ("train", "--out", "/proc", "--resume")
    yield ("report", "/dev/null")
    yield ("evaluate", "/dev/zero", "FrozenLake-v1")


BAD: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1.5,
        float("nan"),
        float("inf"),
        10**30,
        "",
        "x",
        [],
        {},
        (),
        object(),
        b"1",
        1j,
    ),
    *(np.nan, print, np.complex64(1j), np.full((3, 2), 0.5 + 1j)),
]
NUMBERS_FINE = tuple(it for it in BAD if isinstance(it, int | float) and it != 10**30)
"""Numbers that a function may return."""
TINY = 1e-300


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of Python that mean nothing, with a name."""
    kinds: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
        "Problem(discount=)": (lambda it: ox.Problem(CHAIN, horizon=4, discount=it), (0,)),
        "Problem(horizon=)": (lambda it: ox.Problem(CHAIN, horizon=it), (None,)),
        "Problem(termination=)": (lambda it: ox.Problem(CHAIN, horizon=4, termination=it), ()),
        "Problem(env=)": (lambda it: ox.Problem(it, horizon=4), ()),
        "REINFORCE(batch=)": (lambda it: ox.REINFORCE(batch=it), (None,)),
        "REINFORCE(step_size=)": (lambda it: ox.REINFORCE(step_size=it), (None, 0, 1.5, 10**30)),
        "REINFORCE(radius=)": (lambda it: ox.REINFORCE(radius=it), (0, 1.5, float("inf"), 10**30)),
        "TSIVRPG(epoch_length=)": (lambda it: ox.TSIVRPG(epoch_length=it), ()),
        "LogCoverage(sigma=)": (ox.utilities.LogCoverage, (1.5, 10**30)),
        "Entropy(smoothing=)": (ox.utilities.Entropy, (0, 1.5, 10**30)),
        "KL(target=)": (ox.utilities.KL, ()),
        "KL(smoothing=)": (lambda it: ox.utilities.KL(TARGET, it), (1.5, 10**30)),
        "KL(scale=)": (lambda it: ox.utilities.KL(TARGET, scale=it), (None, 1.5, 10**30)),
        "ForwardKL(features=)": (
            lambda it: ox.utilities.ForwardKL(TARGET, features=it),
            (None, print),
        ),
        "SoftMin(temperature=)": (
            lambda it: ox.utilities.SoftMin(COSTS, temperature=it),
            (1.5, 10**30),
        ),
        "SoftMin(rewards=)": (ox.utilities.SoftMin, (print,)),
        "NashWelfare(sigma=)": (
            lambda it: ox.utilities.NashWelfare(COSTS, sigma=it),
            (1.5, 10**30),
        ),
        "NashWelfare(weights=)": (lambda it: ox.utilities.NashWelfare(COSTS, weights=it), (None,)),
        "LogDet(regressors=)": (ox.utilities.LogDet, (print,)),
        "LogDet(sigma=)": (lambda it: ox.utilities.LogDet(COSTS[..., None], it), (1.5, 10**30)),
        "Constraint(subject=)": (lambda it: ox.Constraint(it, at_most=1.0), (print,)),
        "Constraint(at_most=)": (lambda it: ox.Constraint(COSTS, at_most=it), (-1, 0, 1.5, 10**30)),
        "Constraint(name=)": (lambda it: ox.Constraint(COSTS, at_most=1.0, name=it), (None, "x")),
        "Problem(constraints=)": (
            lambda it: ox.Problem(CHAIN, horizon=4, constraints=it),
            ([], ()),
        ),
        "REINFORCE(mixing=)": (lambda it: ox.REINFORCE(mixing=it), (None,)),
        "REINFORCE(decay_after=)": (
            lambda it: ox.REINFORCE(decay_after=it),
            (None, 1.5, float("inf"), 10**30),
        ),
        "HSPGA(mixing=)": (lambda it: ox.HSPGA(mixing=it), (None, 0)),
        "MaxEnt(mixing=)": (lambda it: ox.MaxEnt(mixing=it), ()),
        "STORM(fresh=)": (lambda it: ox.STORM(fresh=it), ()),
        "PAGE(coin=)": (lambda it: ox.PAGE(coin=it), (0,)),
        "NVRPG(decay=)": (lambda it: ox.NVRPG(decay=it), ()),
        "NHARPG(step_decay=)": (lambda it: ox.NHARPG(step_decay=it), ()),
        "PlugIn(prior=)": (lambda it: ox.PlugIn(prior=it), (1.5, 10**30)),
        "PlugIn(explore=)": (lambda it: ox.PlugIn(explore=it), (0,)),
        "PlugIn(growth=)": (lambda it: ox.PlugIn(growth=it), (1.5, 10**30)),
        "PlugIn(plan_steps=)": (lambda it: ox.PlugIn(plan_steps=it), ()),
        "LQR(drift=)": (lambda it: ox.envs.LQR(it, np.ones((2, 1)), np.eye(2), np.eye(1)), ()),
        "LQR(action_cost=)": (
            lambda it: ox.envs.LQR(np.eye(2), np.ones((2, 1)), np.eye(2), it),
            (),
        ),
        "LQR(noise=)": (
            lambda it: ox.envs.LQR(np.eye(2), np.ones((2, 1)), np.eye(2), np.eye(1), it),
            (None,),
        ),
        "LQR.random(states=)": (lambda it: ox.envs.LQR.random(it, 1), ()),
        "Grid(bins=)": (lambda it: ox.features.Grid([0.0], [1.0], [it]), ()),
        "Grid(low=)": (lambda it: ox.features.Grid([it], [1.0], [2]), (-1, 0, True)),
        "Table(values=)": (ox.features.Table, ()),
        "Info(name=)": (ox.features.Info, ("", "x")),
        "Stack(part=)": (ox.features.Stack, (print,)),
        "gaussian(hidden=)": (ox.policies.gaussian, ([], {}, (), b"1", "")),
        "gaussian(deviation=)": (lambda it: ox.policies.gaussian((), deviation=it), (1.5, 10**30)),
        "cnn(channels=)": (ox.policies.cnn, ([], {}, (), b"1", "")),
        "evaluate(episodes=)": (lambda it: ox.evaluate(UNIFORM, CHAIN, it, max_steps=4), (10**30,)),
        "evaluate(policy=)": (lambda it: ox.evaluate(it, CHAIN, 2, max_steps=4), ()),
        "solve(problem=)": (ox.solve, ()),
        "solve(tolerance=)": (lambda it: ox.solve(PROBLEM, tolerance=it), (1.5, 10**30)),
        "Ray(workers=)": (lambda it: ox.samplers.Ray(workers=it), (None,)),
        "Ray(patience=)": (lambda it: ox.samplers.Ray(patience=it), (1.5, 10**30)),
        "Host(timeout=)": (lambda it: ox.samplers.Host(timeout=it), (1.5, 10**30)),
        "train(sampler=)": (
            lambda it: ox.train(PROBLEM, ox.REINFORCE(batch=4), 4, sampler=it, progress=False),
            (),
        ),
        "train(algorithm=)": (lambda it: ox.train(PROBLEM, it, 4, progress=False), (None,)),
        "TabularMDP.chain(n=)": (ox.TabularMDP.chain, ()),
        "Tabular(table=)": (ox.policies.Tabular, ()),
        "tabular(scale=)": (ox.policies.tabular, (0, 1.5, 10**30)),
        "mlp(hidden=)": (ox.policies.mlp, ([], {}, (), b"1", "")),
        "sample(n=)": (
            lambda it: ox.sample(PROBLEM, UNIFORM, it, jax.random.key(0)),
            (),
        ),
        "train(episodes=)": (
            lambda it: ox.train(PROBLEM, ox.REINFORCE(batch=4), it, progress=False),
            (10**30,),
        ),
        "train(seeds=)": (
            lambda it: ox.train(PROBLEM, ox.REINFORCE(batch=4), 4, seeds=it, progress=False),
            (),
        ),
        "sweep(over=)": (
            lambda it: ox.sweep(
                PROBLEM, ox.REINFORCE(batch=4), {"step_size": it}, 4, progress=False
            ),
            (b"1",),
        ),
        "train(policy=)": (
            lambda it: ox.train(PROBLEM, ox.REINFORCE(batch=4), 4, policy=it, progress=False),
            (None,),
        ),
        "train(out=)": (
            lambda it: ox.train(PROBLEM, ox.REINFORCE(batch=4), 4, out=it, progress=False),
            (None, "x"),
        ),
        "load_result": (ox.load_result, ()),
        "load_policy": (ox.load_policy, ()),
        "make": (ox.make, ()),
        "check_env(env=)": (ox.check_env, (print,)),
        "demonstrations(env=)": (lambda it: ox.demonstrations(it, [[(0, 1)]]), ()),
        "demonstrations(source=)": (lambda it: ox.demonstrations(CHAIN, it), ()),
        "demonstrations(episode=)": (lambda it: ox.demonstrations(CHAIN, [it]), ()),
        "demonstrations(observation=)": (
            lambda it: ox.demonstrations(CHAIN, [[(it, 1)]]),
            (True, 0),
        ),
        "demonstrations(action=)": (lambda it: ox.demonstrations(CHAIN, [[(0, it)]]), (True, 0)),
        "demonstrations(features=)": (
            lambda it: ox.demonstrations(CHAIN, [[(0, 1)]], features=it),
            (None,),
        ),
        "predict(a state)": (UNIFORM.for_env(CHAIN).predict, (0, [], ())),
        "predict(numbers)": (NETWORK.predict, ()),
        "for_env(env=)": (NETWORK.for_env, ()),
        "record(policy=)": (lambda it: ox.record(it, "CartPole-v1", "a.gif", max_steps=1), ()),
        "record(env=)": (lambda it: ox.record(NETWORK, it, "a.gif", max_steps=1), ()),
        "record(path=)": (lambda it: ox.record(NETWORK, "CartPole-v1", it, max_steps=1), ()),
        "record(fps=)": (
            lambda it: ox.record(NETWORK, "CartPole-v1", "a.gif", max_steps=1, fps=it),
            (None, 1.5),
        ),
        "StableBaselinesPolicy(policy=)": (ox.policies.StableBaselinesPolicy, ()),
        "save_policy(policy=)": (lambda it: ox.save_policy(it, "policy.safetensors"), ()),
        "save_policy(path=)": (lambda it: ox.save_policy(UNIFORM, it), ("x",)),
        "TensorBoard(folder=)": (TensorBoard, ("x",)),
        "Softmax(logits=)": (_with_logits, ()),
        "Function(value=)": (_with_feature, NUMBERS_FINE),
        "Custom(value=)": (lambda it: ox.Problem(CHAIN, lambda _: it, horizon=4), NUMBERS_FINE),
        "certificate(probs=)": (lambda it: ox.exact.certificate(PROBLEM, it), ()),
        "certificate(multipliers=)": (lambda it: ox.exact.certificate(LIMITED, PROBS, it), (None,)),
        "Evaluator.values(tables=)": (ox.exact.Evaluator(PROBLEM).values, ()),
        "lqr.optimum(problem=)": (ox.exact.lqr.optimum, ()),
        "make(info=)": (lambda it: ox.make("CartPole-v1", info=it), ([], {}, ())),
        "make(gymnax, info=)": (lambda it: ox.make("gymnax/CartPole-v1", info=it), ([], {}, ())),
        "make(backend=)": (lambda it: ox.make("CartPole-v1", backend=it), ()),
        "bench.run(algorithms=)": (
            lambda it: ox.bench.run("bench", it, progress=False),
            (None, {}),
        ),
        "bench.run(name=)": (
            lambda it: ox.bench.run("bench", _named(it), progress=False),
            ("x", [], {}),
        ),
        "from_gymnax(env=)": (ox.from_gymnax, ()),
        "BoxActions(low=)": (lambda it: ox.envs.BoxActions(it, [1.0]), ()),
        "Ball(center=)": (lambda it: ox.utilities.Ball(it, 1.0), ()),
        "optax update": (lambda it: _with_rule(lambda *_: it), ()),
        "optax direction": (lambda it: _with_rule(lambda *_: (it, ())), ()),
    }
    for name, (call, fine) in kinds.items():
        for value in BAD:
            if not any(value is it or (type(value) is type(it) and value == it) for it in fine):
                yield f"{name} {value!r:.30}", lambda call=call, value=value: call(value)
    yield "sweep(over=) of 10^9 points", lambda: kinds["sweep(over=)"][0](range(10**9))
    yield from MISFITS.items()


def _with_logits(logits: Any) -> Any:
    return ox.sample(PROBLEM, ox.policies.Softmax(lambda _: logits), 2, jax.random.key(0))


def _with_feature(value: Any) -> Any:
    return ox.Problem(CHAIN, jnp.sum, horizon=4, features=lambda *_: value)


def _named(name: Any) -> dict[Any, None]:
    """Return algorithms with an invalid name, as an empty string where the name is no key."""
    try:
        return {name: None}
    except TypeError:
        return {"": None}


def _with_rule(update: Any) -> Any:
    rule = optax.GradientTransformation(lambda _: (), update)
    return ox.train(PROBLEM, ox.REINFORCE(batch=2, rule=rule), 4, progress=False)


def _optimum(system: Any) -> Any:
    return ox.exact.lqr.optimum(ox.Problem(system, discount=0.9))


MISFITS: dict[str, Callable[[], Any]] = {
    "a table for another table": lambda: UNIFORM.for_env("FrozenLake-v1"),
    "a network for other observations": lambda: NETWORK.for_env("Acrobot-v1"),
    "discrete actions for a box": lambda: NETWORK.for_env("Pendulum-v1"),
    "a recorded table": lambda: ox.record(UNIFORM, "FrozenLake-v1", "a.gif", max_steps=1),
    "a recorded network": lambda: ox.record(NETWORK, "Acrobot-v1", "a.gif", max_steps=1),
    "hardly any frames": lambda: ox.record(NETWORK, "CartPole-v1", "a.gif", max_steps=1, fps=1e-9),
    "very many frames": lambda: ox.record(NETWORK, "CartPole-v1", "a.mp4", max_steps=1, fps=1e12),
    "gymnax in Gymnasium": lambda: ox.make("gymnax/CartPole-v1", backend="gymnasium"),
    "demonstrated rewards": lambda: ox.demonstrations(
        CHAIN, [[(0, 1)]], features=ox.features.Reward()
    ),
    "an unstabilisable system": lambda: _optimum(
        ox.envs.LQR(2 * np.eye(2), [[1.0], [0.0]], np.eye(2), np.eye(1))
    ),
    "a system that diverges at no cost": lambda: _optimum(
        ox.envs.LQR([[2.0]], [[1.0]], [[0.0]], [[1.0]])
    ),
    "a tiny sigma": lambda: ox.utilities.LogCoverage(sigma=TINY),
    "a tiny smoothing": lambda: ox.utilities.Entropy(smoothing=TINY),
    "a tiny temperature": lambda: ox.utilities.SoftMin(COSTS, temperature=TINY),
    "tables of other states": lambda: ox.exact.Evaluator(PROBLEM).values(np.full((1, 4, 2), 0.5)),
    "a feature with if": lambda: ox.Problem(
        CHAIN, jnp.sum, features=lambda o, _: 1.0 if o > 0 else 0.0
    ),
    "a feature with float": lambda: ox.Problem(CHAIN, jnp.sum, features=lambda o, _: float(o)),
    "a complex feature": lambda: ox.Problem(CHAIN, jnp.sum, features=lambda o, _: o * 1j),
    "a complex constraint": lambda: ox.Problem(
        CHAIN, constraints=[ox.Constraint(lambda o, _: o * 1j, at_most=1.0)]
    ),
    "a rule of another shape": lambda: _with_rule(
        lambda slope, *_: (jax.tree.map(lambda leaf: leaf[None], slope), ())
    ),
}
"""Calls whose parts do not fit one another."""


def command(words: tuple[str, ...]) -> tuple[int, str]:
    """The exit code of a command line, and what was said on the standard error."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["occupax", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.argv = before
    return code, err.getvalue() + out.getvalue()


def full() -> Iterator[tuple[str, int, str]]:
    """Run commands with a full disk as output. Yield each with its exit code and message."""
    solve = ("solve", "FrozenLake-v1", "--horizon", "5")
    train = (*TRAIN, "--no-progress")
    for words in (
        ("list",),
        ("list", "--json"),
        solve,
        (*solve, "--json"),
        train,
        (*train, "--json"),
    ):
        with Path("/dev/full").open("w") as output:
            command = [sys.executable, "-m", "occupax", *words]
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.PIPE, text=True, check=False
            )
        yield " ".join(words), done.returncode, done.stderr


def attack(say: Any) -> dict[str, int]:
    """Try all of them, in a folder of their own."""
    counts = {"commands": 0, "calls": 0, "wrong": 0}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(place)
        try:
            for words in commands():
                counts["commands"] += 1
                try:
                    code, said = command(words)
                except BaseException as error:  # noqa: BLE001 - it must not happen
                    code, said = -1, f"{type(error).__name__}: {error}"
                if code not in (1, 2) or "Traceback" in said or not said.strip():
                    counts["wrong"] += 1
                    say(f"{' '.join(words)!r} ended with {code}: {said.strip()[:200]}")
            for name, code, said in full():
                counts["commands"] += 1
                if code != 1 or "Traceback" in said or said.count("\n") != 1:
                    counts["wrong"] += 1
                    say(f"{name!r} into a full disk ended with {code}: {said.strip()[:200]}")
            for name, call in calls():
                counts["calls"] += 1
                try:
                    call()
                    said = "nothing was refused"
                except ValueError as error:
                    said = (
                        ""
                        if str(error).strip().endswith((".", ")", "?"))
                        else f"not a sentence: {error}"
                    )
                except BaseException as error:  # noqa: BLE001 - it must not happen
                    said = f"{type(error).__name__}: {error}"
                if said:
                    counts["wrong"] += 1
                    say(f"{name}: {said[:200]}")
        finally:
            os.chdir(before)
    return counts


if __name__ == "__main__":
    print(attack(print))  # noqa: T201
