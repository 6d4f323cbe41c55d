"""Discrete, degenerate and messy data: false positives and power, as rows of the second table of bench/inference.py.

Each case is a function of a number of data sets and a generator, and returns the fraction of false positives at a nominal
0.05 (of equivalence: false claims at the margin) and, where there is one, the power.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

import voicelab as vl
from voicelab.stats import CrossedTest, Estimate, SequentialTest, crossed_mean, effects, equivalence
from voicelab.stats.crossed import complete_tables
from voicelab.stats.factors import Contrasts, over_texts

Floats = npt.NDArray[np.float64]
Case = Callable[[int, np.random.Generator], dict[str, float]]
CHUNK = 250
RNG = np.random.Generator


def p_values(values: Floats, factors: dict[str, Any], column: str = "p", **options: Any) -> Floats:
    """Analyze metrics (takes, metrics) of a sweep over v; return a column of the table of effects."""
    found = []
    for begin in range(0, values.shape[1], CHUNK):
        block = values[:, begin : begin + CHUNK]
        names = [f"m{index}" for index in range(block.shape[1])]
        frame = pd.DataFrame(block, columns=names).assign(**factors)
        found.append(effects(frame, "v", names, **options).frame[column].to_numpy())
    return np.concatenate(found)


def rate(p: Floats) -> float:
    """Compute the fraction of significant results."""
    return round(float(np.mean(p <= 0.05)), 4)


def discrete(kind: str, texts: int, takes: int, sets: int, rng: RNG) -> dict[str, float]:
    """Analyze shares (Bernoulli, 0.3), counts (Poisson, 1), or values that all takes of a cell share, of two levels."""
    text, level, _ = (axis.ravel() for axis in np.indices((texts, 2, takes)))
    shape = text.size, sets
    values = (rng.random(shape) < 0.3).astype(float) if kind == "shares" else rng.poisson(1.0, shape).astype(float)
    if kind == "constant takes":
        values = rng.standard_normal((texts * 2, sets))[2 * text + level]
    random: dict[str, Any] = {"column": "p_texts", "blocks": "text"} if texts > 1 else {}
    return {"type1": rate(p_values(values, {"text": text.astype(str), "v": level}, **random))}


def family(sets: int, rng: RNG) -> dict[str, float]:
    """Count sets of 26 normal and 8 discrete metrics, 8 texts × 2 takes, with any significant effect after Holm."""
    text, level, _ = (axis.ravel() for axis in np.indices((8, 2, 2)))
    names, wrong = [f"m{index}" for index in range(34)], 0
    for _ in range(sets // 4):
        discrete_values = [rng.random((32, 4)) < 0.1, rng.poisson(0.3, (32, 4))]
        frame = pd.DataFrame(np.hstack([rng.standard_normal((32, 26)), *discrete_values]), columns=names)
        found = effects(frame.assign(text=text.astype(str), v=level), "v", names, blocks="text").frame
        wrong += bool((found["p_texts_holm"] <= 0.05).any())
    return {"type1": round(wrong / (sets // 4), 4)}


def rare(texts: int, share: float, words: bool, sets: int, rng: RNG) -> dict[str, float]:
    """Claim equivalence of WER 0 and of 0.5 in a share of the texts, with the difference at the margin."""
    total = rng.integers(3, 30, texts) if words else np.ones(texts)
    level, wrong = np.repeat([0, 1], texts), []
    for begin in range(0, sets, CHUNK):
        count = min(CHUNK, sets - begin)
        wer = 0.5 * (rng.random((texts, count)) < share)
        names = [f"m{index}" for index in range(count)]
        frame = pd.DataFrame(np.vstack([np.zeros_like(wer), wer]), columns=names)
        frame = frame.assign(text=[*map(str, range(texts))] * 2, v=level, words=np.tile(total, 2))
        found = effects(frame, "v", names, blocks="text", totals=dict.fromkeys(names, "words"))
        wrong.append(equivalence(found, 0.5 * share).frame["p"].to_numpy())
    return {"type1": rate(np.concatenate(wrong))}


def word_errors(texts: int, sets: int, rng: RNG) -> dict[str, float]:
    """Compare pooled WER of 3 to 30 words per text, beta-binomial with a mean of 0.06 and correlation 0.1; power: 0.12."""
    level, rates = np.repeat([0, 1], texts), {}
    for name, mean in (("type1", 0.06), ("power", 0.12)):
        p = []
        for begin in range(0, sets, CHUNK):
            count = min(CHUNK, sets - begin)
            # Texts of 3 to 30 words are drawn anew for each block of sets.
            words = rng.integers(3, 31, texts)
            sides = [
                rng.binomial(words[:, None], rng.beta(9.0 * share, 9.0 * (1.0 - share), (texts, count)))
                / words[:, None]
                for share in (0.06, mean)
            ]
            names = [f"m{index}" for index in range(count)]
            frame = pd.DataFrame(np.vstack(sides), columns=names)
            frame = frame.assign(text=[*map(str, range(texts))] * 2, v=level, words=np.tile(words, 2))
            found = effects(frame, "v", names, blocks="text", totals=dict.fromkeys(names, "words"))
            p.append(found.frame["p_texts"].to_numpy())
        rates[name] = rate(np.concatenate(p))
    return rates


def levels(texts: int, count: int, sets: int, rng: RNG) -> dict[str, float]:
    """Compare several levels over texts; power: one differs by 2 SD; then one or the first has three times the SD."""

    def p_of(spread: Floats, shift: float = 0.0) -> float:
        p = []
        for begin in range(0, sets, CHUNK):
            values = rng.standard_normal((texts, count, min(CHUNK, sets - begin))) * spread[:, None]
            values[:, 1] += shift
            profiles = values - values[:, :1]
            tested: Contrasts | None = over_texts((profiles, np.full(profiles[:, 0].shape, 1.0 / texts)), values[:, 0])
            p.append(tested.p if tested is not None else np.ones(0))
        return rate(np.concatenate(p))

    index = np.arange(count)
    spreads = {"one_noisy": np.where(index == 1, 3.0, 1.0), "first_noisy": np.where(index == 0, 3.0, 1.0)}
    alike = np.ones(count)
    noisy = {name: p_of(spread) for name, spread in spreads.items()}
    return {"type1": p_of(alike), "power": p_of(alike, 2.0), **noisy}


def interaction(sds: tuple[int, int], texts: int, takes: int, sets: int, rng: RNG) -> dict[str, float]:
    """Test the interaction of 3 × 2 levels, with SDs from the first to the last of ``sds``; power: a cell differs by 1.5."""
    text, row, column, _ = (axis.ravel() for axis in np.indices((texts, 3, 2, takes)))
    blocks = "text" if texts > 1 else ()
    rates = {}
    for name, shift, total in (("type1", 0.0, sets), ("power", 1.5, sets // 2)):
        p = []
        for begin in range(0, total, CHUNK):
            count = min(CHUNK, total - begin)
            values = rng.standard_normal((text.size, count)) * np.geomspace(*sds, 3)[row][:, None]
            values += shift * ((row == 2) * (column == 1))[:, None]
            names = [f"m{index}" for index in range(count)]
            frame = pd.DataFrame(values, columns=names).assign(text=text.astype(str), v=row, w=column)
            p.append(effects(frame, ["v", "w"], names, blocks=blocks).interactions["p"].to_numpy())
        rates[name] = rate(np.concatenate(p))
    return rates


def ranks(noise: str, texts: int, takes: int, sets: int, rng: RNG) -> dict[str, float]:
    """Test two levels by robust=True; power: a difference of 1.2 SD."""
    text, level, _ = (axis.ravel() for axis in np.indices((texts, 2, takes)))
    shape, rates = (text.size, sets // 2), {}
    for name, shift in (("type1", 0.0), ("power", 1.2)):
        values = np.exp(rng.standard_normal(shape)) if noise == "lognormal" else rng.standard_normal(shape)
        if noise == "outliers":
            values += 30.0 * (rng.random(shape) < 0.04)
        values += shift * level[:, None]
        factors = {"text": text.astype(str), "v": level}
        blocks: dict[str, Any] = {"blocks": "text"} if texts > 1 else {}
        rates[name] = rate(p_values(values, factors, "p_robust", robust=True, **blocks))
    return rates


def small_level(sizes: tuple[int, int], sets: int, rng: RNG) -> dict[str, float]:
    """Compare levels of unequal numbers of takes, the smaller one with three times the SD."""
    spread = np.repeat([1.0, 3.0], sizes)[:, None]
    return {"type1": rate(p_values(rng.standard_normal((sum(sizes), sets)) * spread, {"v": np.repeat([0, 1], sizes)}))}


def simulated(
    kind: str, shape: tuple[int, int], sds: tuple[float, float], difference: float, sets: int, rng: RNG
) -> Floats:
    """Simulate choices minus 0.5 (AB) or rating differences, (sets, listeners, items), by SDs of listeners and items."""
    lead = rng.normal(0, sds[0], (sets, shape[0], 1)) + rng.normal(0, sds[1], (sets, 1, shape[1])) + difference
    if kind == "AB":
        return (lead + rng.logistic(size=(sets, *shape)) > 0).astype(float) - 0.5
    return np.clip(np.rint(lead + rng.normal(0, 1.0, (sets, *shape))), -4.0, 4.0)


def choices(shape: tuple[int, int], sds: tuple[float, float], sets: int, rng: RNG) -> dict[str, float]:
    """Test choices by SDs of listeners and sentences; power: a share of .999, nearly unanimous."""
    from scipy.stats import t

    rates = {}
    for name, difference in (("type1", 0.0), ("power", 6.9)):
        of_case = sds if name == "type1" else (0.0, 0.0)
        mean, error, df, _ = complete_tables(simulated("AB", shape, of_case, difference, 2 * sets, rng), 1.0)
        rates[name] = rate(2.0 * t.sf(np.abs(mean) / error, df))
    return rates


def ceiling(shape: tuple[int, int], sets: int, rng: RNG) -> dict[str, float]:
    """Test ratings of 5, in one of ten cases 4; power: against ratings of 2 only."""
    from scipy.stats import t

    ratings_a, ratings_b = (5.0 - (rng.random((sets, *shape)) < 0.1) for _ in range(2))
    rates = {}
    for name, subtracted in (("type1", ratings_b), ("power", 2.0)):
        mean, error, df, _ = complete_tables(ratings_a - subtracted, 1.0)
        rates[name] = rate(2.0 * t.sf(np.abs(mean) / error, df))
    return rates


def claim(claimed: str, sets: int, rng: RNG) -> dict[str, float]:
    """Test a claim about MOS, 12 × 8, whose true difference is at the limit; power: no difference, for "better" 0.8."""
    margin = 0.5 if claimed in {"not worse", "equivalent"} else 0.0
    rates = {}
    for name, difference in (("type1", -margin), ("power", 0.0 if margin else 0.8)):
        p = []
        for table in simulated("CMOS", (12, 8), (0.3, 0.3), difference, sets, rng):
            test = crossed_mean(table.ravel(), *map(np.ravel, np.indices(table.shape)), step=1.0)
            above = test.p_above(-margin)
            p.append(max(above, test.p_below(margin)) if claimed == "equivalent" else above)
        rates[name] = rate(np.array(p))
    return rates


def analyzed(kind: str, shape: tuple[int, int], missing_rate: float, sets: int, rng: RNG) -> dict[str, float]:
    """Analyze MOS of two systems by analyze(); ratings of 1 and 2 of the second are missing with a probability.

    For the size of Cliff's delta, an interval that excludes 0 counts.
    """
    clip = vl.Clip(np.ones(24000, np.float32), 24000)
    test = vl.ListeningTest("a", "MOS", {f"s{item}": {"a": clip, "b": clip} for item in range(shape[1])}, lufs=None)
    listener, item = (axis.ravel() for axis in np.indices(shape))
    error_count = note_count = 0
    for _ in range(sets):
        frames = []
        level = rng.normal(3.0, 0.4, (shape[0], 1)) + rng.normal(0, 0.4, shape[1])
        for system in "ab":
            effect = rng.normal(0, 0.35, (shape[0], 1)) + rng.normal(0, 0.35, shape[1])
            ratings = np.clip(np.rint(level + effect + rng.normal(0, 0.7, shape)), 1, 5).ravel()
            names = {"listener": listener.astype(str), "item": np.char.add("s", item.astype(str)), "system": system}
            frame = pd.DataFrame({**names, "rating": ratings})
            frames.append(frame[(ratings > 2) | (system == "a") | (rng.random(ratings.size) >= missing_rate)])
        result = vl.analyze(test, pd.concat(frames))
        delta = result.sizes["a", "b"]["Cliff's delta"]
        significant = result.crossed["a", "b"].p <= 0.05
        error_count += significant if kind == "p" else not delta.low <= 0.0 <= delta.high
        note_count += "differences may be due to" in str(result)
    rates = {"type1": round(error_count / sets, 4)}
    return rates | ({"share": round(note_count / sets, 4)} if missing_rate else {})


def pilot(sets: int, rng: RNG) -> dict[str, float]:
    """Plan MOS, 12 × 8, difference 0.8, from a pilot of 8 × 6; return the coverage of the power's interval."""
    sds = (0.6, 0.6, 1.0)
    options: dict[str, Any] = {"listeners": 12, "items": 8}
    true = float(vl.plan_test("MOS", 0.8, sd=sds, simulations=20_000, **options).frame["power"][0])
    covered_count = 0
    for seed in range(sets):
        table = rng.normal(0.8, 1.0, (8, 6)) + rng.normal(0, 0.6, (8, 1)) + rng.normal(0, 0.6, 6)
        test = crossed_mean(table.ravel(), *map(np.ravel, np.indices(table.shape)))
        row = vl.plan_test("MOS", 0.8, pilot=test, simulations=200, seed=seed, **options).frame.iloc[0]
        covered_count += bool(row["low"] <= true <= row["high"])
    return {"share": round(covered_count / sets, 4)}


