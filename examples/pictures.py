"""Draw the pictures of the README and of the concept pages from new training runs.

python examples/pictures.py               draws all of them, in about five minutes
python examples/pictures.py goals         draws one of them

The results are cached in `.cache/pictures`, so that a change of the drawing takes seconds.
Every picture is written twice, for light and for dark pages: `docs/figures/NAME.svg` and
`docs/figures/NAME-dark.svg`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

import occupax as ox
from occupax.analysis.plots import svg_text

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs" / "figures"
CACHE = ROOT / ".cache" / "pictures"


class Palette(NamedTuple):
    """Colours of a page."""

    suffix: str
    paper: str
    ink: str
    faint: str
    wall: str
    accent: str
    optimum: str


LIGHT = Palette("", "#ffffff", "#222222", "#8a8a8a", "#d9d9d9", "#3949ab", "#b3541e")
DARK = Palette("-dark", "#1e2129", "#e4e6eb", "#8f95a3", "#4a4f5c", "#8c9eff", "#ffab70")
COLOURS = "viridis"

PLAN = """
S....mm...
.##..mm...
.##..mm.#.
.....mm.#.
.#........
.#..mm...G
"""
ROWS = PLAN.split()
CELLS = [
    (row, column)
    for row in range(len(ROWS))
    for column in range(len(ROWS[0]))
    if ROWS[row][column] != "#"
]
OPTIONS: dict[str, Any] = {"discount": 0.97, "horizon": 80}


# Problems on one map


def build_map() -> ox.TabularMDP:
    """Return the map as a table in which one step in ten slips to each side."""
    return ox.TabularMDP.gridworld(PLAN.replace("m", "."), slip=0.1)


def mud_cost(env: ox.TabularMDP) -> np.ndarray:
    """Return the cost [S, A] of a step in the mud, 1."""
    muddy = [float(ROWS[row][column] == "m") for row, column in CELLS]
    return np.repeat(np.array(muddy)[:, None], env.num_actions, axis=1)


def demonstrate(env: ox.TabularMDP) -> np.ndarray:
    """Return the visits of one recorded walk along the left wall and the bottom."""
    places = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2), (3, 3), (4, 3), (4, 4), (4, 5)]
    places += [(4, 6), (4, 7), (4, 8), (4, 9)]
    steps = [1, 1, 1, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1]  # left, down, right, up
    walk = [(CELLS.index(places[i]), steps[i]) for i in range(len(places))]
    return ox.demonstrations(env, [walk], **OPTIONS)


def four_goals() -> dict[str, ox.Problem]:
    """Return the four problems by title."""
    env = build_map()
    coverage = ox.utilities.LogCoverage(sigma=0.1)
    dry = ox.Constraint(mud_cost(env), at_most=1.0, name="mud")
    imitation = ox.utilities.ForwardKL(demonstrate(env), smoothing=0.01)
    return {
        "Reach the goal": ox.Problem(env, **OPTIONS),
        "Cover the map": ox.Problem(env, coverage, **OPTIONS),
        "Cover, at most 1 step of mud": ox.Problem(env, coverage, constraints=[dry], **OPTIONS),
        "Imitate a demonstration": ox.Problem(env, imitation, **OPTIONS),
    }


def table_of(problem: ox.Problem, policy: Any) -> np.ndarray:
    """Return the action probabilities [S, A] of a policy."""
    env: Any = problem.env
    return np.asarray(jax.vmap(policy.probs)(jnp.arange(env.num_states)), float)


def state_visits(problem: ox.Problem, probs: np.ndarray) -> np.ndarray:
    """Return the discounted visits of each state."""
    return np.asarray(ox.exact.occupancy(problem, probs)).sum(1)


def compute_goals() -> dict[str, Any]:
    """Train a policy for each of the four goals and solve each problem exactly."""
    panels: dict[str, Any] = {}
    for title, problem in four_goals().items():
        env: Any = problem.env
        uniform = np.full((env.num_states, env.num_actions), 1 / env.num_actions)
        result = ox.train(problem, episodes=30_000, seeds=5, progress=False)
        learned = table_of(problem, result.best_policy)
        optimum = ox.solve(problem, tolerance=1e-3)
        value = ox.exact.value(problem, learned)
        start = ox.exact.value(problem, uniform)
        assert value <= optimum.value + optimum.gap + 0.02 * abs(optimum.value)  # noqa: S101
        panels[title] = {
            "uniform": state_visits(problem, uniform),
            "learned": state_visits(problem, learned),
            "start": start,
            "value": value,
            "optimum": optimum.value,
            "score": (value - start) / (optimum.value - start),
        }
        if problem.constraints:
            cost = mud_cost(env)
            visits = np.asarray(ox.exact.occupancy(problem, learned))
            panels[title]["mud"] = float((visits * cost).sum())
        print(f"  {title}: {panels[title]['score']:.3f}, {panels[title].get('mud')}")
    return panels


def draw_map(axes: Any, visits: np.ndarray, palette: Palette, largest: float) -> Any:
    """Draw the visits of each cell, the walls, the mud, the start and the goal."""
    image = np.full((len(ROWS), len(ROWS[0])), np.nan)
    for state, cell in enumerate(CELLS):
        image[cell] = visits[state]
    drawn = axes.imshow(np.sqrt(image), vmin=0, vmax=np.sqrt(largest), cmap=COLOURS)
    for row in range(len(ROWS)):
        for column in range(len(ROWS[0])):
            draw_cell(axes, row, column, palette)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return drawn


def draw_cell(axes: Any, row: int, column: int, palette: Palette) -> None:
    """Mark a wall, a muddy cell, the start or the goal."""
    kind = ROWS[row][column]
    if kind == "#":
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, color=palette.wall, linewidth=0))
    if kind == "m":
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", linewidth=0)
        box.set_edgecolor("#c98f5a")
        axes.add_patch(box)
    if kind in "SG":
        axes.text(
            column,
            row,
            kind,
            color="#ffffff",
            ha="center",
            va="center",
            fontsize=10,
            fontweight="bold",
        )


def draw_goals(panels: dict[str, Any], palette: Palette) -> Figure:
    """Draw the uniform policy above and the learned policy below, for each goal."""
    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(h_pad=0.1)
    axes = figure.subplots(2, len(panels))
    largest = max(float(np.sort(panel["learned"])[-2]) for panel in panels.values())
    for index, (title, panel) in enumerate(panels.items()):
        draw_map(axes[0, index], panel["uniform"], palette, largest)
        draw_map(axes[1, index], panel["learned"], palette, largest)
        axes[0, index].set_title(title, fontsize=11, fontweight="bold")
        axes[0, index].set_xlabel("uniform policy: 0%", fontsize=9.5)
        below = f"learned: {panel['score']:.0%} of the best possible"
        if "mud" in panel:
            below += f"\n{panel['mud']:.2f} steps of mud"
        axes[1, index].set_xlabel(below, fontsize=9.5)
    return figure


# The certified gap over training


def compute_gap() -> dict[str, Any]:
    """Train on the large lake, with the exact utility and the certified gap of every record."""
    coverage = ox.utilities.LogCoverage(sigma=0.125)
    problem = ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99, horizon=200)
    result = ox.train(problem, ox.REINFORCE(), 50_000, record_every=25, exact=True, progress=False)
    optimum = ox.solve(problem, tolerance=1e-3)
    return {
        "episodes": np.asarray(result.episodes),
        "utility": np.asarray(result.metrics["exact_utility"][0]),
        "gap": np.asarray(result.metrics["gap"][0]),
        "optimum": optimum.value,
    }


def draw_gap(curve: dict[str, Any], palette: Palette) -> Figure:
    """Draw the exact utility, the certified bound above it and the optimum."""
    figure = Figure(figsize=(7.4, 3.4), layout="constrained")
    axes = figure.subplots()
    bound = np.minimum.accumulate(curve["utility"] + curve["gap"])
    episodes = curve["episodes"] / 1000
    axes.fill_between(
        episodes, curve["utility"], bound, color=palette.accent, alpha=0.2, linewidth=0
    )
    axes.plot(episodes, bound, color=palette.accent, linewidth=1, alpha=0.7)
    axes.plot(episodes, curve["utility"], color=palette.accent, linewidth=2)
    axes.axhline(curve["optimum"], color=palette.optimum, linewidth=1.4, linestyle="--")
    axes.set_ylim(-40, -12)
    axes.set_xlim(0, episodes[-1])
    labels = (
        (bound[-1], "certified bound", palette.accent, "bottom"),
        (curve["optimum"], "optimum", palette.optimum, "center"),
        (curve["utility"][-1], "learned policy", palette.accent, "top"),
    )
    for y, text, colour, side in labels:
        axes.annotate(
            text,
            (1.01, y),
            xycoords=("axes fraction", "data"),
            color=colour,
            va=side,
            annotation_clip=False,
        )
    axes.set_xlabel("episodes (thousands)")
    axes.set_ylabel("log coverage")
    return figure


# The price of a constraint


def constrained(threshold: float) -> ox.Problem:
    """Return the coverage problem with at most `threshold` discounted steps in the mud."""
    env = build_map()
    dry = ox.Constraint(mud_cost(env), at_most=threshold, name="mud")
    return ox.Problem(env, ox.utilities.Entropy(), constraints=[dry], **OPTIONS)


def compute_price() -> dict[str, Any]:
    """Solve and train under several thresholds."""
    thresholds = [0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
    optima = [ox.solve(constrained(threshold), tolerance=1e-3) for threshold in thresholds]
    points: list[tuple[float, float]] = []
    for threshold in (0.5, 1.0, 2.0, 3.0):
        problem = constrained(threshold)
        env: Any = problem.env
        cost = mud_cost(env)
        result = ox.train(problem, episodes=30_000, seeds=5, progress=False)
        for policy in result.policies:
            probs = table_of(problem, policy)
            mud = float((np.asarray(ox.exact.occupancy(problem, probs)) * cost).sum())
            points.append((mud, float(ox.exact.value(problem, probs))))
        print(f"  mud <= {threshold}: {points[-5:]}")
    return {
        "thresholds": thresholds,
        "values": [optimum.value for optimum in optima],
        "multipliers": [optimum.multipliers["mud"] for optimum in optima],
        "points": points,
    }


def draw_price(price: dict[str, Any], palette: Palette) -> Figure:
    """Draw the best utility against the threshold, a tangent and the trained seeds."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(price["thresholds"], price["values"], color=palette.optimum, linewidth=2)
    mud = [point[0] for point in price["points"]]
    values = [point[1] for point in price["points"]]
    axes.plot(mud, values, "o", color=palette.accent, markersize=5)
    middle = price["thresholds"].index(1.0)
    slope = price["multipliers"][middle]
    ends = np.array([0.3, 2.4])
    tangent = price["values"][middle] + slope * (ends - 1.0)
    axes.plot(ends, tangent, color=palette.faint, linewidth=1.2, linestyle="--")
    slope_text = f"slope = multiplier = {slope:.3f}"
    axes.text(2.35, tangent[1] + 0.004, slope_text, ha="right", color=palette.ink)
    axes.text(2.9, price["values"][-1] - 0.05, "optimum (certified)", color=palette.optimum)
    trained = "trained policies, five seeds per threshold"
    axes.text(1.3, min(values) - 0.01, trained, color=palette.accent)
    axes.set_xlabel("discounted steps in the mud")
    axes.set_ylabel("entropy of the visits")
    return figure


