"""What people write in English and what is said, row by row, beyond the rules' own examples (test_normalize.py)."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from voicelab.engine.pointer.english import Lexicon
from voicelab.engine.text import as_written, normalize
from voicelab.engine.text.english import RULES

TABLE = {
    "money": {
        "£2m and €1.5 billion": "two million pounds and one point five billion euros",
        "$1 and $1.01 and $0.99": "one dollar and one dollar and one cent and ninety-nine cents",
        "$1,234.56": "one thousand two hundred thirty-four dollars and fifty-six cents",
        "$5-10, 5 euros, 50¢, 20€": "five to ten dollars, five euros, fifty cents, twenty euros",
        "US$5 or A$3.20": "five U S dollars or three Australian dollars and twenty cents",
        "$20/hour, USD 40, 30 EUR": "twenty dollars per hour, forty U S dollars, thirty euros",
        "He lost -$5.": "He lost minus five dollars.",
        "$2.5k vs. £4.99/kg": "two point five thousand dollars versus four pounds and ninety-nine pence per kilogram",
        "¥500, $20 CAD, AU$5": "five hundred yen, twenty Canadian dollars, five Australian dollars",
        "Rs. 500, C$20": "five hundred rupees, twenty Canadian dollars",
    },
    "dates": {
        "March 5th 2024": "March fifth, twenty twenty-four",
        "25/12/1999": "December twenty-fifth, nineteen ninety-nine",
        "12.03.2024": "March twelfth, twenty twenty-four",
        "the 5th of March": "the fifth of March",
        "2024-03-05T15:30:00Z": "March fifth, twenty twenty-four, fifteen thirty U T C",
        "the 80s, the 1900s": "the eighties, the nineteen hundreds",
        "the 1984 elections": "the nineteen eighty-four elections",
        "Pompey (106-48 BC)": "Pompey, one hundred six to forty-eight B C",
        "a dramatist (1928-)": "a dramatist, nineteen twenty-eight",
        "44 BC, 500 AD": "forty-four B C, five hundred ay D",
        "1990-1995, 1990–95": "nineteen ninety to nineteen ninety-five, nineteen ninety to ninety-five",
        "12-25-2024": "December twenty-fifth, twenty twenty-four",
        "Fri, Mar 3": "Friday, March third",
        "Dec '24": "December twenty-four",
        "Sept 11": "September eleventh",
    },
    "times": {
        "0:00, 9-5pm, 9:00-17:30": "midnight, nine to five P M, nine o'clock to seventeen thirty",
        "1:02:03, 12:00, 12:00 pm": "one hour, two minutes and three seconds, twelve o'clock, twelve P M",
        "It leaves at 5 p.m. Tickets cost $10.": "It leaves at five P M. Tickets cost ten dollars.",
        "It opens at 9:30 a.m. Doors close": "It opens at nine thirty ay M. Doors close",
        "7.30pm": "seven thirty P M",
        "10:30 A.M.": "ten thirty ay M.",
    },
    "units": {
        "20°C, -5°F": "twenty degrees Celsius, minus five degrees Fahrenheit",
        "20-25 °C, 3.2 GHz": "twenty to twenty-five degrees Celsius, three point two gigahertz",
        "10%, 10-20%, 1 kg, 10x faster": "ten percent, ten to twenty percent, one kilogram, ten times faster",
        "5 µm, 3 kΩ, 3h 25min": "five micrometers, three kilo ohms, three hours twenty-five minutes",
        "5 MB/s, 5 ft 3 in": "five megabytes per second, five feet three inches",
        "5 lbs. of flour": "five pounds of flour",
        "8 in. x 10 in.": "eight inches by ten inches",
        "30°N, 72°": "thirty degrees north, seventy-two degrees",
        "5 min. 30 sec.": "five minutes thirty seconds.",
        "min. 5, max. 10": "minimum five, maximum ten",
        "120/80 mmHg": "one hundred twenty over eighty millimeters of mercury",
        "3000 mAh": "three thousand milliamp hours",
    },
    "ordinals": {
        "1st, 22nd, 3rd, 101st, 1,000,000th": "first, twenty-second, third, one hundred first, one millionth",
    },
    "telephone": {
        "+44 20 7946 0958": "plus four four, two zero, seven nine four six, zero nine five eight",
    },
    "numbers": {
        "007": "zero zero seven",
        "1,234,567,890,123": "one trillion two hundred thirty-four billion five hundred "
        "sixty-seven million eight hundred ninety thousand one hundred twenty-three",
        "1234567890123456": "one two three four five six seven eight nine zero one two three four five six",
        "192.168.0.1": "one hundred ninety-two dot one hundred sixty-eight dot zero dot one",
        "6.02×10^23": "six point zero two times ten to the power of twenty-three",
        "10⁶ and x², ٣ or １２": "ten to the power of six and x squared, three or twelve",
    },
    "fractions": {
        "1/2, 3/4, 5/8, -1/3": "one half, three quarters, five eighths, minus one third",
        "24/7, 1 1/2 tsp, 1/2 mi": "twenty-four seven, one and a half teaspoons, one half mile",
        "3-1/2, 10/10, 50/50": "three and a half, ten out of ten, fifty fifty",
        "20/20 vision, on 9/11": "twenty twenty vision, on nine eleven",
    },
    "ranges": {
        "10-20-30, 3:1, 16:9": "ten twenty thirty, three to one, sixteen to nine",
        "5km-10km, ages 3–5": "five to ten kilometers, ages three to five",
        "5 a.m.-6 a.m.": "five ay M to six ay M.",
        "3–4 p.m.": "three to four P M.",
        "-5%, 5%-10%": "minus five percent, five to ten percent",
    },
    "roman": {
        "King Charles I was": "King Charles the first was",
        "Charles I think": "Charles I think",
        "Part I liked": "Part I liked",
        "Malcolm X takes Vitamin C": "Malcolm X takes Vitamin C",
        "the XIX century": "the nineteenth century",
    },
    "abbreviations": {
        "Dr. Smith lives on Elm Dr. near St. John St. in St. Louis.": "Doctor Smith lives on "
        "Elm Drive near Saint John Street in "
        "Saint Louis.",
        "Mr. and Mrs. Jones": "Mister and Missus Jones",
        "The U.S. Army left the U.S. He stayed.": "The U S Army left the U S. He stayed.",
        "J. K. Rowling and Samuel L. Jackson": "J K Rowling and Samuel L Jackson",
        "E.B.White of the U.S.A, they say": "E B White of the U S ay, they say",
        "on Tues. at 5th Ave. It was fun.": "on Tuesday at fifth Avenue. It was fun.",
        "No. 5 is alive. No. Five.": "number five is alive. No. Five.",
        "She was born c. 1850.": "She was born circa eighteen fifty.",
        "It is on the co. line": "It is on the co. line",
    },
    "symbols": {
        "5 - 3 = 2, 5-3=2": "five minus three equals two, five minus three equals two",
        "<b>bold</b> and **bold** and _it_": "bold and bold and it",
    },
    "addresses": {
        "https://www.example.com/path?q=1": "W W W dot example dot com slash path question mark Q equals one",
        "See openai.io, please.": "See openai dot I O, please.",
        "a@b.com": "ay at B dot com",
        "john.doe@mail.example.co.uk.": "john dot doe at mail dot example dot co dot U K.",
        "http://example.com/a, report_final.pdf": "example dot com slash ay, report final dot pdf",
        "~/.bashrc, ./run.sh": "tilde slash dot bashrc, dot slash run dot sh",
        "#ThrowbackThursday": "hashtag ThrowbackThursday",
    },
    "capitals": {
        "NASA and IBM use MP3": "NASA and IBM use MP three",
        "That is NOT what the US and IT said": "That is not what the US and IT said",
        "STOP DOING THAT NOW": "stop doing that now",
        "NASA IBM CIA": "NASA IBM CIA",
        "COVID-19, F-16, A4, 5G, H2O": "COVID nineteen, F sixteen, ay four, five G, H two O",
    },
    "punctuation": {
        "\"Hello,\" she said. 'Tis the dogs' 'quoted words'.": "Hello, she said. 'Tis the dogs quoted words.",
        "rock 'n' roll, o'clock, goin'": "rock and roll, o'clock, goin'",
        "It’s “fine”.": "It's fine.",
        "Wait... what? Wait… No!! Really?!": "Wait, what? Wait. No! Really?",
        "Hi (see below) there": "Hi, see below, there",
        "well-known -- yes - no—maybe": "well-known — yes — no — maybe",
        "Title\n\nBody text\nwraps": "Title. Body text wraps",
        "- milk\n- eggs": "milk. eggs",
        "end.Then": "end. Then",
        "café naïve Łódź straße ﬁne Ｆｕｌｌ": "cafe naive Lodz strasse fine Full",
        "soft\xadhyphen zero\u200bwidth bell\x07": "softhyphen zerowidth bell",
    },
    "names and letters": {
        "M&Ms and D&D": "M and M's and D and D",
        "Q&A with AT&T": "Q and ay with ay T and T",
        "George W. Bush": "George W Bush",
        "P.O. Box 12": "P O Box twelve",
        "Smith v. Jones": "Smith versus Jones",
        "c/o me, b/c I said so, rock'n'roll": "care of me, because I said so, rock and roll",
    },
    "letters and digits": {
        "a 4K screen in 3D": "a four K screen in three D",
        "R2-D2": "R two D two",
        "i7-12700, A380": "i seven twelve thousand seven hundred, ay three eighty",
        "US-101": "U S one oh one",
        "v2.0.1": "version two point zero point one",
        "Python 3.11": "Python three point eleven",
        "version 1.0": "version one point zero",
    },
    "numbered": {
        "Suite 1200": "Suite twelve hundred",
        "Flight UA 415": "Flight UA four fifteen",
        "Highway 401": "Highway four oh one",
        "Boeing 747": "Boeing seven forty-seven",
        "Type I and Type II": "Type one and Type two",
        "I, II and III": "one, two and three",
        "Chapters IV and V": "Chapters four and five",
        "Rocky IV": "Rocky four",
        "Super Bowl LVIII": "Super Bowl fifty-eight",
        "No. 5, no. 7, № 9, #1": "number five, number seven, number nine, number one",
        "123-45-6789": "one two three, four five, six seven eight nine",
        "4111 1111 1111 1111": "four one one one, one one one one, one one one one, one one one one",
        "1-800-555-0199": "one, eight zero zero, five five five, zero one nine nine",
    },
    "years": {
        "in 1066, 1984 was good": "in ten sixty-six, nineteen eighty-four was good",
        "the mid-30s, 80s music": "the mid-thirties, eighties music",
        "FY2024 and Q3 2024": "FY twenty twenty-four and Q three twenty twenty-four",
        "1500 people": "one thousand five hundred people",
        "2023/2024": "twenty twenty-three to twenty twenty-four",
        "1999/00, post-1945 Europe": "nineteen ninety-nine to two thousand, post-nineteen forty-five Europe",
        "pre-1900 and mid-1945": "pre-nineteen hundred and mid-nineteen forty-five",
        "2024/3/15": "March fifteenth, twenty twenty-four",
    },
    "sums": {
        "2+2=4, 3 × 4, 3 × 4 m": "two plus two equals four, three times four, three by four meters",
    },
    "places": {
        "5 Oak Dr. Dallas": "five Oak Drive Dallas",
        "12 42nd St. New York": "twelve forty-second Street New York",
        "Wall St. Stocks fell": "Wall Street. Stocks fell",
        "Chapter 3 Meet Dr. Smith": "Chapter three Meet Doctor Smith",
        "Apt. 5B, Ste. 200, Hwy. 61": "Apartment five B, Suite two hundred, Highway sixty-one",
        "123 Main St. Apt 4B": "one hundred twenty-three Main Street Apartment four B",
        "Sunset Blvd, LA": "Sunset Boulevard, LA",
        "St. Patrick's Day": "Saint Patrick's Day",
        "Dr. King Dr.": "Doctor King Drive.",
        "Mt. Everest": "Mount Everest",
    },
    "books": {
        "Gen. Lee": "General Lee",
        "E. coli bacteria, C. elegans": "E coli bacteria, C elegans",
        "Mr. T. is here": "Mister T is here",
        "Option B. then we left": "Option B. then we left",
        "Smith et al.": "Smith et al.",
    },
    "shouting": {
        "US AND UK": "US and UK",
        "FIRE IN LA": "fire in LA",
    },
    "marks": {
        "Hi :) there :D": "Hi there",
        "1) first": "one, first",
        'a 27" monitor, a 12" pizza': "a twenty-seven inch monitor, a twelve inch pizza",
        'a 1/4" bolt, a 3 1/2" disk': "a one quarter inch bolt, a three and a half inch disk",
        'It is 27" and big, 10" tall': "It is twenty-seven inches and big, ten inches tall",
        'a 5" x 7" photo': "a five by seven inch photo",
        "a 6' fence, a 10' x 12' room": "a six foot fence, a ten by twelve foot room",
        "the dogs' 5' leash": "the dogs five foot leash",
        "he is 5'10\" tall": "he is five feet ten inches tall",
    },
    "shouted": {
        "SALE ENDS ON MAY 5 AT 9PM": "sale ends on May fifth at nine P M",
        "IT WAS $5 AND HE HAD TO GO": "it was five dollars and he had to go",
        "MEETING AT 10 AM ON JAN. 5": "meeting at ten ay M on January fifth",
        "WORLD WAR II BEGAN IN 1939": "World War two began in nineteen thirty-nine",
        "HENRY VIII HAD SIX WIVES": "Henry the eighth had six wives",
        "THE BBC AND THE API ARE DOWN": "the BBC and the API are down",
        "PLAN A IS GOOD": "plan ay is good",
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
        "an A/B test, an A/C unit, N/A, an A in math": "an ay B test, an ay C unit, N ay, an ay in math",
        "the A-team, an A-list star": "the ay-team, an ay-list star",
        "from A to Z, A or B?": "from ay to Z, ay or B?",
        "an A+ grade": "an ay plus grade",
        "Class A shares": "Class ay shares",
    },
    "the article": {
        "What A Day": "What A Day",
        "A-ha": "A-ha",
    },
    "postcodes": {
        "San Francisco, CA 94105": "San Francisco, CA nine four one zero five",
        "Austin, TX 78701-4321": "Austin, TX seven eight seven zero one, four three two one",
        "Boston MA 02139": "Boston MA zero two one three nine",
        "in Portland, OR 97201": "in Portland, OR nine seven two zero one",
    },
    "telephones": {
        "020 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "(020) 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "0800 123456": "zero eight zero zero, one two three four five six",
        "01 23 45 67 89": "zero one, two three, four five, six seven, eight nine",
    },
    "codes": {
        "Your verification code is 839201.": "Your verification code is eight three nine two zero one.",
        "Your code is 839201 and expires.": "Your code is eight three nine two zero one and expires.",
        "PIN: 4821": "PIN: four eight two one",
        "ZIP code 94105": "ZIP code nine four one zero five",
        "my account number 12345678": "my account number one two three four five six seven eight",
        "area code 212, account: 300 followers": "area code two one two, account: three hundred followers",
        "the account is 5000 dollars short": "the account is five thousand dollars short",
    },
    "several": {
        "A380s, PS5s, AK-47s": "ay three eighties, P S fives, ay K forty-sevens",
        "two 737s landed": "two seven thirty-sevens landed",
        "My top 10s": "My top tens",
        "a 90s band, 90s kids, waited 20s": "a nineties band, nineties kids, waited twenty seconds",
        "two 30s clips": "two thirty seconds clips",
    },
    "shares": {
        "120/80": "one hundred twenty over eighty",
    },
    "lists": {
        "1) One\n2) Two": "one, One. two, Two",
    },
    "a pause": {
        "The city – 3 million people – is large.": "The city — three million people — is large.",
        "It cost $5 - he paid - and left.": "It cost five dollars — he paid — and left.",
        "In 2024 - 5 years later - it rained.": "In twenty twenty-four — five years later — it rained.",
        "iPhone 15 - 3 new colors": "iPhone fifteen — three new colors",
        "I'd like 2 - no, 3 - of them.": "I'd like two — no, three — of them.",
    },
    "a range": {
        "1,000 - 2,000 people": "one thousand to two thousand people",
        "Lakers 102 - 99 Celtics": "Lakers one hundred two to ninety-nine Celtics",
        "we won 3 - 0 on Sunday, pages 3 - 7": "we won three to zero on Sunday, pages three to seven",
        "20 Hz–20 kHz, 5°C–10°C": "twenty hertz to twenty kilohertz, five to ten degrees Celsius",
        "Mon–Fri 9am–5pm": "Monday to Friday nine ay M to five P M",
        "Monday - Friday": "Monday to Friday",
        "Jan-Mar, January–March 2024": "January to March, January to March twenty twenty-four",
        "Jan 5, 2024 - Feb 3, 2024": "January fifth, twenty twenty-four to February third, twenty twenty-four",
        "5 Jan – 10 Feb": "the fifth of January to the tenth of February",
        "May 5 - 7": "May fifth to seventh",
    },
    "a hyphen": {
        "Sun-dried, Mon-Wed-Fri": "Sun-dried, Mon-Wed-Fri",
    },
    "a sum": {
        "x - 3 = 5 and n - 1": "x minus three equals five and n minus one",
        "8 - 2 + 1": "eight minus two plus one",
        "What is 10 - 4?": "What is ten minus four?",
        "$10 - $4 = $6": "ten dollars minus four dollars equals six dollars",
    },
    "a comparison": {
        "(p < .001) and p<.05": "p less than point zero zero one, and p less than point zero five",
        "if a<b and c>d then": "if a less than b and c greater than d then",
        "5 < x < 10": "five less than x less than ten",
        ">= 5 or <=10%": "greater than or equal to five or less than or equal to ten percent",
        ">$5 million": "greater than five million dollars",
    },
    "no comparison": {
        "I <3 you": "I you",
        "this -> 5 => 6": "this to five to six",
        ">> deep\n> > deeper": "deep deeper",
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
        "12 dB/octave, 10 mg/kg/day": "twelve decibels per octave, ten milligrams per kilogram per day",
        "10 Gb/s, $5/user/month": "ten gigabits per second, five dollars per user per month",
        "5 USD/kg": "five U S dollars per kilogram",
        "2 drinks/day, 3 times/week": "two drinks per day, three times per week",
        "1,000 requests/second": "one thousand requests per second",
        "men/women, 2 days/nights, 5 km/miles": "men women, two days nights, five km miles",
        "3 g per kg, per se": "three grams per kilogram, per se",
    },
    "squares": {
        "1000 cm3, 5 W/m2": "one thousand cubic centimeters, five watts per square meter",
        "It has 900 sq. ft. He left.": "It has nine hundred square feet. He left.",
        "$5/sq. ft. of it": "five dollars per square foot of it",
        "χ² test, σ² = 4, η²": "chi squared test, sigma squared equals four, eta squared",
    },
    "before a noun": {
        "the $1.2 trillion bill passed": "the one point two trillion dollar bill passed",
        "its $3 billion budget": "its three billion dollar budget",
        "that 12V battery": "that twelve volt battery",
        "a $3.5-million deal": "a three point five million dollar deal",
        "their $50 monthly fee, the $5 he owed": "their fifty dollar monthly fee, the five dollars he owed",
        "the $20 million raised, my $5 back": "the twenty million dollars raised, my five dollars back",
        "his $2 million went to charity": "his two million dollars went to charity",
    },
}


@pytest.mark.parametrize(
    ("written", "said"),
    [pytest.param(w, s, id=f"{group}-{w[:24]!a}") for group, rows in TABLE.items() for w, s in rows.items()],
)
def test_table(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said, "what is said is its own normal form"


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z']+", re.sub(r"'s\b", "", text.lower())) if len(word) > 1}


def test_every_word_that_is_added_is_in_the_lexicon() -> None:
    lexicon = Lexicon(lambda _: ())
    examples = {rule.example: rule.spoken for rule in RULES}
    for written, said in chain(examples.items(), *(rows.items() for rows in TABLE.values())):
        added = _words(said) - _words(as_written(written).text) - set(re.findall("[a-z]+", written.lower()))
        for word in added:
            assert lexicon.pronounce(word), (written, word)
