"""Promises of docs/trust.md about folders of strangers, damaged files and concurrent processes."""

import errno
import fcntl
import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.lru_cache import LRUCache

import occupax as ox
from attacks import folders as attacked
from attacks import simulators as rogues
from commands import occupax
from folders import reseal
from occupax import cli
from occupax.cli.cache import MAX_BYTES, keep_compiled_programs, remove_incomplete
from occupax.experiments import reproduce
from occupax.io import codec
from occupax.io.files import read_arrays, write_arrays, write_bytes
from occupax.signals import ending_signals
from occupax.training.loop import Terminated
from occupax.training.records import Records
from occupax.training.schedule import Schedule


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "run"
    attacked.make_run(folder)
    return folder


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def longer(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("longer") / "run"
    shutil.copytree(original, folder)
    found = attacked.resumed(folder)
    assert isinstance(found, dict)
    return found


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


# Folders of strangers


def test_mutated_folders_are_refused_or_change_nothing(original, tmp_path):
    before = attacked.loaded(original)
    outcomes = []
    for number in range(40):
        said = attacked.mutate(original, tmp_path / "mutant", number)
        after = attacked.loaded(tmp_path / "mutant")
        outcomes.append(attacked.judge(said, before, after))
        assert outcomes[-1] != "wrong", (number, said, after)
    assert outcomes.count("refused") > 10


BAD = {
    "a successor beyond the states": ("problem.env.successors", lambda array: array + 5000),
    "probabilities of nothing": ("problem.env.probabilities", np.zeros_like),
}


@pytest.mark.parametrize("what", BAD)
def test_a_table_that_no_constructor_makes_is_neither_trained_nor_reported(run, what):
    name, change = BAD[what]
    arrays, content = read_arrays(run / "config.safetensors")
    name = next(it for it in arrays if it.endswith(name.rpartition(".")[2]))
    write_arrays(run / "config.safetensors", arrays | {name: change(arrays[name])}, content)
    reseal(run)
    code, _, err = occupax("train", "--out", run, "--resume", "--episodes", "60")
    assert (code, "was saved with a value that it cannot have" in err) == (2, True), err
    assert ox.load_result(run).problem is None


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("setup", "record_every"), 0, "record_every must be an integer of at least 1"),
        (("setup", "seeds"), [], "seeds must be a list"),
        (("setup", "problem", "fields", "discount"), 2.0, "discount must lie in"),
        (
            ("setup", "problem", "fields", "horizon"),
            -3,
            "horizon must be an integer of at least 1",
        ),
        (("setup", "problem", "fields", "utility"), 5, "utility must be Utility, got 5"),
        (
            ("setup", "algorithm", "fields", "batch"),
            -1,
            "batch must be an integer of at least 1",
        ),
        (("episodes",), "many", "episodes must be an integer"),
        (("versions",), {}, "it has no 'float64'"),
    ],
)
def test_what_no_run_has_is_not_resumed(run, place, value, said):
    def change(content):
        for step in place[:-1]:
            content = content[step]
        content[place[-1]] = value

    edit(run / "config.json", change)
    reseal(run)
    code, _, err = occupax("train", "--out", run, "--resume")
    assert code == 2
    assert said in err


