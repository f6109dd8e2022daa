import json
import re
import shutil
from functools import cache

import numpy as np
import optax
import pytest

import enumeration as enum
import occupax as ox
from occupax.io.files import read_arrays, write_arrays
from occupax.io.records import read_csv
from occupax.io.run_folder import Checkpoints
from occupax.training import loop

PROBLEM = enum.tiny(11, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
SIZES = {"snapshot_batch": 4, "batch": 2, "epoch_length": 3}
TSIVRPG = ox.TSIVRPG(**SIZES)
ADAM = optax.adam(0.05)  # one object, because another one is another program

# name: (algorithm, what else train is told)
RUNS = {
    "tsivr-pg": (TSIVRPG, {}),
    "tsivr-pg in records of 7": (TSIVRPG, {"record_every": 7}),
    "reinforce": (ox.REINFORCE(batch=4), {}),
    "svrpg": (ox.SVRPG(**SIZES), {}),
    "srvr-pg": (ox.SRVRPG(**SIZES), {}),
    "hspga": (ox.HSPGA(**SIZES), {}),
    "maxent": (ox.MaxEnt(batch=4), {"record_every": 3}),
    "plain jax": (ox.REINFORCE(batch=4), {"sampler": "jax"}),
    "linear baseline": (ox.REINFORCE(batch=4, baseline="linear"), {}),
    "adam": (ox.REINFORCE(batch=4, step_size=1.0, rule=ADAM, baseline="mean"), {"record_every": 7}),
    "plain": (ox.TSIVRPG(**SIZES, rule="gradient", weight_guard=None), {}),
    "uniform": (ox.REINFORCE(batch=4, output="uniform"), {}),
    "best": (ox.TSIVRPG(**SIZES, output="best"), {"record_every": 7}),
    "exact": (ox.REINFORCE(batch=4), {"record_every": 7, "exact": True}),
}


def train(algorithm=TSIVRPG, episodes=40, seeds=2, **options):
    settings = {"policy": ox.policies.tabular(0.5), "progress": False, **options}
    return ox.train(PROBLEM, algorithm, episodes, seeds, **settings)


def content(file):
    """Return the arrays of a safetensors file, whose header has no fixed order, or the bytes."""
    return read_arrays(file) if file.suffix == ".safetensors" else file.read_bytes()


def assert_same_bits(one, other):
    for name in ("seeds", "status"):
        assert getattr(one, name) == getattr(other, name)
    np.testing.assert_array_equal(one.episodes, other.episodes)
    np.testing.assert_array_equal(one.steps, other.steps)
    assert list(one.metrics) == list(other.metrics)
    for name, values in one.metrics.items():
        assert values.dtype == other.metrics[name].dtype
        assert values.tobytes() == other.metrics[name].tobytes(), name
    for a, b in zip(one.policies, other.policies, strict=True):
        assert np.asarray(a.table).tobytes() == np.asarray(b.table).tobytes()


def assert_same_files(one, other):
    assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()
    names = [file.name for file in (one / "policies").iterdir()]
    assert sorted(names) == sorted(file.name for file in (other / "policies").iterdir())
    for name in names:
        np.testing.assert_equal(
            content(one / "policies" / name), content(other / "policies" / name)
        )


# Going on


@pytest.mark.parametrize("name", RUNS)
def test_two_halves_are_the_whole_to_the_last_bit(name, tmp_path):
    # 50 episodes of TSIVR-PG are 18 iterations and 2 episodes more: the middle is inside a cycle
    # and inside a record
    algorithm, options = RUNS[name]
    whole = train(algorithm, 50, out=tmp_path / "whole", **options)
    train(algorithm, 25, out=tmp_path / "halves", **options)
    halves = train(algorithm, 50, out=tmp_path / "halves", resume=True, **options)
    assert_same_bits(whole, halves)
    assert_same_bits(whole, ox.load_result(tmp_path / "halves", algorithm=algorithm))
    assert_same_files(tmp_path / "whole", tmp_path / "halves")
    assert np.isfinite(np.stack(list(whole.metrics.values()))).all()
    assert (
        len(set(whole.metrics["utility"][0].tolist())) > 1
    )  # it is not one number again and again


def test_what_is_appended_to_the_records_stands_under_the_right_names(tmp_path):
    algorithm, seen = ox.REINFORCE(batch=4), []
    train(algorithm, 12, out=tmp_path, exact=True)
    look = {"callbacks": [lambda _: seen.append(read_csv(tmp_path / "metrics.csv")[1])]}
    done = train(algorithm, 24, out=tmp_path, exact=True, resume=True, **look)
    assert [len(table.episodes) for table in seen] == [4, 5, 6]
    for table in seen:
        for name, values in table.metrics.items():
            expected = done.metrics[name][:, : len(table.episodes)]
            np.testing.assert_array_equal(values.astype(expected.dtype), expected)


@pytest.mark.parametrize("every", [1, 7])
def test_the_size_of_the_calls_changes_no_bit(every, tmp_path, monkeypatch):
    expected = train(episodes=100, record_every=every, out=tmp_path / "expected")
    for number, (seconds, most) in enumerate([(0.0, 1000), (1e9, 1000), (1e9, 3), (1e9, 8)]):
        monkeypatch.setattr(loop, "CALL_SECONDS", seconds)
        monkeypatch.setattr(loop, "MAX_ITERATIONS", most)
        folder = tmp_path / str(number)
        assert_same_bits(
            expected, train(episodes=100, record_every=every, out=folder, checkpoint_every=0.0)
        )
        assert_same_files(tmp_path / "expected", folder)


@pytest.mark.parametrize("every", [1, 7])
def test_going_on_in_many_small_parts_changes_no_bit(every, tmp_path):
    whole = train(episodes=40, record_every=every, out=tmp_path / "whole")
    for episodes in (4, 5, 6, 12, 13, 14, 16, 33, 40):
        parts = train(episodes=episodes, record_every=every, out=tmp_path / "parts", resume=True)
        assert parts.episodes[-1] <= episodes
        assert parts.config["episodes"] == episodes
    assert_same_bits(whole, parts)
    assert_same_files(tmp_path / "whole", tmp_path / "parts")


def test_a_finished_run_stays_as_it_is(tmp_path):
    before = train(out=tmp_path, record_every=7)
    files = {file: content(file) for file in tmp_path.rglob("*") if file.is_file()}
    after = train(out=tmp_path, record_every=7, resume=True)
    assert_same_bits(before, after)
    assert after.seconds == before.seconds
    np.testing.assert_equal(
        {file: content(file) for file in tmp_path.rglob("*") if file.is_file()}, files
    )


def test_a_smaller_budget_than_is_done_is_refused_and_changes_nothing(tmp_path):
    whole = train(out=tmp_path)
    config = (tmp_path / "config.json").read_bytes()
    with pytest.raises(
        ValueError, match=r"episodes must be at least 40, the number already sampled in .*, got 20"
    ):
        train(episodes=20, out=tmp_path, resume=True)
    assert (tmp_path / "config.json").read_bytes() == config
    assert_same_bits(whole, ox.load_result(tmp_path))  # what was finished is so still
    assert_same_bits(whole, train(out=tmp_path, resume=True))


def test_resuming_where_nothing_was_begun_begins(tmp_path):
    assert_same_bits(train(), train(out=tmp_path / "new", resume=True))
    shutil.rmtree(tmp_path / "new" / "checkpoint")  # stopped before the first checkpoint
    assert_same_bits(train(), train(out=tmp_path / "new", resume=True))


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    train(out=tmp_path)
    with pytest.raises(ValueError, match="holds a run already: resume it"):
        train(out=tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(
        ValueError, match="holds a run already"
    ):  # its checkpoints must not be gone on from unasked
        train(out=tmp_path)


def test_another_run_is_refused_and_told_apart(tmp_path):
    train(out=tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for different, place in (
        ({"algorithm": ox.TSIVRPG(**SIZES, step_size=0.06)}, r"algorithm\.fields\.step_size"),
        ({"algorithm": ox.TSIVRPG(**{**SIZES, "batch": 3})}, r"algorithm\.fields\.batch"),
        ({"algorithm": ox.SRVRPG(**SIZES)}, r"algorithm\.class"),
        ({"seeds": 3}, "seeds"),
        ({"seeds": [0, 2]}, r"seeds\.1"),
        ({"seed": 1}, "seed"),
        ({"record_every": 2}, "record_every"),
        ({"exact": True}, "exact"),
        ({"sampler": "jax"}, "random_numbers"),
        ({"policy": ox.policies.tabular(0.6)}, r"policy\.table"),
    ):
        with pytest.raises(
            ValueError, match=f"holds another run, which differs in {place}: resume it"
        ):
            train(**different, out=tmp_path, resume=True)
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}


def test_another_process_is_refused_and_told_apart(tmp_path):
    train(out=tmp_path)
    other = enum.tiny(12, (2,)).problem("episodic", utility=ox.utilities.LogCoverage(0.1))
    options = {
        "policy": ox.policies.tabular(0.5),
        "progress": False,
        "out": tmp_path,
        "resume": True,
    }
    with pytest.raises(ValueError, match=r"differs in problem\.env\.probabilities: resume it"):
        ox.train(other, TSIVRPG, 40, 2, **options)


# Damage


@pytest.fixture(scope="module")
def run_of_two_checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    train(episodes=20, out=folder)
    train(episodes=40, out=folder, resume=True)
    return folder


@pytest.fixture
def damaged(run_of_two_checkpoints, tmp_path):
    """A copy of a run, and its newer checkpoint."""
    folder = tmp_path / "run"
    shutil.copytree(run_of_two_checkpoints, folder)
    older, newer = sorted((folder / "checkpoint").iterdir())
    return folder, newer, older


@cache
def undamaged():
    return train(episodes=50)


def refuse(folder, newer, older, said):
    """The newer checkpoint is refused and named, and the older one offered."""
    with pytest.raises(ValueError, match=said) as caught:
        train(episodes=50, out=folder, resume=True)
    message = str(caught.value)
    assert str(newer) in message
    assert (
        f"The older checkpoint {older.name} is intact: delete {newer.name} to resume from it."
        in message
    )
    assert "\n" not in message


def go_on(folder, newer):
    """Without the newer checkpoint all is well again."""
    newer.unlink()
    assert_same_bits(undamaged(), train(episodes=50, out=folder, resume=True))


def test_only_two_checkpoints_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CALL_SECONDS", 0.0)
    train(
        out=tmp_path, checkpoint_every=0.0
    )  # 15 iterations: 12 in four cycles of 8 episodes, then 4 + 2 + 2
    names = [file.name for file in sorted((tmp_path / "checkpoint").iterdir())]
    assert names == ["iteration-000000000014.safetensors", "iteration-000000000015.safetensors"]


def test_a_truncated_checkpoint_is_refused(damaged):
    folder, newer, older = damaged
    whole = newer.read_bytes()
    for share in (0.0, 0.001, 0.2, 0.6, 0.999):
        newer.write_bytes(whole[: int(share * len(whole))])
        refuse(folder, newer, older, "is damaged or not a safetensors file")
    go_on(folder, newer)


def test_no_flipped_byte_goes_unnoticed(damaged):
    folder, newer, older = damaged
    whole = newer.read_bytes()
    fingerprint = json.loads((folder / "config.json").read_text())["fingerprint"]
    checkpoints = Checkpoints(folder / "checkpoint", fingerprint)
    assert checkpoints.load() is not None
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] ^= 0x20
        newer.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match=re.escape(str(newer))):
            checkpoints.load()
    refuse(folder, newer, older, "damaged|changed after it was written|not one that occupax wrote")
    go_on(folder, newer)


