"""The exact optima behind the paper's experiments on FrozenLake8x8 (sections 6.2 and 6.3)."""

import occupax as ox

PAPER_RETURN = 0.4146


def main() -> None:
    env = ox.make("FrozenLake8x8-v1")
    print("FrozenLake8x8, slippery, discount 0.99")
    for horizon in (None, 200):
        best = ox.exact.value_iteration(ox.Problem(env, discount=0.99, horizon=horizon)).value
        print(f"  best return, horizon {horizon or 'infinite'}: {best:.6f} (the paper prints {PAPER_RETURN})")
    for termination in ("episodic", "absorbing"):
        problem = ox.Problem(env, ox.utilities.LogCoverage(sigma=0.125), discount=0.99, termination=termination)
        best = ox.solve(problem)
        print(f"  best log coverage, {termination}: {best.value:.4f} (certified gap {best.gap:.0e})")


if __name__ == "__main__":
    main()
