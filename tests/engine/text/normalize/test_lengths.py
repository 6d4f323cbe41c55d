"""Feet and inches by their marks, units behind a slash, and amounts before a noun."""

from __future__ import annotations

from tests.engine.text.normalize.tables import each_row
from voicelab.engine.text.normalize import normalize

TABLE = {
    "marks": {
        'a 27" monitor, a 12" pizza': "a twenty-seven inch monitor, a twelve inch pizza",
        'a 1/4" bolt, a 3 1/2" disk': "a one quarter inch bolt, a three and a half inch disk",
        'It is 27" and big, 10" tall': "It is twenty-seven inches and big, ten inches tall",
        'a 5" x 7" photo': "a five by seven inch photo",
        "a 6' fence, a 10' x 12' room": "a six foot fence, a ten by twelve foot room",
        "It is 6' tall": "It is six feet tall",
        "the dogs' 5' leash": "the dogs five foot leash",
        "he is 5'10\" tall": "he is five feet ten inches tall",
    },
    "quotes": {
        'He said "I have 27" and left.': "He said I have twenty-seven and left.",
        'the "27" monitor': "the twenty-seven monitor",
        "'I am 6' he said": "I am six he said",
        "it gives Decimal('-3') then": "it gives Decimal, minus three, then",
        "class of '99' and '80s'": "class of ninety-nine and eighties",
    },
    "per": {
        "44.1 kHz/16-bit": "forty-four point one kilohertz sixteen bit",
        "12 dB/octave": "twelve decibels per octave",
        "10 mg/kg/day": "ten milligrams per kilogram per day",
        "10 Gb/s": "ten gigabits per second",
        "$85/barrel": "eighty-five dollars per barrel",
        "$5/user/month": "five dollars per user per month",
        "5 USD/kg": "five U S dollars per kilogram",
        "2 drinks/day, 3 times/week": "two drinks per day, three times per week",
        "1,000 requests/second": "one thousand requests per second",
        "men/women, 2 days/nights": "men women, two days nights",
        "5 km/miles": "five km miles",
        "3 g per kg, per se": "three grams per kilogram, per se",
    },
    "squares": {
        "200 m2": "two hundred square meters",
        "1000 cm3": "one thousand cubic centimeters",
        "5 W/m2": "five watts per square meter",
        "a 1,200 sq. ft. apartment": "a one thousand two hundred square foot apartment",
        "It has 900 sq. ft. He left.": "It has nine hundred square feet. He left.",
        "$5/sq. ft. of it": "five dollars per square foot of it",
        "χ² test, σ² = 4, η²": "chi squared test, sigma squared equals four, eta squared",
        "β-carotene, λ": "beta carotene, lambda",
    },
    "before a noun": {
        "the $1.2 trillion bill passed": "the one point two trillion dollar bill passed",
        "its $3 billion budget": "its three billion dollar budget",
        "the 5 km race": "the five kilometer race",
        "that 12V battery": "that twelve volt battery",
        "a $3.5-million deal": "a three point five million dollar deal",
        "their $50 monthly fee": "their fifty dollar monthly fee",
        "the 5 km were hard": "the five kilometers were hard",
        "the $5 he owed": "the five dollars he owed",
        "the $20 million raised": "the twenty million dollars raised",
        "my $5 back": "my five dollars back",
        "the $5 you owe": "the five dollars you owe",
        "his $2 million went to charity": "his two million dollars went to charity",
    },
}


@each_row(TABLE)
def test_table(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said
