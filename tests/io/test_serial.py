import json
import os
import subprocess
import sys
from math import inf, nan
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy

import occupax as ox
from occupax.io import codec
from occupax.io.files import checksum, read_arrays, write_arrays, write_text
from occupax.utilities import Ball, Box, Halfspace, Point, Polyhedron, SetDistance, Smoothness

KEY = jax.random.key(0)
LAKE = ox.make("FrozenLake8x8-v1")
CHAIN = ox.TabularMDP.chain(3)
CART = ox.make("CartPole-v1")
FEEDBACK = np.arange(12.0).reshape(3, 2, 2)
GRID = ox.features.Grid([-1.0, -2.0], [1.0, 2.0], [3, 4], coordinates=[0, 2])


def through_json(value):
    description, arrays = codec.pack(value)
    return codec.unpack(json.loads(json.dumps(description, allow_nan=False)), arrays)


def fingerprint(value):
    description, arrays = codec.pack(value)
    return checksum(json.dumps(description), arrays)


def with_distance(convex_set):
    return ox.Problem(CHAIN, SetDistance(FEEDBACK, convex_set))


PROBLEMS = {
    "coverage": ox.Problem(
        LAKE, ox.utilities.LogCoverage(0.25), discount=0.9, horizon=20, termination="absorbing"
    ),
    "endless": ox.Problem(CHAIN, horizon=None),
    "entropy": ox.Problem(CHAIN, ox.utilities.Entropy(1e-3), horizon=4),
    "linear": ox.Problem(CHAIN, ox.utilities.Linear(np.linspace(0, 1, 6)), horizon=4),
    "return of pairs": ox.Problem(CHAIN, features=ox.features.StateAction(), horizon=4),
    "sum": ox.Problem(
        LAKE, ox.utilities.Reward() + 0.1 * ox.utilities.Entropy() - ox.utilities.LogCoverage()
    ),
    "box": with_distance(Box([0, -inf], [inf, 1])),
    "ball": with_distance(Ball([0, 1], 0.5)),
    "halfspace": with_distance(Halfspace([1, 1], 2)),
    "polyhedron": with_distance(Polyhedron([[1, 0], [0, 1]], [1, 2])),
    "point": with_distance(Point([1, 2])),
    "grid": ox.Problem(CART, ox.utilities.Entropy(), horizon=25, features=GRID),
    "stack": ox.Problem(
        CHAIN,
        ox.utilities.LogCoverage(),
        features=ox.features.Stack(ox.features.State(), ox.features.Table(FEEDBACK)),
    ),
    "acrobot": ox.Problem(ox.make("Acrobot-v1"), horizon=3),
}
POLICIES = {
    "tabular": ox.policies.tabular(1.0)(LAKE, KEY),
    "mlp": ox.policies.mlp((8,), activation="silu")(CART, KEY),
}


@pytest.mark.parametrize(
    "value", [*PROBLEMS.values(), *POLICIES.values()], ids=[*PROBLEMS, *POLICIES]
)
def test_problems_and_policies_come_back_the_same(value):
    restored = through_json(value)
    assert bool(eqx.tree_equal(restored, value, typematch=True))
    for old, new in zip(jax.tree.leaves(value), jax.tree.leaves(restored), strict=True):
        assert type(new) is type(old)
        assert getattr(new, "dtype", None) == getattr(old, "dtype", None)
    assert fingerprint(restored) == fingerprint(value)


@pytest.mark.parametrize(("problem", "policy"), [("coverage", "tabular"), ("grid", "mlp")])
def test_what_comes_back_samples_the_same_trajectories(problem, policy):
    before = ox.sample(PROBLEMS[problem], POLICIES[policy], 3, KEY)
    after = ox.sample(through_json(PROBLEMS[problem]), through_json(POLICIES[policy]), 3, KEY)
    assert bool(eqx.tree_equal(before, after))
    utility, restored = PROBLEMS[problem].utility, through_json(PROBLEMS[problem]).utility
    occupancy = jnp.linspace(0.1, 1, PROBLEMS[problem].size)
    assert utility.value(occupancy) == restored.value(occupancy)
    assert restored.smoothness == utility.smoothness