# Densities of networks


def compute_density() -> dict[str, Any]:
    """Return the visits of networks on MountainCar and CartPole before and after training."""
    boxes = {
        "MountainCar-v0": ((-1.2, -0.07), (0.6, 0.07), [0, 1], "position", "velocity"),
        "CartPole-v1": ((-2.4, -0.21), (2.4, 0.21), [0, 2], "position", "angle"),
    }
    panels: dict[str, Any] = {}
    for name, (low, high, coordinates, across, upwards) in boxes.items():
        coarse = ox.features.Grid(list(low), list(high), [16, 16], coordinates=coordinates)
        fine = ox.features.Grid(list(low), list(high), [48, 48], coordinates=coordinates)
        coverage = ox.utilities.LogCoverage(sigma=0.125)
        horizon = 200
        problem = ox.Problem(name, coverage, discount=0.99, horizon=horizon, features=coarse)
        shown = ox.Problem(name, coverage, discount=0.99, horizon=horizon, features=fine)
        before = ox.policies.mlp()(problem.env, jax.random.key(0))
        result = ox.train(problem, episodes=3_000, seeds=3, progress=False)
        densities: list[np.ndarray] = []
        widths: list[float] = []
        for policy in (before, result.best_policy):
            episodes = ox.sample(shown, policy, 2_000, jax.random.key(1))
            densities.append(np.asarray(ox.estimators.occupancy(shown, episodes, policy)))
            visits = np.asarray(ox.estimators.occupancy(problem, episodes, policy))
            shares = visits[visits > 0] / visits.sum()
            widths.append(float(np.exp(-(shares * np.log(shares)).sum())))
        print(f"  {name}: {widths}")
        panels[name] = {
            "densities": densities,
            "widths": widths,
            "extent": (low[0], high[0], low[1], high[1]),
            "labels": (across, upwards),
        }
    return panels


