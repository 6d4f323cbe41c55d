"""Cards of a panel's grid of takes: filtered, sorted, compared, and searched for outliers."""

from __future__ import annotations

import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from voicelab.call import field_name, short_name
from voicelab.clip import Clip
from voicelab.errors import NotFound, RequestInvalid
from voicelab.runs.failures import error_message
from voicelab.takes.comparison import Comparison
from voicelab.takes.rows import TakeRow

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_TERM: Final = re.compile(r"^(?P<name>[\w.]+)\s*(?P<sign>>=|<=|!=|==|=|>|<)\s*(?P<value>.*)$")
# Iglewicz and Hoaglin, How to Detect and Handle Outliers (1993): scales the MAD to the SD of a normal distribution.
_MAD_SCALE: Final = 0.6745
_MAX_COMPARED: Final = 9

CardState = Literal["missing", "waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, eq=False)
class TakeCard:
    """Card of a take in the grid of a panel.

    Args:
        id: position in the order of the table.
        labels: label of each key column that is shown.
        values: plain values by column name, for filters and sorting.
        state: missing (no take, and none is going to be synthesized), waiting, running, done or failed.
        figures: measurements by metric, NaN where undefined.
        error: error message, "" without an error.
        notes: notes of the take.
        fetch: function that returns the clip; None if there is no take.
        code: Python call that reproduces the take, "" if unknown.
    """

    id: int
    labels: Mapping[str, str]
    values: Mapping[str, Any] = field(default_factory=dict)
    state: CardState = "missing"
    figures: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()
    fetch: Callable[[], Clip] | None = field(default=None, repr=False)
    code: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        """All labels in one line."""
        return ", ".join(f"{short_name(column)}={label}" for column, label in self.labels.items())

    def value(self, name: str) -> Any:
        """Look up a value, a measurement or the state by name; None if unknown."""
        name = field_name(name) if name not in self.labels else name
        if name in self.figures:
            return self.figures[name]
        return self.state if name == "state" else self.values.get(name, self.labels.get(name))

    def clip(self) -> Clip:
        """Fetch the clip. Raises NotFound if there is no take, and errors from reading its audio."""
        if self.fetch is None:
            raise NotFound(f"{self.name} has no take yet")
        return self.fetch()


def card_of(id: int, row: TakeRow, names: Iterable[str], fetch: Callable[[], Clip] | None = None) -> TakeCard:
    """Create the card of a row, labeled by the key columns ``names``; ``fetch``, if given, returns the clip of the card."""
    take = row.take
    values = {**row.columns, **row.keys}
    return TakeCard(
        id,
        {name: row.labels[name] for name in names},
        values if take is None else {"seed": take.seed, **values},
        state="missing" if row.state == "waiting" else row.state,
        error="" if row.error is None else error_message(row.error),
        notes=() if take is None else take.all_notes,
        fetch=None if take is None else fetch or take.clip,
        code="" if take is None or take.source else replace(take.call, seed=take.seed).code(also=row.labels),
    )


def filter_cards(cards: Iterable[TakeCard], where: str) -> list[TakeCard]:
    """Filter cards by comma-separated terms; a card must satisfy all of them.

    A term is a comparison (``temperature>=0.5``, ``latency=low``, ``duration<2``, ``state=failed``) or text to find in the
    labels. An undefined measurement satisfies no comparison. Raises RequestInvalid on ``filter``.
    """
    cards = list(cards)
    for term in filter(None, map(str.strip, where.split(","))):
        matched = _TERM.match(term)
        if matched is None:
            cards = [card for card in cards if term.casefold() in card.name.casefold()]
            continue
        name, value = matched["name"], matched["value"].strip()
        if not value:
            message = f"a value must follow the operator, as in temperature>0.5, got {term!r}"
            raise RequestInvalid.of("filter", message)
        if cards and not any(card.value(name) is not None for card in cards):
            names = ", ".join(dict.fromkeys([*map(short_name, cards[0].labels), *cards[0].figures, "state"]))
            raise RequestInvalid.of("filter", f"column must be one of {names}, got {name!r}", type="not_found")
        compare = _OPERATORS[matched["sign"].replace("==", "=")]
        cards = [card for card in cards if _holds(card, name, compare, value)]
    return cards


def sort_cards(
    cards: Iterable[TakeCard], by: str = "", *, descending: bool = False, pinned: Iterable[int] = ()
) -> list[TakeCard]:
    """Sort cards by a column or metric; ties, and all cards if ``by`` is "", are in the order of their ids.

    Pinned cards come first; cards without a value come last.
    """
    pins = set(pinned)
    cards = sorted(cards, key=lambda card: card.id)
    if by:
        values = {card.id: value for card in cards if (value := _sort_key(card.value(by))) is not None}
        measured = [card for card in cards if card.id in values]
        undefined = [card for card in cards if card.id not in values]
        cards = sorted(measured, key=lambda card: values[card.id], reverse=descending) + undefined
    return sorted(cards, key=lambda card: card.id not in pins)


def find_outlier(cards: Iterable[TakeCard], metric: str) -> tuple[TakeCard, float] | None:
    """Find the card farthest from the median of a metric; return it with its modified z-score.

    The score is 0.6745 (x - median) / MAD; Iglewicz and Hoaglin (1993) call values beyond 3.5 outliers. If the MAD is
    0, the score is 0.7979 (x - median) divided by the mean absolute deviation from the median. Returns None for fewer
    than three values, or if all values are equal.
    """
    measured = [(card, card.figures[metric]) for card in cards if math.isfinite(card.figures.get(metric, math.nan))]
    if len(measured) < 3:
        return None
    median = statistics.median(value for _, value in measured)
    deviations = [abs(value - median) for _, value in measured]
    scale = statistics.median(deviations) / _MAD_SCALE or statistics.fmean(deviations) / math.sqrt(2 / math.pi)
    if scale == 0:
        return None
    card, value = max(measured, key=lambda item: abs(item[1] - median))
    return card, (value - median) / scale


def compare_cards(cards: Sequence[TakeCard]) -> Comparison:
    """Compare the clips of 2 to 8 cards, named by the labels in which they differ.

    Raises ArgumentError for another number of cards, and errors from reading their audio.
    """
    columns = dict.fromkeys(name for card in cards for name in card.labels)
    differing = [name for name in columns if len({card.labels.get(name) for card in cards}) > 1]
    clips: dict[str, Clip] = {}
    for number, card in enumerate(cards[:_MAX_COMPARED], start=1):
        differences = (f"{short_name(column)}={card.labels[column]}" for column in differing if column in card.labels)
        name = ", ".join(differences) or f"take {number}"
        clips[name if name not in clips else f"{name} ({number})"] = card.clip()
    return Comparison(clips)


def _holds(card: TakeCard, name: str, compare: Callable[[Any, Any], bool], typed: str) -> bool:
    value = card.value(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return math.isfinite(value) and compare(value, float(typed))
        except ValueError:
            pass
    text = card.labels.get(name, card.labels.get(field_name(name), value))
    return text is not None and compare(str(text).casefold(), typed.casefold())


def _sort_key(value: object) -> tuple[int, float, str] | None:
    """Return a key that sorts numbers before text; None for undefined values."""
    if isinstance(value, int | float):
        return (0, float(value), "") if math.isfinite(value) else None
    return None if value is None else (1, 0.0, str(value))
