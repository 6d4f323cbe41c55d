"""Capitals that shout, that are acronyms, and the letter A."""

from __future__ import annotations

from tests.engine.text.normalize.tables import each_row
from voicelab.engine.text.normalize import normalize

TABLE = {
    "shouted": {
        "SALE ENDS ON MAY 5 AT 9PM": "sale ends on May fifth at nine P M",
        "IT WAS $5 AND HE HAD TO GO": "it was five dollars and he had to go",
        "MEETING AT 10 AM ON JAN. 5": "meeting at ten ay M on January fifth",
        "WORLD WAR II BEGAN IN 1939": "World War two began in nineteen thirty-nine",
        "HENRY VIII HAD SIX WIVES": "Henry the eighth had six wives",
        "THE BBC AND THE API ARE DOWN": "the BBC and the API are down",
        "THIS IS A TEST": "this is a test",
        "PLAN A IS GOOD": "plan ay is good",
        "YOU MAY GO": "you may go",
    },
    "emphasis": {
        "This IS important.": "This is important.",
        "You CAN do it. WOW": "You can do it. wow",
        "The OLD, RED, HOT END": "The old, red, hot end",
        "Let me TRY": "Let me try",
        "I AM happy, this OR that, log IN to it": "I am happy, this or that, log in to it",
    },
    "acronyms": {
        "The SAT and the ACT": "The SAT and the ACT",
        "WHO said; US dollars; our IT department": "WHO said; US dollars; our IT department",
        "Portland, OR and the OR nurse, an OR gate": "Portland, OR and the OR nurse, an OR gate",
        "AIDS, FBI, CPU, ADD, ICU, MAD": "AIDS, FBI, CPU, ADD, ICU, MAD",
    },
    "the letter": {
        "an A/B test, an A/C unit, N/A": "an ay B test, an ay C unit, N ay",
        "Group A and Group B": "Group ay and Group B",
        "an A in math": "an ay in math",
        "the A-team, an A-list star": "the ay-team, an ay-list star",
        "Hepatitis A virus, Team A won": "Hepatitis ay virus, Team ay won",
        "from A to Z, A or B?": "from ay to Z, ay or B?",
        "It is A, B and C": "It is ay, B and C",
        "an A+ grade": "an ay plus grade",
        "vitamin A, not B": "vitamin ay, not B",
        "Class A shares": "Class ay shares",
    },
    "the article": {
        "A dog. A man came. (A cat)": "A dog. A man came. A cat",
        "What A Day": "What A Day",
        "A Tale of Two Cities": "A Tale of Two Cities",
        "She said, A dog.": "She said, A dog.",
        "A-ha": "A-ha",
        "a b, a dog": "a b, a dog",
    },
}


@each_row(TABLE)
def test_table(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said