def draw_density(panels: dict[str, Any], _: Palette) -> Figure:
    """Draw the visits of the initial and of the trained network for each environment."""
    figure = Figure(figsize=(9.6, 2.9), layout="constrained")
    axes = figure.subplots(1, 2 * len(panels))
    for index, (name, panel) in enumerate(panels.items()):
        largest = np.quantile(panel["densities"][1], 0.995)
        for column in range(2):
            part = axes[2 * index + column]
            density = panel["densities"][column].reshape(48, 48).T
            part.imshow(
                np.sqrt(density),
                origin="lower",
                aspect="auto",
                extent=panel["extent"],
                cmap=COLOURS,
                vmin=0,
                vmax=np.sqrt(largest),
            )
            stage = ("before training", "after training")[column]
            part.set_title(f"{name}, {stage}", fontsize=9.5)
            part.set_xlabel(f"{panel['labels'][0]}\nas wide as {panel['widths'][column]:.0f} cells")
            if column == 0:
                part.set_ylabel(panel["labels"][1])
            else:
                part.set_yticks([])
    return figure


# Fairness


def compute_fairness() -> dict[str, Any]:
    """Solve three utilities of two rewards exactly."""
    env = ox.TabularMDP.gridworld("S....\n.....\n.....", slip=0.1)
    columns = np.arange(15) % 5
    left = np.repeat(columns[:, None] == 0, 4, axis=1).astype(float)
    right = np.repeat(columns[:, None] == 4, 4, axis=1).astype(float)
    goals = {
        "sum of the rewards": ox.utilities.Linear(left + right),
        "soft minimum": ox.utilities.SoftMin(left, right, temperature=0.05),
        "Nash welfare": ox.utilities.NashWelfare(left, right),
    }
    bars: dict[str, Any] = {}
    for name, utility in goals.items():
        problem = ox.Problem(env, utility, discount=0.9, horizon=20)
        optimum = ox.solve(problem, tolerance=1e-3)
        visits = np.asarray(optimum.occupancy)
        bars[name] = (float((visits * left).sum()), float((visits * right).sum()))
    return bars