@pytest.mark.parametrize(
    "kind", ["another run", "a policy", "another version", "text", "foreign", "a folder"]
)
def test_a_file_that_is_no_checkpoint_of_this_run_is_refused(damaged, tmp_path, kind):
    folder, newer, older = damaged
    arrays, content = read_arrays(newer)
    said = {
        "another run": "is a checkpoint of another run: problem, algorithm, policy or seeds differ",
        "a policy": "must have the format occupax-checkpoint",
        "another version": (
            r"has version 1 of the format occupax-checkpoint, which occupax 0\.2\.0 reads"
        ),
        "text": "is damaged or not a safetensors file",
        "foreign": "is a safetensors file, but not one that occupax wrote",
        "a folder": "is not a file",
    }[kind]
    if kind == "another run":
        train(ox.TSIVRPG(**SIZES, step_size=0.06), out=tmp_path / "other")
        shutil.copy(next((tmp_path / "other" / "checkpoint").iterdir()), newer)
    elif kind == "a policy":
        shutil.copy(folder / "policies" / "seed-0.safetensors", newer)
    elif kind == "another version":
        write_arrays(newer, arrays, {**content, "version": 1})
    elif kind == "text":
        newer.write_text("nothing of use")
    elif kind == "foreign":
        from safetensors.numpy import save_file

        save_file(arrays, newer)
    else:
        newer.unlink()
        newer.mkdir()
        with pytest.raises(ValueError, match=said):
            train(episodes=50, out=folder, resume=True)
        newer.rmdir()
        newer.write_text("")
        said = "damaged"
    refuse(folder, newer, older, said)