@pytest.mark.parametrize(
    "algorithm",
    [
        ox.REINFORCE(),
        ox.SVRPG(),
        ox.SRVRPG(),
        ox.HSPGA(),
        ox.TSIVRPG(step_size=jnp.array(0.5)),
        ox.MaxEnt(),
    ],
    ids=lambda algorithm: type(algorithm).__name__,
)
def test_algorithms_and_their_states_come_back_the_same(algorithm):
    state = algorithm.init(PROBLEMS["coverage"], POLICIES["tabular"])
    assert bool(
        eqx.tree_equal(through_json((algorithm, state)), (algorithm, state), typematch=True)
    )


def test_plain_values_come_back_the_same():
    value = {
        "numbers": [True, 3, -0.0, 1e-300, inf, -inf, 2**70],
        "texts": ("", "with \udc80, \n and \u2603", None),
        "empty": [(), [], {}],
        "a.b": {"c": np.float64(1.5)},
        "a": {"b.c": np.float64(2.5), "class": "os.system", "opaque": "no"},
        "record": Smoothness(1.0, inf, 0.0),
    }
    restored = through_json(value)
    assert restored == value
    assert str(restored) == str(value)  # -0.0 and the order of the keys
    assert type(restored["record"]) is Smoothness
    assert np.isnan(through_json(nan))


@pytest.mark.parametrize(
    "array",
    [
        np.float64(0.1),
        np.bool_(True),
        np.array(3.5),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0)[::-2],
        np.arange(3, dtype=">i4"),
        jnp.array(2.0),
        jnp.zeros((2, 0), jnp.int32),
        jnp.array([1, nan, inf], jnp.bfloat16),
    ],
    ids=repr,
)
def test_arrays_come_back_the_same_from_a_file(array, tmp_path):
    description, arrays = codec.pack([array])
    write_arrays(tmp_path / "file", arrays, {"it": description})
    stored, metadata = read_arrays(tmp_path / "file")
    (restored,) = codec.unpack(metadata["it"], stored)
    assert type(restored) is type(array)
    assert restored.shape == array.shape
    assert restored.dtype == array.dtype.newbyteorder("=")
    assert np.asarray(restored).tobytes() == np.asarray(array, restored.dtype).tobytes()


def test_random_keys_come_back_the_same():
    keys = jax.random.split(jax.random.key(3), 2)
    assert jax.random.key_data(through_json(keys)).tolist() == jax.random.key_data(keys).tolist()
    assert through_json(keys).dtype == keys.dtype


def test_a_wide_array_of_jax_needs_wide_numbers(x64):
    array = jnp.array([1 / 3])
    description, arrays = codec.pack(array)
    assert codec.unpack(description, arrays).dtype == np.float64
    assert codec.unpack(description, arrays) == array
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"is float64 of JAX, which needs jax\.enable_x64\.$"),
    ):
        codec.unpack(description, arrays)


def test_restored_numpy_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        through_json(LAKE).initial[0] = 2.0


class Record(NamedTuple):
    weight: np.ndarray


