"""Dashes and signs of comparison: a minus, a "to", a pause or a claim."""

from __future__ import annotations

from tests.engine.text.normalize.tables import each_row
from voicelab.engine.text.normalize import normalize

TABLE = {
    "a pause": {
        "Tickets are cheap - 5 dollars each.": "Tickets are cheap — five dollars each.",
        "The city – 3 million people – is large.": "The city — three million people — is large.",
        "He left – finally – at noon.": "He left — finally — at noon.",
        "He came –but why– again": "He came — but why — again",
        "I have one rule - 10 percent first.": "I have one rule — ten percent first.",
        "It cost $5 - he paid - and left.": "It cost five dollars — he paid — and left.",
        "In 2024 - 5 years later - it rained.": "In twenty twenty-four — five years later — it rained.",
        "iPhone 15 - 3 new colors": "iPhone fifteen — three new colors",
        "I'd like 2 - no, 3 - of them.": "I'd like two — no, three — of them.",
        "Chapter 3 – The End": "Chapter three — The End",
        "Paris–London train": "Paris London train",
    },
    "a range": {
        "10 - 15 people": "ten to fifteen people",
        "1,000 - 2,000 people": "one thousand to two thousand people",
        "Lakers 102 - 99 Celtics": "Lakers one hundred two to ninety-nine Celtics",
        "we won 3 - 0 on Sunday": "we won three to zero on Sunday",
        "pages 3 - 7": "pages three to seven",
        "5 - 10km": "five to ten kilometers",
        "10% - 20%": "ten to twenty percent",
        "$5 - $10": "five to ten dollars",
        "20 Hz–20 kHz": "twenty hertz to twenty kilohertz",
        "20 Hz-20 kHz": "twenty hertz to twenty kilohertz",
        "10 ms - 2 s": "ten milliseconds to two seconds",
        "5 km - 10 km": "five to ten kilometers",
        "5°C–10°C": "five to ten degrees Celsius",
        "-5°C - 10°C": "minus five to ten degrees Celsius",
        "Mon–Fri 9am–5pm": "Monday to Friday nine ay M to five P M",
        "Monday - Friday": "Monday to Friday",
        "Jan-Mar, January–March 2024": "January to March, January to March twenty twenty-four",
        "Jan 5 – Jan 10": "January fifth to January tenth",
        "Jan 5, 2024 - Feb 3, 2024": "January fifth, twenty twenty-four to February third, twenty twenty-four",
        "5 Jan – 10 Feb": "the fifth of January to the tenth of February",
        "May 5 - 7": "May fifth to seventh",
        "1990 - 1995": "nineteen ninety to nineteen ninety-five",
    },
    "a hyphen": {
        "Sun-dried, Mon-Wed-Fri": "Sun-dried, Mon-Wed-Fri",
        "May-be, Mar-a-Lago, Sat-Nav": "May-be, Mar-a-Lago, Sat-Nav",
        "a 5-km run": "a five kilometer run",
    },
    "a sum": {
        "5 - 3 = 2": "five minus three equals two",
        "3 - 4 = -1": "three minus four equals minus one",
        "x - 3 = 5 and n - 1": "x minus three equals five and n minus one",
        "2**8 - 1": "two to the power of eight minus one",
        "8 - 2 + 1": "eight minus two plus one",
        "What is 10 - 4?": "What is ten minus four?",
        "$10 - $4 = $6": "ten dollars minus four dollars equals six dollars",
    },
    "a comparison": {
        "(p < .001) and p<.05": "p less than point zero zero one, and p less than point zero five",
        "(<1%)": "less than one percent",
        ">50% of users": "greater than fifty percent of users",
        "a<b": "a less than b",
        "if a<b and c>d then": "if a less than b and c greater than d then",
        "5 < x < 10": "five less than x less than ten",
        ">= 5 or <=10%": "greater than or equal to five or less than or equal to ten percent",
        ">$5 million": "greater than five million dollars",
        "(≥18), n≤5": "greater than or equal to eighteen, n less than or equal to five",
    },
    "no comparison": {
        "I <3 you": "I you",
        "a <b>bold</b> word<br>next": "a bold word next",
        'a <a href="x.html">link</a>': "a link",
        "this -> 5 => 6": "this to five to six",
        "> quoted line\n> another": "quoted line another",
        ">> deep\n> > deeper": "deep deeper",
    },
}


@each_row(TABLE)
def test_table(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said