def with_module(run, monkeypatch, tmp_path):
    """Return a run whose environment is made by a module that records its import."""
    (tmp_path / "intruder.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = codec.pack(ox.GymnasiumEnv("CartPole-v1"))[0]
    made["fields"]["source"] = "intruder:CartPole-v1"
    edit(
        run / "config.json", lambda content: content["setup"]["problem"]["fields"].update(env=made)
    )
    reseal(run)


def test_a_folder_does_not_choose_what_is_imported(run, monkeypatch, tmp_path):
    with_module(run, monkeypatch, tmp_path)
    with pytest.warns(
        UserWarning, match=r"the module 'intruder' is imported: load_result\(folder, trust=True\)"
    ):
        assert ox.load_result(run).problem is None
    code, _, err = occupax("train", "--out", run, "--resume")
    assert code == 2
    advice = "repeat the command that began it, with --resume, or add --trust"
    assert f"needs an import of the module 'intruder': {advice}" in err
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("value", [print, {"a": 1}, b"bytes", ox.utilities.Reward()])
def test_options_of_an_id_are_plain_values(value):
    with pytest.raises(
        ValueError, match="the option gravity must be a number, a string or a list of these"
    ):
        ox.GymnasiumEnv("CartPole-v1", gravity=value)


# Nothing wrong without a word


@pytest.mark.parametrize(
    "name", ["metrics.csv", "summary.json", "config.json", "assessment.safetensors"]
)
def test_damage_is_refused_by_the_name_of_the_file(run, name):
    raw = bytearray((run / name).read_bytes())
    place = raw.rindex(b"1") if b"1" in raw else len(raw) // 2
    raw[place : place + 1] = b"2"
    (run / name).write_bytes(raw)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        ox.load_result(run)


def test_policies_of_another_seed_or_run_are_noticed(run, tmp_path):
    first, second = (run / "policies" / f"seed-{seed}.safetensors" for seed in (0, 1))
    kept = first.read_bytes()
    shutil.copy(second, first)
    with pytest.raises(
        ValueError,
        match=r"seed-0\.safetensors was changed after it was written, or is that of another",
    ):
        ox.load_result(run)
    ox.save_policy(ox.policies.Tabular(jnp.zeros((9, 2))), first)
    reseal(run)  # even with checksums that are right
    with pytest.raises(ValueError, match=r"seed-0\.safetensors is the policy of another run"):
        ox.load_result(run)
    first.write_bytes(kept)
    reseal(run)
    with pytest.raises(
        ValueError, match="problem must have 4 features, as in the training run, got 9"
    ):
        ox.load_result(
            run, problem=ox.Problem(ox.TabularMDP.chain(9), ox.utilities.LogCoverage(), horizon=5)
        )
    with pytest.raises(
        ValueError, match="problem must be that of the training run, but the policies do not fit"
    ):
        ox.load_result(
            run, problem=ox.Problem(ox.TabularMDP.chain(9), lambda u: u.sum(), features=four)
        )


def four(observation, action):
    return jnp.zeros(4)


def test_links_are_replaced_and_never_written_through(run, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    for name in ("plot.png", "report.html", "metrics.csv", "config.json"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(treasure)
    write_bytes(run / "plot.png", b"drawn")
    assert not (run / "plot.png").is_symlink()
    shutil.rmtree(run / "policies")
    (run / "policies").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="policies must be a directory, but is a symbolic link"):
        ox.train(**arguments(), out=run, resume=True)
    assert treasure.read_text() == "mine"


def arguments():
    problem = ox.Problem(
        ox.TabularMDP.chain(4), ox.utilities.LogCoverage(0.1), discount=0.9, horizon=5
    )
    options = {"policy": ox.policies.tabular(0.5), "progress": False, "seeds": 2, "record_every": 3}
    return {
        "problem": problem,
        "algorithm": ox.REINFORCE(batch=4),
        "episodes": attacked.MORE,
        **options,
    }


@pytest.mark.parametrize("name", ["metrics.csv", "report.html", "notes.txt", ".hidden"])
def test_a_folder_with_files_of_others_is_not_written_to(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for write in (partial(ox.train, **arguments()), ox.bench.run, partial(reproduce, "quick")):
        with pytest.raises(
            ValueError, match="is not empty and holds no run: choose another directory"
        ):
            write(out=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_an_empty_path_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for write in (partial(ox.train, **arguments()), ox.bench.run, partial(reproduce, "quick")):
        with pytest.raises(ValueError, match="out must be the path of a folder, got ''"):
            write(out="")
    code, _, err = occupax("train", "FrozenLake-v1", "--episodes", "20", "--out", "")
    assert code == 2
    assert "must be the path of a directory, got ''" in err


def test_a_run_goes_on_in_the_precision_it_was_begun_in(run, x64):
    with pytest.raises(
        ValueError,
        match="holds a run in float32: resume it with JAX_ENABLE_X64=0 in the environment",
    ):
        ox.train(**arguments(), out=run, resume=True)


# Simulators


@pytest.mark.parametrize(
    "kind", ["exits with 0", "interrupts itself in reset", "ends by a text", "ends by an array"]
)
def test_simulators_that_misbehave_are_the_failure_of_an_episode(kind):
    assert not rogues.wrong(kind, rogues.sampled(kind))
    assert rogues.evaluated(kind).startswith("episode 0 (seed")
    assert rogues.checked(kind)


@pytest.mark.parametrize(
    "kind", ["exits in close", "hangs in close", "exits when made", "exits in its spaces"]
)
def test_simulators_that_misbehave_around_their_episodes(kind, monkeypatch):
    monkeypatch.setattr("occupax.envs.lookup.SECONDS_TO_CLOSE", 0.1)
    monkeypatch.setattr("occupax.samplers.episodes.SECONDS_TO_CLOSE", 0.1)
    monkeypatch.setattr(rogues, "SECONDS", 0.2)
    assert not rogues.wrong(kind, rogues.sampled(kind))
    assert not rogues.wrong(kind, rogues.evaluated(kind))
    assert rogues.checked(kind)


# Operation


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_like_ctrl_c(number, run, longer):
    handler = signal.getsignal(number)
    with pytest.raises(Terminated) as ended:
        ox.train(
            **arguments(), out=run, resume=True, callbacks=[lambda _: os.kill(os.getpid(), number)]
        )
    assert ended.value.number == number
    assert signal.getsignal(number) == handler
    assert f"of 60 episodes; to resume: occupax train --out {run} --resume" in str(ended.value)
    assert attacked.resumed(run) == longer


def test_one_folder_is_for_one_process(run):
    held = os.open(run, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(
            ValueError,
            match="is in use by another training run: wait for its end, or choose another",
        ):
            ox.train(**arguments(), out=run, resume=True)
    finally:
        os.close(held)


def test_a_full_disk_names_the_file_and_keeps_the_checkpoint(run, longer, monkeypatch):
    checkpoints = sorted(file.name for file in (run / "checkpoint").iterdir())
    real = os.fsync

    def full(descriptor):
        if "iteration-" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        ox.train(**arguments(), out=run, resume=True)
    monkeypatch.setattr(os, "fsync", real)
    assert Path(caught.value.filename).name.startswith("iteration-")
    said = "the last checkpoint is intact, and the training was stopped after"
    assert said in str(caught.value)
    assert sorted(file.name for file in (run / "checkpoint").iterdir()) == checkpoints
    left = run / "checkpoint" / ".iteration-000000000099.safetensors.0a1b2c3d"
    left.write_bytes(b"half")
    assert attacked.resumed(run) == longer
    assert not left.exists()


def test_records_that_are_lost_or_changed_are_not_gone_on_with(run):
    kept = (run / "metrics.csv").read_bytes()
    for changed in (kept[:100], kept.replace(b"0.", b"1.", 1)):
        (run / "metrics.csv").write_bytes(changed)
        with pytest.raises(
            ValueError,
            match=r"metrics\.csv was changed after it was written, or is not that of the",
        ):
            ox.train(**arguments(), out=run, resume=True)
    (run / "metrics.csv").unlink()
    with pytest.raises(
        ValueError,
        match=r"metrics\.csv must be a file: the run cannot continue without its records",
    ):
        ox.train(**arguments(), out=run, resume=True)


def test_memory_has_what_a_page_can_show_and_the_file_everything(tmp_path, monkeypatch):
    monkeypatch.setattr("occupax.io.records.MAX_RECORDS", 4)
    given = arguments() | {"record_every": 1, "episodes": 90}
    result = ox.train(**given, out=tmp_path / "a")
    lines = (tmp_path / "a" / "metrics.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 22  # 22 iterations of 4 episodes
    assert result.episodes.tolist() == [32, 64, 88]  # every eighth, and the last
    whole = [float(line.split(",")[lines[0].split(",").index("utility")]) for line in lines[1:]]
    np.testing.assert_array_equal(
        result.metrics["utility"][0], np.array(whole, np.float32)[[14, 30, 42]]
    )
    loaded = ox.load_result(tmp_path / "a")
    np.testing.assert_array_equal(loaded.episodes, result.episodes)
    np.testing.assert_array_equal(loaded.metrics["utility"], result.metrics["utility"])
    ox.train(**given | {"episodes": 45}, out=tmp_path / "b")
    again = ox.train(**given, out=tmp_path / "b", resume=True)
    assert attacked.content_of(again) == attacked.content_of(result)
    assert (tmp_path / "b" / "metrics.csv").read_bytes() == (
        tmp_path / "a" / "metrics.csv"
    ).read_bytes()


def test_thinned_records_do_not_depend_on_how_they_come_in(monkeypatch):
    monkeypatch.setattr("occupax.io.records.MAX_RECORDS", 5)
    schedule = Schedule(ox.REINFORCE(batch=2))
    rows = {"utility": np.arange(200.0).reshape(100, 2), "steps": np.ones((100, 2), np.int64)}
    for every in (1, 3):
        for total in (1, 5, 6, 11, 12, 13, 36):
            one, many = Records(every, schedule), Records(every, schedule)
            one.add({name: column[:total] for name, column in rows.items()})
            for i in range(total):
                many.add({name: column[i : i + 1] for name, column in rows.items()})
                restored = Records(every, schedule)
                restored.restore(many.arrays(), i + 1, 2)
                many = restored
            for complete in (True, False):
                left, right = one.table(complete), many.table(complete)
                np.testing.assert_equal(left._asdict(), right._asdict())
                assert len(left.episodes) <= 6


def test_the_cache_of_programs_is_bounded_and_optional(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    updated = {}
    monkeypatch.setattr("jax.config.update", updated.__setitem__)
    (tmp_path / "file").touch()
    for home in (tmp_path / "file", Path("/proc/nowhere")):
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        keep_compiled_programs()
        assert not updated
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled_programs()
    folder = tmp_path / "occupax" / "programs"
    assert updated["jax_compilation_cache_dir"] == str(folder)
    assert updated["jax_compilation_cache_max_size"] == MAX_BYTES
    updated.clear()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(
        Path, "expanduser", lambda _: (_ for _ in ()).throw(RuntimeError("no home"))
    )
    keep_compiled_programs()
    assert not updated


def test_a_bounded_cache_removes_the_least_recently_used_programs(tmp_path):
    cache = LRUCache(str(tmp_path), max_size=20)
    for name in ("old", "middle", "new"):
        cache.put(name, b"x" * 10)
    assert [cache.get(name) for name in ("old", "middle", "new")] == [None, b"x" * 10, b"x" * 10]


def test_half_of_a_program_is_removed_when_the_next_command_starts(tmp_path):
    cache = LRUCache(str(tmp_path), max_size=1000)
    cache.put("whole", b"a program")
    (tmp_path / "half-cache").write_bytes(b"a pro")  # as JAX leaves it when it is killed
    with pytest.raises(FileNotFoundError):
        cache.put("other", b"another program")
    remove_incomplete(tmp_path)
    cache.put("other", b"another program")
    programs = {name: cache.get(name) for name in ("whole", "half", "other")}
    assert programs == {"whole": b"a program", "half": None, "other": b"another program"}


def test_json_is_all_that_is_printed_whatever_a_simulator_prints(monkeypatch, tmp_path, capfd):
    (tmp_path / "talker.py").write_text(
        "import sys; sys.path.insert(0, " + repr(str(Path(__file__).parents[1])) + ")\n"
        "from attacks.simulators import Rogue\ndef make(): return Rogue('prints a lot')\n"
    )
    monkeypatch.chdir(tmp_path)
    policy = ox.policies.linear()(ox.GymnasiumEnv(lambda: rogues.Rogue("")), jax.random.key(0))
    ox.save_policy(policy, tmp_path / "policy.safetensors")
    monkeypatch.setattr(
        sys, "argv", ["occupax", "evaluate", "policy.safetensors", "talker:make", "--json"]
    )
    handlers = {number: signal.getsignal(number) for number in ending_signals()}
    cli.main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    out, err = capfd.readouterr()
    assert json.loads(out)["episodes"] == 100
    assert "a simulator that talks" in err
    assert "and its library" in err
    sys.modules.pop("talker", None)


def test_a_platform_that_is_not_there_is_named(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setattr("jax.devices", fail)
    code, _, err = occupax("list")
    assert code == 2
    assert "JAX_PLATFORMS must name a device of this machine, got 'cuda'" in err


# Sizes and kinds that make no sense


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: ox.Problem(ox.TabularMDP.chain(3), horizon=10**30),
            "horizon must be at most 100,000,000",
        ),
        (lambda: ox.REINFORCE(batch=10**18), "batch must be at most 2,147,483,647"),
        (
            lambda: ox.features.Grid([0.0] * 4, [1.0] * 4, [10**5] * 4),
            "bins must make at most 2,147,483,647 cells",
        ),
        (lambda: ox.TabularMDP.chain(10**15), "n must be at most"),
        (
            lambda: ox.train(**arguments() | {"episodes": 10**18}),
            "episodes must be at most 10,000,000,000",
        ),
        (lambda: ox.train(**arguments() | {"seeds": 10**12}), "seeds must be at most"),
        (
            lambda: ox.REINFORCE(radius=True),
            "radius must be a finite number of at least 0, got True",
        ),
        (
            lambda: ox.policies.Tabular(jnp.zeros((3, 2), int)),
            "table must be an array of real numbers",
        ),
        (
            lambda: ox.TabularMDP(np.full((2, 1, 2), 0.5j), np.zeros((2, 1)), np.array([1.0, 0.0])),
            "transition must be an array of real numbers",
        ),
        (
            lambda: ox.make("FrozenLake-v1", is_slippery="maybe"),
            "is_slippery must be True or False, got 'maybe'",
        ),
    ],
)
def test_sizes_and_kinds_that_make_no_sense_are_refused_with_a_sentence(call, said):
    with pytest.raises(ValueError, match=said):
        call()