class Mine(eqx.Module):
    weight: jax.Array
    name: str = eqx.field(static=True, default="mine")

    def method(self):
        return self.weight


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda x: x, "tests.io.test_serial.<lambda>"),
        (jnp.sin, "jax.numpy.sin"),
        (with_distance, "tests.io.test_serial.with_distance"),
        (Mine, "tests.io.test_serial.Mine"),
        (object(), "builtins.object"),
        ({1j: 2}, "builtins.dict"),
        (np.array(["text"]), "numpy.ndarray"),
        (1j, "builtins.complex"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_restored_is_named_and_refused(value, name):
    description, arrays = codec.pack((value, 1))
    assert description == {"tuple": [{"opaque": name}, 1]}
    assert arrays == {}
    with pytest.raises(
        ValueError,
        match=r"cannot be restored from a file; pass like=, a value of the same structure\.$",
    ):
        codec.unpack(description, arrays)


def test_opaque_values_show_what_they_hold_and_come_back_with_like():
    value = {
        "mine": Mine(jnp.ones(2)),
        "theirs": Record(np.zeros(3)),
        "keys": {0: jnp.array(3)},
        "step": optax.adam(1),
    }
    description, arrays = codec.pack(value)
    assert set(arrays) == {"['mine'].weight", "['theirs'].weight", "['keys'][0]"}
    assert description["dict"]["mine"] == {
        "opaque": "tests.io.test_serial.Mine",
        "parts": {".weight": {"array": "['mine'].weight", "kind": "jax"}, ".name": "mine"},
    }
    like = jax.tree.map(lambda leaf: 7 * leaf if eqx.is_array(leaf) else leaf, value)
    restored = codec.unpack(description, arrays, like)
    assert bool(eqx.tree_equal(restored, value))
    assert restored["step"] is not None


def test_a_problem_with_a_function_keeps_it_through_like():
    def problem(scale):
        return ox.Problem(
            CHAIN, ox.utilities.Custom(lambda u: scale * u.sum(), concave=True), horizon=3
        )

    description, arrays = codec.pack(problem(1.0))
    restored = codec.unpack(description, arrays, problem(2.0))
    assert restored.utility.value(jnp.ones(6)) == 12
    with pytest.raises(ValueError, match="cannot be restored"):
        codec.unpack(description, arrays)


@pytest.mark.parametrize(
    ("like", "sentence"),
    [
        (
            Mine(jnp.ones(3)),
            r"must hold float32 of shape \(2,\) at weight, as it was saved, but holds float32 of",
        ),
        (Mine(jnp.ones(2, int)), r"at weight, as it was saved, but holds int32 of shape \(2,\)\.$"),
        (Mine(np.ones(2, np.float32)), r"but differs at /parts/\.weight/kind\.$"),
        (Mine(jnp.ones(2), "other"), r"but differs at /parts/\.name\.$"),
        ((), r"but differs at the top\.$"),
    ],
)
def test_like_of_another_structure_is_refused(like, sentence):
    with pytest.raises(ValueError, match=sentence):
        codec.unpack(*codec.pack(Mine(jnp.zeros(2))), like)


def test_static_arrays_of_like_must_be_those_that_were_saved():
    class Fixed(eqx.Module):
        weight: np.ndarray = eqx.field(static=True)

    def fixed(*numbers):
        module = object.__new__(Fixed)  # Equinox warns of static arrays
        object.__setattr__(module, "weight", np.array(numbers))
        return module

    saved = codec.pack(fixed(1, 2))
    assert codec.unpack(*saved, fixed(1, 2)).weight.tolist() == [1, 2]
    with pytest.raises(
        ValueError, match="like must hold the saved numbers at weight already, because it is static"
    ):
        codec.unpack(*saved, fixed(1, 3))


@pytest.mark.parametrize(
    "other",
    [
        ox.Problem(LAKE, ox.utilities.LogCoverage(0.25), 0.9, 20, "episodic"),
        ox.Problem(LAKE, ox.utilities.LogCoverage(0.25), 0.9, 21, "absorbing"),
        ox.Problem(LAKE, ox.utilities.LogCoverage(0.25), 0.91, 20, "absorbing"),
        ox.Problem(LAKE, ox.utilities.LogCoverage(0.26), 0.9, 20, "absorbing"),
        ox.Problem(LAKE, ox.utilities.Entropy(0.25), 0.9, 20, "absorbing"),
        ox.Problem(
            LAKE, ox.utilities.LogCoverage(0.25), 0.9, 20, "absorbing", ox.features.StateAction()
        ),
        eqx.tree_at(lambda it: it.env.initial, PROBLEMS["coverage"], np.nextafter(LAKE.initial, 1)),
        eqx.tree_at(lambda it: it.env.initial, PROBLEMS["coverage"], jnp.asarray(LAKE.initial)),
    ],
)
def test_whatever_differs_changes_the_fingerprint(other):
    assert fingerprint(other) != fingerprint(PROBLEMS["coverage"])


ELSEWHERE = """
import sys, json, jax, jax.numpy as jnp, numpy as np, occupax as ox
from occupax.io import codec
from occupax.io.files import checksum, write_arrays

folder = sys.argv[1]
for i in range(8):
    ox.save_policy(ox.policies.Tabular(jnp.ones((3, 2))), f"{folder}/policy-{i}")
    arrays = {"snow \N{SNOWMAN}": np.ones(3, np.int8), "b": np.ones(2), "a": np.array(True)}
    write_arrays(f"{folder}/file-{i}", arrays, {"title": "snow \N{SNOWMAN}"})
lake = ox.Problem(ox.make("FrozenLake8x8-v1"), ox.utilities.LogCoverage(0.25), 0.9, 20, "absorbing")
own = ox.utilities.Custom(lambda u: u.sum(), domain=print)
description, arrays = codec.pack((lake, own, ox.policies.mlp()(lake.env, jax.random.key(1)),
object()))
print(checksum(json.dumps(description), arrays), checksum(*[
    f(codec.pack(lake)) for f in (lambda p: json.dumps(p[0]), lambda p: p[1])]))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory, compiled_fast):
    """Return the outputs of two processes with different hash seeds, and the folder they write."""
    folder = tmp_path_factory.mktemp("elsewhere")
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", ELSEWHERE, folder / seed],
            env=compiled_fast | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    return [run.communicate()[0].split() for run in runs], folder


def test_fingerprints_are_the_same_in_another_process(elsewhere):
    (first, second), _ = elsewhere
    assert first == second
    assert first[1] == fingerprint(PROBLEMS["coverage"])


@pytest.mark.parametrize(
    "description",
    [
        {"class": "os.system", "fields": {}},
        {"class": "subprocess.Popen", "fields": {"args": "touch executed"}},
        {"class": "occupax.io.codec.os.system", "fields": {}},
        {"class": "occupax.io.codec.Path", "fields": {}},
        {"class": "occupax.policies.__builtins__", "fields": {}},
        {"class": "occupax.__init__.make", "fields": {}},
        {"class": "occupax.make", "fields": {}},
        {"class": "occupax.policies.Policy", "fields": {}},
        {"class": "occupax.policies.tabular", "fields": {}},
        {"class": "occupax.policies.TabularMDP", "fields": {}},
        {"class": "occupax.nowhere.Thing", "fields": {}},
        {"class": "occupax..policies.Tabular", "fields": {}},
        {"class": "occupax_evil.Tabular", "fields": {}},
        {"class": "equinox.Module", "fields": {}},
        {"class": "equinox.nn._misc.os", "fields": {}},
        {"class": "equinox.nn.__loader__", "fields": {}},
        {"class": "Tabular", "fields": {}},
        {"class": "", "fields": {}},
        {"class": ["occupax.policies.Tabular"], "fields": {}},
        {"class": "occupax.policies.Tabular", "fields": []},
        {"class": "occupax.policies.Tabular"},
        {"class": "occupax.policies.Tabular", "fields": {}},
        {
            "class": "occupax.policies.Tabular",
            "fields": {"table": 1, "logits": {"function": "tanh"}},
        },
        {"class": "occupax.policies.Tabular", "fields": {"__class__": 1}},
        {"class": "occupax.utilities.base.Smoothness", "fields": {"l1": 1.0}},
        {"module": "os.system", "fields": {}},
        {"function": "os.system"},
        {"function": ["tanh"]},
        {"opaque": "os.system"},
        {"float": "1e3"},
        {"float": "__import__('os')"},
        {"array": "there", "kind": "key os.system"},
        {"array": "missing", "kind": "numpy"},
        {"array": 3, "kind": "numpy"},
        {"tuple": "text"},
        {"dict": []},
        {},
        b"bytes",
    ],
    ids=str,
)
def test_descriptions_that_pack_does_not_write_are_refused_and_nothing_is_executed(
    description, monkeypatch
):
    executed = []
    monkeypatch.setattr(os, "system", executed.append)
    monkeypatch.setattr(subprocess, "Popen", executed.append)
    with pytest.raises(ValueError, match=r"^[^\n]+\.$"):
        codec.unpack([{"dict": {"inside": description}}], {"there": np.zeros(2)})
    assert executed == []


def test_modules_outside_are_not_even_imported():
    assert "antigravity" not in sys.modules
    for address in ("antigravity.Thing", "occupax.antigravity.Thing"):
        with pytest.raises(ValueError, match="is not a class that occupax restores"):
            codec.unpack({"class": address, "fields": {}}, {})
    assert "antigravity" not in sys.modules


def test_endless_nesting_is_refused():
    description = []
    for _ in range(100_000):
        description = [description]
    with pytest.raises(ValueError, match="nested too deeply"):
        codec.unpack(description, {})
    while description:  # taken apart here, since comparing or printing it would go as deep
        description = description[0]


@pytest.fixture
def written(tmp_path):
    file = tmp_path / "file.safetensors"
    write_arrays(
        file, {"a": np.arange(20.0), "b": np.array(True)}, {"title": "of a test", "number": 1}
    )
    return file


def test_writing_replaces_a_file_and_leaves_nothing_beside_it(written):
    write_arrays(written, {}, {"title": "new"})
    assert read_arrays(str(written)) == ({}, {"title": "new"})
    write_text(written.parent / "deeper" / "text.json", "\u2603\n")
    assert (written.parent / "deeper" / "text.json").read_text(encoding="utf-8") == "\u2603\n"
    assert sorted(path.name for path in written.parent.rglob("*")) == [
        "deeper",
        "file.safetensors",
        "text.json",
    ]
    os.umask(mask := os.umask(0))
    assert written.stat().st_mode & 0o777 == 0o666 & ~mask


def test_equal_content_is_written_as_equal_bytes_by_every_process(elsewhere):
    _, folder = elsewhere
    for kind in ("policy", "file"):
        files = sorted(folder.rglob(f"{kind}-*"))
        assert (len(files), len({file.read_bytes() for file in files})) == (16, 1)
    arrays, content = read_arrays(folder / "1" / "file-0")
    assert (arrays.keys(), content) == ({"snow \u2603", "b", "a"}, {"title": "snow \u2603"})
    np.testing.assert_array_equal(arrays["b"], [1.0, 1.0])


def test_files_of_earlier_versions_are_read(tmp_path):
    text, arrays = '{"title": "old"}', {"a": np.arange(3.0)}
    # the keys of the metadata come in any order
    old = safetensors.numpy.save(
        arrays, {"occupax": text, "occupax-sha256": checksum(text, arrays)}
    )
    (tmp_path / "old").write_bytes(old)
    found, content = read_arrays(tmp_path / "old")
    assert content == {"title": "old"}
    np.testing.assert_array_equal(found["a"], arrays["a"])


class Holder(eqx.Module):
    arrays: list[jax.Array]
    word: str
    number: float


def test_the_arrays_of_a_tree_have_names_and_can_be_put_back():
    tree = Holder([jnp.arange(3), jnp.ones((2, 2))], "word", 1.5)
    named = codec.named_arrays(tree)
    assert named.keys() == {".arrays[0]", ".arrays[1]"}
    assert all(type(array) is np.ndarray for array in named.values())
    back = codec.with_arrays_of(tree, {name: array + 1 for name, array in named.items()})
    assert (back.word, back.number, type(back.arrays[0])) == ("word", 1.5, type(tree.arrays[0]))
    np.testing.assert_array_equal(back.arrays[0], [1, 2, 3])
    np.testing.assert_array_equal(back.arrays[1], np.full((2, 2), 2.0))


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_to_write_leaves_the_old_file_and_nothing_else(written, monkeypatch, failing):
    def fail(*_):
        raise OSError("no space left")

    before = written.read_bytes()
    monkeypatch.setattr(os if failing == "fsync" else type(written), failing, fail)
    with pytest.raises(OSError, match="no space left"):
        write_arrays(written, {}, {})
    assert written.read_bytes() == before
    assert list(written.parent.iterdir()) == [written]


def test_what_cannot_be_written_is_refused(written):
    folder = written.parent
    with pytest.raises(
        ValueError, match=r"path must be the path of a file, but .* is a directory\.$"
    ):
        write_arrays(folder, {}, {})
    with pytest.raises(ValueError, match=r"path must be in a directory, but .* is a file\.$"):
        write_arrays(written / "inside" / "file", {}, {})
    with pytest.raises(
        ValueError, match=r"arrays must be of a type that safetensors can hold: .*complex128"
    ):
        write_arrays(folder / "other", {"a": np.ones(1, complex)}, {})
    assert list(folder.iterdir()) == [written]


def test_every_flipped_bit_is_noticed(written):
    whole = written.read_bytes()
    header = whole[8 : 8 + int.from_bytes(whole[:8], "little")]
    padding = range(8 + len(header.rstrip()), 8 + len(header))  # spaces that mean nothing
    for place in range(len(whole)):
        if place not in padding:
            written.write_bytes(
                whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]
            )
            with pytest.raises(ValueError, match=r"file\.safetensors (is|was) .*\.$"):
                read_arrays(written)
    written.write_bytes(whole)
    assert read_arrays(written)[1] == {"title": "of a test", "number": 1}


def test_every_truncation_is_noticed(written):
    whole = written.read_bytes()
    for length in range(len(whole)):
        written.write_bytes(whole[:length])
        with pytest.raises(
            ValueError, match=r"file\.safetensors is damaged or not a safetensors file: "
        ):
            read_arrays(written)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"some text, not arrays", "is damaged or not a safetensors file: "),
        (b"", "is damaged or not a safetensors file: "),
        (
            safetensors.numpy.save({"a": np.ones(3)}),
            r"is a safetensors file, but not one that occupax wrote\.$",
        ),
        (
            safetensors.numpy.save({}, {"occupax": "{}"}),
            r"is a safetensors file, but not one that occupax wrote\.$",
        ),
        (
            safetensors.numpy.save({}, {"occupax": "[1]", "occupax-sha256": checksum("[1]", {})}),
            r"is a safetensors file, but not one that occupax wrote\.$",
        ),
        (safetensors.numpy.save({}, {"occupax": "{", "occupax-sha256": ""}), "is damaged or not"),
        (
            safetensors.numpy.save({}, {"occupax": "[" * 100_000, "occupax-sha256": ""}),
            "is damaged or not",
        ),
        (
            safetensors.numpy.save({}, {"occupax": "{}", "occupax-sha256": ""}),
            "was changed after it was written",
        ),
    ],
    ids=[
        "text",
        "empty",
        "no-json",
        "no-checksum",
        "a-list",
        "half-json",
        "deep-json",
        "wrong-checksum",
    ],
)
def test_files_of_others_are_refused(tmp_path, content, sentence):
    (tmp_path / "theirs").write_bytes(content)
    with pytest.raises(ValueError, match=f"theirs {sentence}"):
        read_arrays(tmp_path / "theirs")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing does not exist\.$"):
        read_arrays(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r" is not a file\.$"):
        read_arrays(tmp_path)