def test_no_checkpoint_that_is_whole_means_to_begin_again(damaged):
    folder, newer, older = damaged
    newer.write_bytes(b"")
    older.write_bytes(b"")
    with pytest.raises(
        ValueError, match="No older checkpoint is intact: delete the directory to begin again"
    ):
        train(episodes=50, out=folder, resume=True)


def test_checkpoints_with_arrays_of_another_shape_are_refused(damaged):
    folder, newer, _ = damaged
    arrays, content = read_arrays(newer)
    write_arrays(
        newer,
        {name: array[:1] if name.startswith(".") else array for name, array in arrays.items()},
        content,
    )
    with pytest.raises(
        ValueError,
        match="cannot be resumed: the arrays of the checkpoint must have the names and shapes of",
    ):
        train(episodes=50, out=folder, resume=True)


def test_unfinished_files_are_not_taken_for_checkpoints(damaged):
    folder, newer, _ = damaged
    (newer.parent / ".iteration-000000000099.safetensors.0a1b2c3d").write_bytes(
        newer.read_bytes()[:100]
    )
    assert_same_bits(undamaged(), train(episodes=50, out=folder, resume=True))


@pytest.mark.parametrize("what", ["setup", "array", "format", "version", "text", "list"])
def test_an_edited_configuration_is_refused(damaged, what):
    folder, _, _ = damaged
    file = folder / "config.json"
    config = json.loads(file.read_text())
    said = {"format": "must have the format occupax-run", "version": "has version 7 of the format"}
    if what == "setup":
        config["setup"]["algorithm"]["fields"]["step_size"] = 0.06
    elif what == "array":
        arrays, content = read_arrays(folder / "config.safetensors")
        changed = {
            **arrays,
            "policy.table": arrays.get("policy.table", np.zeros(1)) + np.float32(1),
        }
        write_arrays(folder / "config.safetensors", changed, content)
    elif what in said:
        config[what] = 7
    file.write_text({"text": "{", "list": "[]"}.get(what, json.dumps(config)))
    said |= {
        "text": "config.json cannot be read",
        "list": "is damaged: it must hold an object of JSON",
    }
    with pytest.raises(
        ValueError, match=said.get(what, "config.json was changed after it was written")
    ):
        train(episodes=50, out=folder, resume=True)
    with pytest.raises(
        ValueError, match=said.get(what, "config.json was changed after it was written")
    ):
        ox.load_result(folder)