def draw_fairness(bars: dict[str, Any], palette: Palette) -> Figure:
    """Draw the return of both parties for each utility."""
    figure = Figure(figsize=(6.0, 2.7), layout="constrained")
    axes = figure.subplots()
    for index, values in enumerate(bars.values()):
        for party, colour in enumerate((palette.accent, palette.optimum)):
            x = index + 0.38 * (party - 0.5)
            axes.bar(x, values[party], width=0.34, color=colour)
            axes.text(
                x, values[party] + 0.12, f"{values[party]:.2f}", ha="center", color=palette.ink
            )
    axes.set_xticks(range(len(bars)), list(bars))
    axes.set_ylabel("discounted return")
    axes.set_ylim(0, 10)
    names = ("reward of the left column", "reward of the right column")
    for name, colour, y in zip(names, (palette.accent, palette.optimum), (0.97, 0.86), strict=True):
        axes.text(0.45, y, name, color=colour, transform=axes.transAxes, va="top")
    return figure


# Learning curves of the algorithms

FAMILIES = {
    "reinforce": ("reinforce", "maxent"),
    "epochs": ("svrpg", "srvr-pg", "hspga", "tsivr-pg", "reinforce"),
    "recursive": ("storm", "page", "n-vr-pg", "n-harpg", "reinforce"),
    "plug-in": ("plug-in", "reinforce"),
}
TITLES = {
    "reinforce": "REINFORCE",
    "maxent": "MaxEnt",
    "svrpg": "SVRPG",
    "srvr-pg": "SRVR-PG",
    "hspga": "HSPGA",
    "tsivr-pg": "TSIVR-PG",
    "storm": "STORM",
    "page": "PAGE",
    "n-vr-pg": "N-VR-PG",
    "n-harpg": "N-HARPG",
    "plug-in": "PlugIn",
}