def sequential(
    kind: str, shape: tuple[int, int], difference: float, sd: float, sets: int, rng: RNG
) -> dict[str, float]:
    """Stop at any of the listeners, from the second on; ``fixed`` is the power of one test of all listeners."""
    from scipy.stats import t

    rule, rates, fixed = SequentialTest(), {}, 1.0
    for name, true in (("type1", 0.0), ("power", difference)):
        tables = simulated(kind, shape, (sd, sd), true, sets // 2, rng)
        stop = np.zeros(len(tables), bool)
        for listeners in range(2, shape[0] + 1):
            mean, error, df, _ = complete_tables(tables[:, :listeners], 1.0)
            for index in np.flatnonzero(~stop):
                point = Estimate(mean[index], mean[index], mean[index], 0.95, listeners)
                test = CrossedTest("", math.nan, math.nan, point, error[index], df[index], (math.nan,) * 3)
                stop[index] = rule.decide(test) == "effect"
        rates[name] = round(float(stop.mean()), 4)
        fixed = rate(2.0 * t.sf(np.abs(mean) / error, df))
    return {**rates, "fixed": fixed}


def _cases() -> dict[str, Case]:
    bind, cases = functools.partial, dict[str, Case]()
    for kind in ("shares", "counts"):
        for texts, takes in ((2, 1), (1, 2), (1, 3), (6, 1), (12, 2)):
            cases[f"{kind}, {texts} texts × {takes} takes"] = bind(discrete, kind, texts, takes)
    cases["constant takes, 1 texts × 2 takes"] = bind(discrete, "constant takes", 1, 2)
    cases["constant takes, 6 texts × 2 takes"] = bind(discrete, "constant takes", 6, 2)
    cases["any of 34 metrics, Holm"] = family
    for texts, share in ((2, 0.3), (4, 0.3), (8, 0.3), (16, 0.18), (16, 0.3), (32, 0.09), (32, 0.3)):
        for words in (False, True):
            name = f"equivalence: WER 0, or .5 in {share:g} of {texts} texts{', pooled' * words}"
            cases[name] = bind(rare, texts, share, words)
    for texts in (4, 8, 24):
        cases[f"pooled WER, {texts} texts"] = bind(word_errors, texts)
    for texts, count in ((4, 10), (6, 30), (6, 5), (8, 3), (12, 4), (3, 3)):
        cases[f"levels: {texts} texts × {count} levels"] = bind(levels, texts, count)
    for sds in ((1, 1), (1, 3), (3, 1)):
        for texts, takes in ((4, 2), (1, 2), (1, 4), (1, 8)):
            name = f"interaction, {texts} texts × {takes} takes, SD {sds[0]} : {sds[1]}"
            cases[name] = bind(interaction, sds, texts, takes)
    for noise in ("normal", "lognormal", "outliers"):
        for texts, takes in ((1, 12), (12, 1)):
            cases[f"ranks, {noise}, {texts} texts × {takes} takes"] = bind(ranks, noise, texts, takes)
    cases["ranks, outliers, 8 texts × 3 takes"] = bind(ranks, "outliers", 8, 3)
    for sizes in ((9, 2), (9, 3), (8, 5)):
        cases[f"takes {sizes[0]} : {sizes[1]}, SD 1 : 3"] = bind(small_level, sizes)
    few_sentences = ((60, 2), (60, 3), (12, 4), (20, 4), (60, 4), (20, 5), (60, 6))
    for shape in ((2, 12), (3, 12), (4, 4), (6, 6), *few_sentences, (12, 8), (24, 12)):
        for sd in (0.0, 0.8, 1.5, 3.0):
            cases[f"choices {shape[0]} × {shape[1]}, SD {sd:g}"] = bind(choices, shape, (sd, sd))
        for sd in (1.5, 3.0):
            cases[f"choices {shape[0]} × {shape[1]}, SD {sd:g}, sentences only"] = bind(choices, shape, (0.0, sd))
    for shape in ((12, 4), (12, 8)):
        cases[f"MOS of 5 and 4, {shape[0]} × {shape[1]}"] = bind(ceiling, shape)
    for claimed in ("better", "not worse", "equivalent"):
        cases[f"claim {claimed}, MOS 12 × 8"] = bind(claim, claimed)
    cases["Cliff's delta, MOS 12 × 8"] = bind(analyzed, "delta", (12, 8), 0.0)
    cases["low ratings of one system missing, MOS 24 × 12"] = bind(analyzed, "p", (24, 12), 0.5)
    cases["power from a pilot of 8 × 6"] = pilot
    for kind, shape, difference, sd in (
        ("MOS", (40, 12), 0.5, 0.5),
        ("MOS", (40, 24), 0.4, 0.5),
        ("MOS", (24, 6), 0.8, 0.5),
        ("CMOS", (60, 12), 0.5, 0.5),
        ("AB", (40, 12), 1.0, 0.8),
        ("AB", (40, 12), 1.5, 2.0),
        ("AB", (60, 4), 1.0, 0.8),
    ):
        cases[f"sequential {kind} {shape[0]} × {shape[1]}, SD {sd:g}"] = bind(sequential, kind, shape, difference, sd)
    return cases


CASES = _cases()
