"""The plot of effects beside sampling noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from voicelab.experiments.statistics.effects import Effects

__all__ = ["draw_effects"]

_BAND, _EFFECT, _NOTHING = "0.9", "tab:blue", "0.45"


def draw_effects(found: Effects, axes: Axes | None, alpha: float) -> Axes:
    """Draw contrasts, intervals and the spread of repeated takes into ``axes``; see ``Effects.plot``."""
    table = found.contrasts.merge(found.frame[["metric", "axis", "p_holm"]], on=["metric", "axis"], sort=False)
    spread = found.variance[found.variance.source == "sampling"].set_index("metric")["sd"]
    table = table.assign(unit=table.metric.map(spread))
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(7.0, 1.2 + 0.35 * len(table)), layout="constrained")
    axes.axvspan(-1.0, 1.0, color=_BAND, lw=0, label="±1 sd of repeated takes")
    axes.axvline(0.0, color=_NOTHING, lw=0.8)
    for place, row in enumerate(table.to_dict("records")):
        if not row["unit"] > 0.0:
            continue
        low, middle, high = np.array([row["low"], row["estimate"], row["high"]]) / row["unit"]
        sure = row["p_holm"] <= alpha
        color = _EFFECT if sure else _NOTHING
        axes.plot([low, high], [place, place], color=color, lw=1.5, solid_capstyle="butt")
        axes.plot(middle, place, "o", color=color, mfc=color if sure else "white")
    names = [
        f"{row['metric']} · {row['axis']} {row['baseline']} → {row['level']}"
        + ("" if row["unit"] > 0.0 else f"\n{row['estimate']:+.3g}, repeated takes never differ")
        for row in table.to_dict("records")
    ]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(
        f"difference in sd of repeated takes, {found.confidence:.0%} interval\nfilled: p ≤ {alpha:g}, corrected by Holm"
    )
    # Above the axes: inside, it would lie on an interval.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
    return axes