def compute_curves() -> dict[str, Any]:
    """Train every algorithm on the large lake, with the exact utility of every log entry."""
    coverage = ox.utilities.LogCoverage(sigma=0.125)
    problem = ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99, horizon=200)
    curves: dict[str, Any] = {"optimum": ox.solve(problem, tolerance=1e-2).value}
    for name in TITLES:
        result = ox.train(
            problem, name, 20_000, seeds=5, record_every=25, exact=True, progress=False
        )
        curves[name] = (np.asarray(result.episodes), np.asarray(result.metrics["exact_utility"]))
        print(f"  {name}: {np.median(curves[name][1][:, -1]):.2f}")
    return curves


def draw_curves(curves: dict[str, Any], names: tuple[str, ...], palette: Palette) -> Figure:
    """Draw the median and the range over seeds of each algorithm, and the optimum."""
    colours = (palette.accent, "#2a9d8f", "#c2557a", "#8a6fd1", palette.faint)
    figure = Figure(figsize=(7.4, 3.2), layout="constrained")
    axes = figure.subplots()
    ends: list[tuple[float, str, str]] = []
    for index, name in enumerate(names):
        last = name == "reinforce" and len(names) > 1 and index > 0
        colour = palette.faint if last else colours[index]
        episodes, utilities = curves[name]
        median = np.median(utilities, axis=0)
        axes.plot(episodes / 1000, median, color=colour, linewidth=2)
        axes.fill_between(
            episodes / 1000,
            utilities.min(0),
            utilities.max(0),
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        ends.append((float(median[-1]), TITLES[name], colour))
    ends.append((curves["optimum"], "optimum", palette.optimum))
    axes.axhline(curves["optimum"], color=palette.optimum, linewidth=1.4, linestyle="--")
    axes.set_xlim(0, 20)
    axes.set_ylim(-60, -20)
    position = -np.inf
    for value, label, colour in sorted(ends):
        position = max(value, position + 2.4)
        axes.annotate(
            label,
            (1.01, position),
            xycoords=("axes fraction", "data"),
            color=colour,
            va="center",
            annotation_clip=False,
        )
    axes.set_xlabel("episodes (thousands)")
    axes.set_ylabel("exact log coverage")
    return figure


# The occupancy over training, animated

BUDGETS = (20, 40, 80, 120, 200, 300, 500, 800, 1_200, 2_000, 3_000, 5_000, 8_000, 12_000)


def compute_lake() -> dict[str, Any]:
    """Train on the large lake with growing budgets, and record an episode of the last policy."""
    coverage = ox.utilities.LogCoverage(sigma=0.125)
    problem = ox.Problem("FrozenLake8x8-v1", coverage, discount=0.99, horizon=200)
    optimum = ox.solve(problem, tolerance=1e-2)
    frames: list[tuple[int, float, np.ndarray]] = []
    policy: Any = None
    for budget in BUDGETS:
        policy = ox.train(problem, episodes=budget, progress=False).policy()
        probs = table_of(problem, policy)
        value = float(ox.exact.value(problem, probs))
        frames.append((budget, value, state_visits(problem, probs)))
    return {"frames": frames, "optimum": optimum.value, "walk": play_episode(policy)}


def play_episode(policy: Any) -> list[np.ndarray]:
    """Return small pictures of the agent on the ice."""
    import gymnasium as gym

    env = gym.make("FrozenLake8x8-v1", render_mode="rgb_array")
    observation, _ = env.reset(seed=7)
    pictures = [np.asarray(env.render())[::2, ::2]]
    over = False
    while not over and len(pictures) < 60:
        action = policy.predict(observation, seed=len(pictures))
        observation, _, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        pictures.append(np.asarray(env.render())[::2, ::2])
    return pictures


def animate_lake(lake: dict[str, Any], path: Path) -> None:
    """Write the animation: the visits over training beside an episode of the trained policy."""
    use_palette(LIGHT)
    frames = lake["frames"]
    largest = float(np.sort(frames[-1][2])[-2])
    pictures: list[Image.Image] = []
    for index in range(3 * len(frames)):
        figure = Figure(figsize=(5.6, 3.1), layout="constrained", dpi=90)
        canvas = FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        budget, value, cells = frames[index // 3]
        visits = np.sqrt(cells.reshape(8, 8))
        left.imshow(visits, vmin=0, vmax=np.sqrt(largest), cmap=COLOURS)
        right.imshow(lake["walk"][index % len(lake["walk"])])
        left.set_title(f"visits after {budget:,} episodes", fontsize=10)
        left.set_xlabel(f"log coverage {value:.1f}, best possible {lake['optimum']:.1f}")
        right.set_title("the trained policy on the ice", fontsize=10)
        for axes in (left, right):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        canvas.draw()
        pictures.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    options: dict[str, Any] = {"duration": 120, "loop": 0, "quality": 70, "method": 6}
    pictures[0].save(path, save_all=True, append_images=pictures[1:], **options)


PICTURES: dict[str, tuple[Callable[[], Any], Callable[[Any, Palette], Figure]]] = {
    "goals": (compute_goals, draw_goals),
    "gap": (compute_gap, draw_gap),
    "price": (compute_price, draw_price),
    "density": (compute_density, draw_density),
    "fairness": (compute_fairness, draw_fairness),
}


def load_or_compute(name: str, compute: Callable[[], Any]) -> Any:
    """Return the results of a picture, from the cache if they are there."""
    path = CACHE / f"{name}.json"
    if not path.exists():
        text = json.dumps(compute(), default=as_lists)
        CACHE.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return as_arrays(json.loads(path.read_text("utf-8")))


def as_lists(value: Any) -> Any:
    """Return an array or a NumPy number for JSON, an array with its dtype."""
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "values": value.tolist()}
    return value.item()


def as_arrays(value: Any) -> Any:
    """Return the arrays of `as_lists` inside nested lists and dictionaries."""
    if isinstance(value, list):
        return [as_arrays(part) for part in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"dtype", "values"}:
        return np.array(value["values"], value["dtype"])
    return {key: as_arrays(part) for key, part in value.items()}


def use_palette(palette: Palette) -> None:
    """Set the colours of all figures that follow."""
    mpl.rcParams.update(mpl.rcParamsDefault)
    mpl.rcParams.update(
        {
            "figure.facecolor": palette.paper,
            "axes.facecolor": palette.paper,
            "axes.edgecolor": palette.faint,
            "axes.labelcolor": palette.ink,
            "axes.titlecolor": palette.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": palette.ink,
            "ytick.color": palette.ink,
            "text.color": palette.ink,
            "font.size": 10,
            "hatch.linewidth": 0.8,
        }
    )


def write_picture(name: str) -> None:
    """Compute a picture, and write it for light and for dark pages."""
    if name == "lake":
        animate_lake(load_or_compute("lake", compute_lake), FIGURES / "lake.webp")
        return
    if name == "curves":
        curves = load_or_compute("curves", compute_curves)
        for family, members in FAMILIES.items():
            for palette in (LIGHT, DARK):
                use_palette(palette)
                text = svg_text(draw_curves(curves, members, palette), family)
                (FIGURES / f"curves-{family}{palette.suffix}.svg").write_text(text, "utf-8")
        return
    compute, draw = PICTURES[name]
    results = load_or_compute(name, compute)
    for palette in (LIGHT, DARK):
        use_palette(palette)
        text = svg_text(draw(results, palette), name)
        (FIGURES / f"{name}{palette.suffix}.svg").write_text(text, "utf-8")


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*PICTURES, "curves", "lake"]:
        print(chosen)
        write_picture(chosen)
