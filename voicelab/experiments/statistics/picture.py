"""The plot of effects beside sampling noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from voicelab.experiments.statistics.result import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from voicelab.experiments.statistics.effects import Effects

__all__ = ["draw_effects"]

_NOISE = {"sampling": "repeated takes", "residual": "takes beside what axes and blocks explain"}
_BAND, _EFFECT, _NOTHING = "0.9", "tab:blue", "0.45"


def draw_effects(found: Effects, axes: Axes | None, alpha: float) -> Axes:
    """Draw contrasts, intervals and the spread of repeated takes into ``axes``; see ``Effects.plot``."""
    table = found.contrasts.merge(found.frame[["metric", "axis", "p_holm"]], on=["metric", "axis"], sort=False)
    noise = found.variance[found.variance.source.isin(list(_NOISE))]
    spread = noise.set_index("metric")["sd"]
    noises = " or ".join(_NOISE[source] for source in noise.source.unique())
    table = table.assign(unit=table.metric.map(spread))
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.35 * len(table)), layout="constrained")
    axes.axvspan(-1.0, 1.0, color=_BAND, lw=0, label=f"±1 sd of {noises}")
    axes.axvline(0.0, color=_NOTHING, lw=0.8)
    for place, row in enumerate(table.to_dict("records")):
        if not row["unit"] > 0.0:
            continue
        low, middle, high = np.array([row["low"], row["estimate"], row["high"]]) / row["unit"]
        # An axis may do something while this level does not.
        sure = row["p_holm"] <= alpha and (low > 0.0 or high < 0.0)
        color = _EFFECT if sure else _NOTHING
        axes.plot([low, high], [place, place], color=color, lw=1.5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=color, mfc=color if sure else "white")
    names = [
        f"{row['metric']} · {row['axis']} {row['baseline']} → {row['level']}"
        + ("\ncannot be told" if np.isnan(row["estimate"]) else "")
        + ("" if row["unit"] > 0.0 else f"\n{row['estimate']:+.3g}, {noises} never differ")
        for row in table.to_dict("records")
    ]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        f"difference in sd of {noises}, {percent(found.confidence)} interval\n"
        f"filled: the interval leaves out 0, and p ≤ {alpha:g}, corrected by Holm"
    )
    # Above the axes: inside, it would lie on an interval.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
    return axes
