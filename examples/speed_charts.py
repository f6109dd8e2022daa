"""Draw the charts of docs/performance.md from the measurements in benchmarks/RESULTS.md.

python examples/speed_charts.py
"""

import re

import pictures
from matplotlib.figure import Figure

from occupax.analysis.plots import svg_text

LEDGER = pictures.ROOT / "benchmarks" / "RESULTS.md"
PROGRAMS = {
    "Occupax, REINFORCE, seeds: 50": "Occupax, 50 seeds",
    "Occupax, REINFORCE, seeds: 1": "Occupax, 1 seed",
    "A2C, 16 environments": "Stable-Baselines3 A2C, 16 environments",
    "PyTorch loop": "PyTorch loop",
    "A2C, 1 environment": "Stable-Baselines3 A2C, 1 environment",
}
SIZES = {
    "seeds": "Seeds",
    "batch size": "Batches, N and B together",
    "horizon": "Horizon",
    "states": "States",
}


def read_table(title: str) -> list[list[str]]:
    """Return the rows of the table below a bold title of the ledger, without its header."""
    text = LEDGER.read_text("utf-8")
    match = re.search(rf"\*\*{re.escape(title)}\*\*\n\n((?:\|.*\n)+)", text)
    if match is None:
        raise ValueError(f"{LEDGER.name} must have a table {title!r}.")
    rows = [line.strip("| ").split(" | ") for line in match[1].splitlines()]
    return rows[2:]


def number(text: str) -> float:
    """Return a number that is written with commas."""
    return float(text.replace(",", ""))


def draw_speed(palette: pictures.Palette) -> Figure:
    """Draw the steps per second of each program on a logarithmic axis."""
    rates = {row[0]: number(row[1]) for row in read_table("CartPole, a network")}
    figure = Figure(figsize=(7.4, 2.4), layout="constrained")
    axes = figure.subplots()
    for index, (program, label) in enumerate(PROGRAMS.items()):
        colour = palette.accent if program.startswith("Occupax") else palette.faint
        axes.barh(-index, rates[program], color=colour, height=0.62)
        axes.text(rates[program] * 1.15, -index, f"{rates[program]:,.0f}", va="center")
        axes.text(700, -index, f"{label}  ", va="center", ha="right")
    axes.set_xscale("log")
    axes.set_xlim(800, 12_000_000)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("environment steps per second")
    return figure


def draw_scaling(palette: pictures.Palette) -> Figure:
    """Draw the time of an epoch against four sizes, relative to the smallest."""
    figure = Figure(figsize=(8.6, 2.5), layout="constrained")
    panels = figure.subplots(1, len(SIZES))
    for axes, (label, title) in zip(panels, SIZES.items(), strict=True):
        rows = read_table(title)
        sizes = [number(row[0]) for row in rows]
        seconds = [number(row[1]) for row in rows]
        relative_sizes = [size / sizes[0] for size in sizes]
        relative_times = [time / seconds[0] for time in seconds]
        axes.loglog(relative_sizes, relative_sizes, ":", color=palette.faint)
        axes.loglog(relative_sizes, relative_times, "o-", color=palette.accent)
        axes.set_xlabel(f"{label}, relative")
    panels[0].set_ylabel("time per epoch, relative")
    return figure


if __name__ == "__main__":
    for name, draw in {"speed": draw_speed, "scaling": draw_scaling}.items():
        for palette in (pictures.LIGHT, pictures.DARK):
            pictures.use_palette(palette)
            text = svg_text(draw(palette), name)
            (pictures.FIGURES / f"{name}{palette.suffix}.svg").write_text(text, "utf-8")
