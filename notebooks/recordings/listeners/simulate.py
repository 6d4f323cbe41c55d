"""Draw the answers that notebook 12 reads, answers.jsonl beside this file: 41 invented listeners of its study.

    python notebooks/recordings/listeners/simulate.py        then: voicelab check --update notebooks

No person answered. A rating is how good a system is to the listener's age group (``GOOD``), plus what the listener and the
sentence add, plus noise of each answer, rounded to 1 to 5. The last listener rates at random. The form is that of the
static page's answers (``Study.export``), a line each; the design is the notebook's own, whose cells run until there is one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE.parents[1] / "12_five_systems_from_folders.ipynb"
GOOD = {
    "under 60": {"clean": 4.2, "stream": 4.1, "phone": 3.2, "slow": 3.3, "street": 2.6},
    "60 or over": {"clean": 3.5, "stream": 3.4, "phone": 2.4, "slow": 4.2, "street": 1.8},
}
LISTENER, ITEM, ANSWER = 0.35, 0.2, 0.7  # standard deviations, in points of the scale


def study() -> Any:
    """Return the study that the notebook makes."""
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code" and "study" not in names:
            exec("".join(cell["source"]), names)  # noqa: S102 - a notebook of ours
    return names["study"]


def main() -> None:
    """Draw everybody's answers and write them."""
    asked, draw = study(), np.random.default_rng(12)
    ages = [*draw.permutation([*GOOD] * (asked.listeners // 2)), "under 60"]
    items = {item: draw.normal(0, ITEM) for item in asked.test.items}
    lines = []
    for number, age in enumerate(ages):
        own, votes = draw.normal(0, LISTENER), []
        for trial in asked.test.trials(number):
            sound = trial.slots["A"]
            rating = GOOD[age].get(sound.system, 0.0) + own + items[trial.item] + draw.normal(0, ANSWER)
            if number == len(ages) - 1:
                rating = draw.integers(1, 6)
            given = {"A": int(np.clip(round(rating), 1, 5))}
            votes.append({"trial": trial.id, "answers": given, "seconds": round(draw.uniform(3, 8), 1), "plays": 1})
        over = str(draw.choice(["headphones", "loudspeakers"]))
        steps = {
            "consent": {"agreed": True},
            "questionnaire": {"age": str(age), "over": over},
            "volume": {},
            "trials": {},
        }
        who = {"listener": f"simulated {number + 1}", "design": asked.test.digest, "block": number}
        lines.append({**who, "steps": steps, "votes": votes})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (HERE / "answers.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
