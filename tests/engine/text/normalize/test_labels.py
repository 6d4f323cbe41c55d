"""Numbers that name: digits one by one, models, decades, seasons; and numbers that count, which stay numbers."""

from __future__ import annotations

from tests.engine.text.normalize.tables import each_row
from voicelab.engine.text.normalize import normalize

TABLE = {
    "postcodes": {
        "San Francisco, CA 94105": "San Francisco, CA nine four one zero five",
        "Austin, TX 78701-4321": "Austin, TX seven eight seven zero one, four three two one",
        "Boston MA 02139": "Boston MA zero two one three nine",
        "in Portland, OR 97201": "in Portland, OR nine seven two zero one",
        "the US 12345 times": "the US twelve thousand three hundred forty-five times",
    },
    "telephones": {
        "0800 123 4567": "zero eight zero zero, one two three, four five six seven",
        "020 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "(020) 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "0800 123456": "zero eight zero zero, one two three four five six",
        "01 23 45 67 89": "zero one, two three, four five, six seven, eight nine",
        "007 is back": "zero zero seven is back",
    },
    "codes": {
        "Your verification code is 839201.": "Your verification code is eight three nine two zero one.",
        "Your code is 839201 and expires.": "Your code is eight three nine two zero one and expires.",
        "PIN is 4821": "PIN is four eight two one",
        "PIN: 4821": "PIN: four eight two one",
        "ZIP code 94105": "ZIP code nine four one zero five",
        "my account number 12345678": "my account number one two three four five six seven eight",
        "area code 212": "area code two one two",
        "the code is 200 lines long": "the code is two hundred lines long",
        "account: 300 followers": "account: three hundred followers",
        "the account is 5000 dollars short": "the account is five thousand dollars short",
        "code 3 of it": "code three of it",
    },
    "several": {
        "three F-16s, B-52s": "three F sixteens, B fifty-twos",
        "A380s, PS5s, AK-47s": "ay three eighties, P S fives, ay K forty-sevens",
        "two 737s landed": "two seven thirty-sevens landed",
        "My top 10s": "My top tens",
        "a 90s band, 90s kids": "a nineties band, nineties kids",
        "a 30s clip, a 60s timer": "a thirty second clip, a sixty second timer",
        "waited 20s": "waited twenty seconds",
        "two 30s clips": "two thirty seconds clips",
    },
    "years": {
        "the 2023/24 season": "the twenty twenty-three to twenty-four season",
        "2023/2024": "twenty twenty-three to twenty twenty-four",
        "1999/00": "nineteen ninety-nine to two thousand",
        "post-1945 Europe": "post-nineteen forty-five Europe",
        "pre-1900 and mid-1945": "pre-nineteen hundred and mid-nineteen forty-five",
        "2024/3/15": "March fifteenth, twenty twenty-four",
    },
    "shares": {
        "an 80/20 split": "an eighty twenty split",
        "60/40": "sixty forty",
        "120/80": "one hundred twenty over eighty",
        "25/75": "twenty-five over seventy-five",
    },
    "lists": {
        "1. First item\n2. Second item\n3. Third item": "one, First item. two, Second item. three, Third item",
        "1) One\n2) Two": "one, One. two, Two",
        "A line\n\n1. One\n2. Two": "A line. one, One. two, Two",
        "- a\n- b": "a. b",
        "1.5 items\n2.5 others": "one point five items two point five others",
    },
}


@each_row(TABLE)
def test_table(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said
