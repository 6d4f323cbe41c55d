"""What people write in English and what is said, row by row, beyond the rules' own examples (test_normalize.py)."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from voicelab.engine.pointer.english import Lexicon
from voicelab.text import as_written, normalize
from voicelab.text.english import RULES

TABLE = {
    "figures of other countries": {
        "12,34,567 people": "one million two hundred thirty-four thousand five hundred sixty-seven people",
        "45 000 people, CHF 1'250.50": (
            "forty-five thousand people, one thousand two hundred fifty point five zero Swiss francs"
        ),
        "2.500.000,50 or 192.168.100.200": (
            "two million five hundred thousand point five zero or "
            "one hundred ninety-two dot one hundred sixty-eight dot one hundred dot two hundred"
        ),
        "1,2,3 and 3,14": "one, two, three and three, fourteen",
        "3.000 people, 12.500 users, €1.500, 2.500 €, €1.799/l, 3.125 kg": (
            "three thousand people, twelve thousand five hundred users, one thousand five hundred euros, "
            "two thousand five hundred euros, one point seven nine nine euros per liter, "
            "three point one two five kilograms"
        ),
        "2,5-3,5 kg and 1,5 million": "two point five to three point five kilograms and one point five million",
    },
    "ranges of anything": {
        "$500k–$1.2m, 20p–50p": "five hundred thousand dollars to one point two million dollars, twenty p to fifty p",
        "2nd-4th grade, 5'–6'": "second to fourth grade, five feet to six feet",
        "noon–5pm, open 9-noon, midnight–5am": "noon to five P M, open nine to noon, midnight to five ay M",
        "chapters IV–VI, the XIV-XVI centuries": "chapters four to six, the fourteenth to sixteenth centuries",
        "the I-V curve, A1–B2, a 50-50 chance": "the I-V curve, ay one to B two, a fifty fifty chance",
        "30–40-year-olds, a 10-20-foot wall": "thirty to forty year-olds, a ten to twenty foot wall",
        "9/30–10/2, 3/5-3/7": "September thirtieth to October second, March fifth to March seventh",
        "05/2024–07/2024, midnight-noon, 2019–present": (
            "May twenty twenty-four to July twenty twenty-four, midnight to noon, twenty nineteen to present"
        ),
        "S–XL, XS-XXL, A1-C3, B2:D10, R2-D2": "S to XL, XS to XXL, ay one to C three, B two to D ten, R two D two",
        "2x–3x, 5-10M users, 5'6\"–5'10\"": (
            "two to three times, five to ten million users, five feet six inches to five feet ten inches"
        ),
        "18h30–20h00, II-VI compounds, INR 2–3": (
            "eighteen thirty to twenty hundred, two six compounds, INR two to three"
        ),
        "1/4–3/4, 3/4–3/8, 2/3-3/4": (
            "one quarter to three quarters, three quarters to three eighths, two thirds to three quarters"
        ),
    },
    "identifiers": {
        "EN 71-3:2019, ISO/IEC 27001:2013": (
            "EN seventy-one part three, twenty nineteen, ISO IEC twenty-seven thousand one, twenty thirteen"
        ),
        "Matt 5:3-12 and 1 Cor 13:13": "Matthew five verse three to twelve and First Corinthians thirteen thirteen",
        "Qur'an 2:255, Gen 1:1-2:3": "Quran two verse two hundred fifty-five, Genesis one verse one to two verse three",
        "9400 1000 0000 0000 00, §§ 2–3, a/k/a": (
            "nine four zero zero, one zero zero zero, zero zero zero zero, zero zero zero zero, zero zero, "
            "sections two to three, ay K ay"
        ),
        "12345-6789, 3.0.0rc1, BTC/USD": (
            "one two three four five, six seven eight nine, three point zero point zero rc one, B T C U S D"
        ),
        "K1A 0B1, about 400001 people": "K one ay, zero B one, about four hundred thousand one people",
        "12:34:56,789 [main]": "twelve hours, thirty-four minutes and fifty-six point seven eight nine seconds, main",
        "commit e8f3a1b, face2face": "commit E eight F three ay one B, face two face",
        "2001:db8::1, ::1, fe80::1ff:fe23:4567:890a, std::sort": (
            "two zero zero one colon D B eight colon colon one, colon colon one, "
            "F E eight zero colon colon one F F colon F E two three colon four five six seven colon eight nine zero ay, "
            "std: sort"
        ),
        "00:1A:2B:3C:4D:5E": "zero zero, one ay, two B, three C, four D, five E",
        "SEAT: 14C, 80º, 72°F/22°C, a 45° angle": (
            "SEAT: fourteen C, eighty degrees, seventy-two degrees Fahrenheit, twenty-two degrees Celsius, "
            "a forty-five degree angle"
        ),
        "1º, 0.5‰, dial #31": "first, zero point five per thousand, dial number thirty-one",
        "a 10F seat, seat 23F, class 10 C": "a ten degrees Fahrenheit seat, seat twenty-three F, class ten C",
    },
    "telephones of other countries": {
        "041/555 12 34": "zero four one, five five five, one two, three four",
        "09876-54321, 0221 / 12 34 56": (
            "zero nine eight seven six, five four three two one, zero two two one, one two, three four, five six"
        ),
        "030 - 1234567, (0171) 2345678": (
            "zero three zero, one two three four five six seven, zero one seven one, two three four five six seven eight"
        ),
        "06.12.34.56.78, 0041 44 668 18 00": (
            "zero six, one two, three four, five six, seven eight, "
            "zero zero four one, four four, six six eight, one eight, zero zero"
        ),
        "00 33 1 23 45 67 89": "zero zero, three three, one, two three, four five, six seven, eight nine",
        "0 30 / 12 34 56-78, (0044) 20 7946 0958": (
            "zero, three zero, one two, three four, five six, seven eight, "
            "zero zero four four, two zero, seven nine four six, zero nine five eight"
        ),
        "+1-800-FLOWERS, 098765 43210": (
            "plus one, eight zero zero, FLOWERS, zero nine eight seven six five, four three two one zero"
        ),
        "0 - 10000, 05/2024": "zero to ten thousand, May twenty twenty-four",
        "(02) 9374 4000, +1 (212) 555-0123": (
            "zero two, nine three seven four, four zero zero zero, plus one, two one two, five five five, zero one two three"
        ),
        "3005551212 bytes": "three billion five million five hundred fifty-one thousand two hundred twelve bytes",
    },
    "money": {
        "It costs $3.50.": "It costs three dollars and fifty cents.",
        "£2m and €1.5 billion": "two million pounds and one point five billion euros",
        "$1 and $1.01 and $0.99": "one dollar and one dollar and one cent and ninety-nine cents",
        "$1,234.56": "one thousand two hundred thirty-four dollars and fifty-six cents",
        "$5-10, 5 euros, 50¢, 20€": "five to ten dollars, five euros, fifty cents, twenty euros",
        "US$5 or A$3.20": "five U S dollars or three Australian dollars and twenty cents",
        "$20/hour, USD 40, 30 EUR": "twenty dollars per hour, forty U S dollars, thirty euros",
        "He lost -$5.": "He lost minus five dollars.",
        "$2.5k vs. £4.99/kg": "two point five thousand dollars versus four pounds and ninety-nine pence per kilogram",
        "$4.3bn (up from $3.9bn)": "four point three billion dollars, up from three point nine billion dollars",
        "¥500, €1,000.50": "five hundred yen, one thousand euros and fifty cents",
        "$1.5-2.5 million": "one point five to two point five million dollars",
        "$20 CAD, AU$5, Rs. 500": "twenty Canadian dollars, five Australian dollars, five hundred rupees",
        "C$20, $100k": "twenty Canadian dollars, one hundred thousand dollars",
        "R$ 1.500,00 and R$50": "one thousand five hundred Brazilian reais and fifty Brazilian reais",
        "1 299 kr, kr 1.299,50 or SFr. 5, 99 zł": (
            "one thousand two hundred ninety-nine kronor, one thousand two hundred ninety-nine point five zero kronor or "
            "five Swiss francs, ninety-nine zlotys"
        ),
        "Rp 15.000, VND 50.000.000": "fifteen thousand rupiah, fifty million dong",
        "₹5 crore, 1,5–2,5 Mio. €, 3 Mrd. Then": (
            "five crore rupees, one point five to two point five million euros, three billion. Then"
        ),
        "5,99€/kg, 5¢/min, EUR 27,50": (
            "five euros and ninety-nine cents per kilogram, five cents per minute, twenty-seven euros and fifty cents"
        ),
    },
    "dates": {
        "On 2024-03-05 we met.": "On March fifth, twenty twenty-four we met.",
        "March 5th 2024, 3/5/2024": "March fifth, twenty twenty-four, March fifth, twenty twenty-four",
        "25/12/1999": "December twenty-fifth, nineteen ninety-nine",
        "12.03.2024, the 5th of March": "March twelfth, twenty twenty-four, the fifth of March",
        "Mar. 5, March 2024, May 5-7": "March fifth, March twenty twenty-four, May fifth to seventh",
        "You may 5 times": "You may five times",
        "2024-03-05T15:30:00Z": "March fifth, twenty twenty-four, fifteen thirty U T C",
        "10/Oct/2000:13:55 or 5-Mar-24": (
            "the tenth of October, two thousand, thirteen fifty-five or the fifth of March, twenty twenty-four"
        ),
        "500 BCE–AD 200, '60s–'70s": "five hundred B C E to AD two hundred, sixties to seventies",
        "the 80s, the 1900s": "the eighties, the nineteen hundreds",
        "the 1984 elections": "the nineteen eighty-four elections",
        "Pompey (106-48 BC)": "Pompey, one hundred six to forty-eight B C",
        "a dramatist (1928-)": "a dramatist, nineteen twenty-eight",
        "44 BC, 500 AD": "forty-four B C, five hundred ay D",
        "1990-1995, 1990–95": "nineteen ninety to nineteen ninety-five, nineteen ninety to ninety-five",
        "2024/03/04": "March fourth, twenty twenty-four",
        "12-25-2024, Fri, Mar 3": "December twenty-fifth, twenty twenty-four, Friday, March third",
        "Dec '24, Sept 11": "December twenty-four, September eleventh",
        "July 4th, 1776": "July fourth, seventeen seventy-six",
    },
    "times": {
        "0:00, 9-5pm, 9:00-17:30": "midnight, nine to five P M, nine o'clock to seventeen thirty",
        "1:02:03, 12:00, 12:00 pm": "one hour, two minutes and three seconds, twelve o'clock, twelve P M",
        "It leaves at 5 p.m. Tickets cost $10.": "It leaves at five P M. Tickets cost ten dollars.",
        "It opens at 9:30 a.m. Doors close": "It opens at nine thirty ay M. Doors close",
        "At 5 p.m. Anna left": "At five P M Anna left",
        "at 5 p.m. Monday, 9 a.m. Eastern": "at five P M Monday, nine ay M Eastern",
        "at 9 a.m. EST, 9 a.m. London time": "at nine ay M EST, nine ay M London time",
        "7.30pm, 14.30 Uhr": "seven thirty P M, fourteen thirty Uhr",
        "10:30 A.M.": "ten thirty ay M.",
        "7:30pm EST": "seven thirty P M EST",
    },
    "units": {
        "20°C, -5°F": "twenty degrees Celsius, minus five degrees Fahrenheit",
        "20-25 °C, 3.2 GHz": "twenty to twenty-five degrees Celsius, three point two gigahertz",
        "10%, 10-20%, 1 kg": "ten percent, ten to twenty percent, one kilogram",
        "2.5 m/s^2, 10x faster": "two point five meters per square second, ten times faster",
        "5 µm, 3 kΩ, 5 in. wide": "five micrometers, three kilo ohms, five inches wide",
        "3h 25min, 5 MB/s": "three hours twenty-five minutes, five megabytes per second",
        "5 ft 3 in, 5 lbs. of flour": "five feet three inches, five pounds of flour",
        "8 in. x 10 in.": "eight inches by ten inches",
        "30°N, 72°, a 12V battery": "thirty degrees north, seventy-two degrees, a twelve volt battery",
        "5 min. 30 sec.": "five minutes thirty seconds.",
        "min. 5, max. 10": "minimum five, maximum ten",
        "120/80 mmHg": "one hundred twenty over eighty millimeters of mercury",
        "3000 mAh": "three thousand milliamp hours",
    },
    "ordinals": {
        "1st, 22nd, 3rd, 101st, 1,000,000th": "first, twenty-second, third, one hundred first, one millionth",
    },
    "telephone": {
        "555-123-4567": "five five five, one two three, four five six seven",
        "+44 20 7946 0958": "plus four four, two zero, seven nine four six, zero nine five eight",
    },
    "numbers": {
        "-3.5 or −7, 007": "minus three point five or minus seven, zero zero seven",
        "1,234,567,890,123": "one trillion two hundred thirty-four billion five hundred "
        "sixty-seven million eight hundred ninety thousand one hundred twenty-three",
        "1234567890123456": "one two three four five six seven eight nine zero one two three four five six",
        "192.168.0.1": "one hundred ninety-two dot one hundred sixty-eight dot zero dot one",
        "6.02×10^23": "six point zero two times ten to the power of twenty-three",
        "10⁶ and x², ٣ or １２": "ten to the power of six and x squared, three or twelve",
    },
    "fractions": {
        "1/2, 3/4, 5/8, -1/3": "one half, three quarters, five eighths, minus one third",
        "24/7, 3/4 of it, 1 1/2 tsp": "twenty-four seven, three quarters of it, one and a half teaspoons",
        "1/2 mi, 3-1/2, 10/10": "one half mile, three and a half, ten out of ten",
        "50/50, 20/20 vision, on 9/11": "fifty fifty, twenty twenty vision, on nine eleven",
    },
    "ranges": {
        "10–20 people, 10-20-30": "ten to twenty people, ten twenty thirty",
        "3:1, 16:9": "three to one, sixteen to nine",
        "They won 3-2.": "They won three to two.",
        "2.5-3x, 5km-10km": "two point five to three times, five to ten kilometers",
        "ages 3–5, 10am-5pm": "ages three to five, ten ay M to five P M",
        "5 a.m.-6 a.m.": "five ay M to six ay M.",
        "3–4 p.m.": "three to four P M.",
        "S&P 500 -0.3%, 5 -3": "S and P five hundred minus zero point three percent, five minus three",
        "$3–$5, -5%, 5%-10%": "three to five dollars, minus five percent, five to ten percent",
    },
    "roman": {
        "Henry VIII and Louis XIV's wife": "Henry the eighth and Louis the fourteenth's wife",
        "King Charles I was, Charles I think": "King Charles the first was, Charles I think",
        "Chapter IV, World War II, Part I liked": "Chapter four, World War two, Part I liked",
        "Malcolm X takes Vitamin C, the XIX century": "Malcolm X takes Vitamin C, the nineteenth century",
    },
    "abbreviations": {
        "Dr. Smith lives on Elm Dr. near St. John St. in St. Louis.": "Doctor Smith lives on "
        "Elm Drive near Saint John Street in "
        "Saint Louis.",
        "Mr. and Mrs. Jones, Dr. The": "Mister and Missus Jones, Doctor The",
        "e.g. this, i.e. that, etc. And so on, etc.": "for example this, that is that, et cetera. And so on, et cetera.",
        "The U.S. Army left the U.S. He stayed.": "The U S Army left the U S. He stayed.",
        "J. K. Rowling and Samuel L. Jackson": "J K Rowling and Samuel L Jackson",
        "E.B.White of the U.S.A, they say": "E B White of the U S ay, they say",
        "on Tues. at 5th Ave. It was fun.": "on Tuesday at fifth Avenue. It was fun.",
        "No. 5 is alive. No. Five.": "number five is alive. No. Five.",
        "She was born c. 1850.": "She was born circa eighteen fifty.",
        "w/o salt, w/ cheese": "without salt, with cheese",
        "Acme Co. Ltd.": "Acme Company Limited.",
        "She has a Ph.D. in it, It is on the co. line": "She has a P H D in it, It is on the co. line",
    },
    "symbols": {
        "5 - 3 = 2, 5-3=2": "five minus three equals two, five minus three equals two",
        "#1 fan, #fun": "number one fan, hashtag fun",
        "3 < 5, a >= b, ~5 people": "three less than five, a greater than or equal to b, about five people",
        "and/or, TCP/IP, <b>bold</b> and **bold** and _it_": "and or, TCP IP, bold and bold and it",
    },
    "addresses": {
        "https://www.example.com/path?q=1": "W W W dot example dot com slash path question mark Q equals one",
        "See openai.io, please.": "See openai dot I O, please.",
        "a@b.com": "ay at B dot com",
        "john.doe@mail.example.co.uk.": "john dot doe at mail dot example dot co dot U K.",
        "http://example.com/a, report_final.pdf": "example dot com slash ay, report final dot pdf",
        "/usr/bin/env, ~/.bashrc": "slash usr slash bin slash env, tilde slash dot bashrc",
        "./run.sh, #ThrowbackThursday": "dot slash run dot sh, hashtag ThrowbackThursday",
        "node.js and .NET": "node dot js and dot NET",
    },
    "capitals": {
        "NASA and IBM use MP3": "NASA and IBM use MP three",
        "That is NOT what the US and IT said": "That is not what the US and IT said",
        "STOP DOING THAT NOW": "stop doing that now",
        "NASA IBM CIA": "NASA IBM CIA",
        "ED: yes. JO: hi. FBI: no": "ed: yes. jo: hi. FBI: no",
        "COVID-19, F-16, A4, 5G, H2O": "COVID nineteen, F sixteen, ay four, five G, H two O",
    },
    "punctuation": {
        "\"Hello,\" she said. 'Tis the dogs' 'quoted words'.": "Hello, she said. 'Tis the dogs quoted words.",
        "rock 'n' roll, o'clock, goin'": "rock and roll, o'clock, goin'",
        "It’s “fine”.": "It's fine.",
        "Wait... what? Wait… No!! Really?!": "Wait, what? Wait. No! Really?",
        "Hi (see below) there": "Hi, see below, there",
        "well-known -- yes - no—maybe": "well-known — yes — no — maybe",
        "Title\n\nBody text\nwraps": "Title. Body text, wraps",
        "- milk\n- eggs": "milk. eggs",
        "end.Then": "end. Then",
        "café naïve Łódź straße ﬁne Ｆｕｌｌ": "cafe naive Lodz strasse fine Full",
        "soft\xadhyphen zero\u200bwidth bell\x07": "softhyphen zerowidth bell",
    },
    "names and letters": {
        "M&Ms and D&D, Q&A with AT&T": "M and M's and D and D, Q and ay with ay T and T",
        "a.k.a. Bob, aka Bob, George W. Bush": "ay K ay Bob, ay K ay Bob, George W Bush",
        "P.O. Box 12": "P O Box twelve",
        "Martin Luther King Jr.": "Martin Luther King Junior.",
        "Smith v. Jones, c/o me, b/c I said so": "Smith versus Jones, care of me, because I said so",
        "he/she and his/her, rock'n'roll, it´s fine": "he or she and his or her, rock and roll, it's fine",
    },
    "letters and digits": {
        "a 4K screen in 3D, R2-D2": "a four K screen in three D, R two D two",
        "x86-64, i7-12700": "x eighty-six sixty-four, i seven twelve thousand seven hundred",
        "A380": "ay three eighty",
        "F150": "F one fifty",
        "US-101": "U S one oh one",
        "v2.0.1, Python 3.11": "version two point zero point one, Python three point eleven",
        "version 1.0, HTTP/2": "version one point zero, HTTP two",
    },
    "numbered": {
        "Room 200, Suite 1200": "Room two hundred, Suite twelve hundred",
        "Flight UA 415": "Flight UA four fifteen",
        "Flight 1549, Highway 401": "Flight fifteen forty-nine, Highway four oh one",
        "Boeing 747": "Boeing seven forty-seven",
        "Type II diabetes, Type I and Type II": "Type two diabetes, Type one and Type two",
        "World War II, WWII and WW1": "World War two, World War two and World War one",
        "I, II and III, Chapters IV and V": "one, two and three, Chapters four and five",
        "Rocky IV, Super Bowl LVIII": "Rocky four, Super Bowl fifty-eight",
        "Pope John Paul II": "Pope John Paul the second",
        "No. 5, no. 7, № 9, #1": "number five, number seven, number nine, number one",
        "ISBN 978-3-16-148410-0": "ISBN nine seven eight, three, one six, one four eight four one zero, zero",
        "123-45-6789": "one two three, four five, six seven eight nine",
        "4111 1111 1111 1111": "four one one one, one one one one, one one one one, one one one one",
        "1-800-555-0199": "one, eight zero zero, five five five, zero one nine nine",
    },
    "years": {
        "in 1066, 1984 was good": "in ten sixty-six, nineteen eighty-four was good",
        "in her 30s, the mid-30s": "in her thirties, the mid-thirties",
        "1960s and 70s, 80s music": "nineteen sixties and seventies, eighties music",
        "FY2024 and Q3 2024": "FY twenty twenty-four and Q three twenty twenty-four",
        "1500 people": "one thousand five hundred people",
        "the 2023/24 season": "the twenty twenty-three to twenty-four season",
        "2023/2024": "twenty twenty-three to twenty twenty-four",
        "1999/00, post-1945 Europe": "nineteen ninety-nine to two thousand, post-nineteen forty-five Europe",
        "pre-1900 and mid-1945": "pre-nineteen hundred and mid-nineteen forty-five",
        "2024/3/15": "March fifteenth, twenty twenty-four",
    },
    "sums": {
        "2+2=4, 3 × 4, 3 × 4 m": "two plus two equals four, three times four, three by four meters",
        "12 ÷ 4, π ≈ 3.14": "twelve divided by four, pi about three point one four",
        "√2 and ∞, ± 3": "square root of two and infinity, plus or minus three",
        "a^2+b^2": "ay squared plus b squared",
        "x = (-b), y=2x+1, E = mc²": "x equals minus b, y equals two x plus one, E equals m c squared",
        "x**2, (x+1)(x-1) = 3": "x squared, x plus one times x minus one, equals three",
        "dy/dx = 4ac, v = d/t, t(23) = 2.1": (
            "d y over d x equals four ay c, v equals d over t, t of twenty-three equals two point one"
        ),
        "w/o a 5 m/s^2 km/h, e-mail, x-ray, he/she": (
            "without a five meters per square second kilometers per hour, e-mail, x-ray, he or she"
        ),
        "n−1, 1/(n−1), (x − μ)/σ": "n minus one, one over n minus one, x minus mu, over sigma",
        "(1−α)/2, −x": "one minus alpha, over two, minus x",
        "E[(x−μ)²], f(x)/g(x)": "E, x minus mu, squared, f of x over g of x",
        "P(B|A)P(A)/P(B)": "P of B given ay P of ay over P of B",
        "a/b, x_i/N, σ/√n, |x|/|y|": (
            "ay over b, x i over N, sigma over square root of n, absolute value of x over absolute value of y"
        ),
        "a·b, 2·3, ∇·E, ∇×B": "ay times b, two times three, nabla dot E, nabla cross B",
        "n!, n!/(k!(n−k)!), (n−1)!": "n factorial, n factorial over k factorial n minus k factorial, n minus one factorial",
        "Wi−Fi, 5−10, −7, Home · About": "Wi-Fi, five to ten, minus seven, Home; About",
        "I/O, A/B, n/a, dd/mm, item(s)/part": "I O, ay B, n a, dd slash mm, item, s, slash part",
        "⌊n/2⌋, ⌈x⌉, Na₂SO₄ and H₂SO₄": "floor of n over two, ceiling of x, N ay two S O four and H two S O four",
        "①②③ or ❶, Ⅳ, Henry Ⅷ, Step Ⅳ": "one, two, three or one, four, Henry the eighth, Step four",
        "£3.50p, $3.50c": "three pounds and fifty pence, three dollars and fifty cents",
        "(2n)!, E=mc²/2, x-1 of n-1": "two n factorial, E equals m c squared over two, x minus one of n minus one",
        "kg/m³, f'(x), foo==1, a == b": "kilograms per cubic meter, f prime of x, foo equals one, ay equals b",
        "Var(X), Cov(X,Y), O(n log n), sin(a)": "Var of X, Cov of X, Y, O of n log n, sine of ay",
        "(−∞, ∞), -∞ < x": "minus infinity, infinity, minus infinity less than x",
        "5! = 120, P(A|B), x ∈ S": "five factorial equals one hundred twenty, P of ay given B, x in S",
    },
    "notation": {
        "♩ = 120, ★★★★☆ 4/5 stars": "quarter note equals one hundred twenty, four out of five stars",
        "B♭ major, C♯m7, the key of A♭": "B-flat major, C sharp minor seven, the key of ay-flat",
        "Bb clarinet, 5 Gb, Cmaj7, D#": "B flat clarinet, five gigabits, C major seven, D sharp",
        "23½%, 33⅓% off, €2½m, 1½–2 cups": (
            "twenty-three and a half percent, thirty-three and one third percent off, two point five million euros, "
            "one and a half to two cups"
        ),
        "SO₄²⁻, Fe³⁺, MnO₄⁻, Al₂(SO₄)₃": (
            "S O four two minus, F E three plus, M N O four minus, ay L two S O four three"
        ),
        "¹⁴C, 14C dating, ⁶⁰Co, a 14C oven": (
            "carbon fourteen, carbon fourteen dating, cobalt sixty, a fourteen degrees Celsius oven"
        ),
        "48° 51′ N, 0°7′39″W, 5′ 11″": (
            "forty-eight degrees fifty-one minutes north, zero degrees seven minutes thirty-nine seconds west, "
            "five feet eleven inches"
        ),
        "001B.4411.3AB7": "zero zero one B, four four one one, three ay B seven",
        "Sat 8:00, Tue: 9-5; he sat": "Saturday eight o'clock, Tuesday: nine to five; he sat",
        "pp. xiv-xvi, Act iv, MCMXCIV, we mix": "pages fourteen to sixteen, Act four, nineteen ninety-four, we mix",
        "1. e4 e5 2. Nf3 Nc6, then Rxd8+": (
            "one, E four, E five, two, knight F three, knight C six, then rook takes D eight check"
        ),
        "rs1801133, RTX4090, order #12345, USD10000": (
            "rs one eight zero one one three three, RTX four thousand ninety, order one two three four five, USD ten thousand"
        ),
        "₩460 billion, 500₽, NZD 5, $50.00-$100.00": (
            "four hundred sixty billion won, five hundred rubles, five New Zealand dollars, "
            "fifty dollars to one hundred dollars"
        ),
        "25 july 2012, in march 5 people, 11:30EST, 1:02:36am": (
            "the twenty-fifth of July, twenty twelve, in march five people, eleven thirty EST, "
            "one oh two and thirty-six seconds ay M"
        ),
        "5 thousand km, 12KG, (123)-123-5678": (
            "five thousand kilometers, twelve kilograms, one two three, one two three, five six seven eight"
        ),
        "VIN 1HGCM82633A004352": "VIN one H G C M eight two six three three ay zero zero four three five two",
        "10⁻³ m, 3 × 10⁸ m/s": (
            "ten to the power of minus three meters, three times ten to the power of eight meters per second"
        ),
    },
    "places": {
        "Hauptstr. 5, 75002 Paris, SW1A 2AA": "Haupt strasse five, seven five zero zero two Paris, S W one ay, two ay ay",
        "5 Oak Dr. Dallas": "five Oak Drive Dallas",
        "12 42nd St. New York": "twelve forty-second Street New York",
        "Wall St. Stocks fell, Wall St. banks": "Wall Street. Stocks fell, Wall Street banks",
        "Chapter 3 Meet Dr. Smith": "Chapter three Meet Doctor Smith",
        "Apt. 5B, Ste. 200, Hwy. 61": "Apartment five B, Suite two hundred, Highway sixty-one",
        "123 Main St. Apt 4B": "one hundred twenty-three Main Street Apartment four B",
        "Sunset Blvd, LA, with St. John": "Sunset Boulevard, LA, with Saint John",
        "St. Patrick's Day": "Saint Patrick's Day",
        "Dr. King Dr.": "Doctor King Drive.",
        "Mt. Everest": "Mount Everest",
    },
    "books": {
        "Gen. Lee, E. coli bacteria, C. elegans": "General Lee, E coli bacteria, C elegans",
        "Mr. T. is here, Option B. then we left": "Mister T is here, Option B. then we left",
        "It was plan B. Then we left": "It was plan B. Then we left",
        "Apple Inc. Shares rose": "Apple Incorporated. Shares rose",
        "Apple Inc. Everyone left": "Apple Incorporated. Everyone left",
        "in the U.S. Officials said": "in the U S. Officials said",
        "Fig. 3, Vol. 2": "Figure three, volume two",
        "Smith et al.": "Smith et al.",
    },
    "shouting": {
        "WHAT IS IT": "what is it",
        "NO SMOKING": "no smoking",
        "US AND UK": "US and UK",
        "FIRE IN LA": "fire in LA",
    },
    "marks": {
        "Hi :) there :D :-( (^_^) >:( xD <333": "Hi there",
        "EXIT → LEFT →": "EXIT to LEFT",
        "[1] cites, 1) first": "one, cites, one, first",
        'a 27" monitor, a 12" pizza': "a twenty-seven inch monitor, a twelve inch pizza",
        'a 1/4" bolt, a 3 1/2" disk': "a one quarter inch bolt, a three and a half inch disk",
        'It is 27" and big, 10" tall': "It is twenty-seven inches and big, ten inches tall",
        'a 5" x 7" photo': "a five by seven inch photo",
        "a 6' fence, a 10' x 12' room": "a six foot fence, a ten by twelve foot room",
        "the dogs' 5' leash, he is 5'10\" tall": "the dogs five foot leash, he is five feet ten inches tall",
    },
    "shouted": {
        "SALE ENDS ON MAY 5 AT 9PM": "sale ends on May fifth at nine P M",
        "IT WAS $5 AND HE HAD TO GO": "it was five dollars and he had to go",
        "MEETING AT 10 AM ON JAN. 5": "meeting at ten ay M on January fifth",
        "WORLD WAR II BEGAN IN 1939": "World War two began in nineteen thirty-nine",
        "HENRY VIII HAD SIX WIVES": "Henry the eighth had six wives",
        "THE BBC AND THE API ARE DOWN": "the BBC and the API are down",
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
        "an A/B test, an A/C unit, N/A, an A in math": "an ay B test, an ay C unit, N ay, an ay in math",
        "the A-team, an A-list star": "the ay-team, an ay-list star",
        "from A to Z, A or B?": "from ay to Z, ay or B?",
        "an A+ grade, vitamin A, not B": "an ay plus grade, vitamin ay, not B",
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
        "the US 12345 times": "the US twelve thousand three hundred forty-five times",
    },
    "telephones": {
        "0800 123 4567": "zero eight zero zero, one two three, four five six seven",
        "020 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "(020) 7946 0958": "zero two zero, seven nine four six, zero nine five eight",
        "0800 123456": "zero eight zero zero, one two three four five six",
        "01 23 45 67 89": "zero one, two three, four five, six seven, eight nine",
    },
    "codes": {
        "Your verification code is 839201.": "Your verification code is eight three nine two zero one.",
        "Your code is 839201 and expires.": "Your code is eight three nine two zero one and expires.",
        "PIN: 4821, ZIP code 94105": "PIN: four eight two one, ZIP code nine four one zero five",
        "my account number 12345678": "my account number one two three four five six seven eight",
        "area code 212": "area code two one two",
        "the code is 200 lines long": "the code is two hundred lines long",
        "account: 300 followers": "account: three hundred followers",
        "the account is 5000 dollars short": "the account is five thousand dollars short",
    },
    "several": {
        "three F-16s, B-52s": "three F sixteens, B fifty-twos",
        "A380s, PS5s, AK-47s": "ay three eighties, P S fives, ay K forty-sevens",
        "two 737s landed, My top 10s": "two seven thirty-sevens landed, My top tens",
        "a 90s band, 90s kids": "a nineties band, nineties kids",
        "a 30s clip, a 60s timer": "a thirty second clip, a sixty second timer",
        "waited 20s, two 30s clips": "waited twenty seconds, two thirty seconds clips",
    },
    "shares": {
        "60/40, 120/80": "sixty forty, one hundred twenty over eighty",
    },
    "lines that end with an abbreviation": {
        "15 Elm Ave.\nDenver, CO": "fifteen Elm Avenue, Denver, CO",
        "12 Baker St.\nLondon": "twelve Baker Street, London",
        "Acme Inc.\n5 Main Rd.\nReno": "Acme Incorporated, five Main Road, Reno",
        "Dr.\nSmith of St.\nLouis": "Doctor Smith of Saint Louis",
        "He works for Acme Inc.\nHe likes it": "He works for Acme Incorporated. He likes it",
    },
    "lists": {
        "1. First item\n2. Second item\n3. Third item": "one, First item. two, Second item. three, Third item",
        "1) One\n2) Two": "one, One. two, Two",
        "A line\n\n1. One\n2. Two": "A line. one, One. two, Two",
    },
    "a pause": {
        "Tickets are cheap - 5 dollars each.": "Tickets are cheap — five dollars each.",
        "The city – 3 million people – is large.": "The city — three million people — is large.",
        "He came –but why– again": "He came — but why — again",
        "It cost $5 - he paid - and left.": "It cost five dollars — he paid — and left.",
        "In 2024 - 5 years later - it rained.": "In twenty twenty-four — five years later — it rained.",
        "iPhone 15 - 3 new colors": "iPhone fifteen — three new colors",
        "I'd like 2 - no, 3 - of them.": "I'd like two — no, three — of them.",
    },
    "a range": {
        "1,000 - 2,000 people": "one thousand to two thousand people",
        "Lakers 102 - 99 Celtics": "Lakers one hundred two to ninety-nine Celtics",
        "we won 3 - 0 on Sunday, pages 3 - 7": "we won three to zero on Sunday, pages three to seven",
        "5 - 10km, 20 Hz–20 kHz": "five to ten kilometers, twenty hertz to twenty kilohertz",
        "20 Hz-20 kHz, 10 ms - 2 s": "twenty hertz to twenty kilohertz, ten milliseconds to two seconds",
        "5°C–10°C, -5°C - 10°C": "five to ten degrees Celsius, minus five to ten degrees Celsius",
        "Mon–Fri 9am–5pm, Monday - Friday": "Monday to Friday nine ay M to five P M, Monday to Friday",
        "Jan-Mar, January–March 2024": "January to March, January to March twenty twenty-four",
        "Jan 5 – Jan 10": "January fifth to January tenth",
        "Jan 5, 2024 - Feb 3, 2024": "January fifth, twenty twenty-four to February third, twenty twenty-four",
        "5 Jan – 10 Feb, May 5 - 7": "the fifth of January to the tenth of February, May fifth to seventh",
        "1990 - 1995": "nineteen ninety to nineteen ninety-five",
    },
    "a hyphen": {
        "Sun-dried, Mon-Wed-Fri": "Sun-dried, Mon-Wed-Fri",
        "May-be, Mar-a-Lago, Sat-Nav": "May-be, Mar-a-Lago, Sat-Nav",
    },
    "a sum": {
        "x - 3 = 5 and n - 1": "x minus three equals five and n minus one",
        "8 - 2 + 1": "eight minus two plus one",
        "What is 10 - 4?": "What is ten minus four?",
        "$10 - $4 = $6": "ten dollars minus four dollars equals six dollars",
    },
    "a comparison": {
        "(p < .001) and p<.05": "p less than point zero zero one, and p less than point zero five",
        "a<b, if a<b and c>d then": "a less than b, if a less than b and c greater than d then",
        "5 < x < 10": "five less than x less than ten",
        ">= 5 or <=10%": "greater than or equal to five or less than or equal to ten percent",
        ">$5 million": "greater than five million dollars",
        "(≥18), n≤5": "greater than or equal to eighteen, n less than or equal to five",
    },
    "no comparison": {
        "I <3 you": "I you",
        "a <b>bold</b> word<br>next, this -> 5 => 6": "a bold word, next, this to five to six",
        "> quoted line\n> another": "quoted line another",
        ">> deep\n> > deeper": "deep deeper",
    },
    "quotes": {
        'He said "I have 27" and left.': "He said I have twenty-seven and left.",
        "the \"27\" monitor, 'I am 6' he said": "the twenty-seven monitor, I am six he said",
        "it gives Decimal('-3') then": "it gives Decimal, minus three, then",
        "class of '99' and '80s'": "class of ninety-nine and eighties",
    },
    "per": {
        "44.1 kHz/16-bit": "forty-four point one kilohertz slash sixteen bit",
        "12 dB/octave, 10 mg/kg/day": "twelve decibels per octave, ten milligrams per kilogram per day",
        "10 Gb/s, $5/user/month": "ten gigabits per second, five dollars per user per month",
        "5 USD/kg": "five U S dollars per kilogram",
        "2x/day, Step 1/3, [1]–[3], incl. tax": "two times per day, Step one of three, one to three, including tax",
        "2 drinks/day, 3 times/week": "two drinks per day, three times per week",
        "1,000 requests/second": "one thousand requests per second",
        "men/women, 2 days/nights, 5 km/miles": "men slash women, two days slash nights, five km slash miles",
        "3 g per kg, per se": "three grams per kilogram, per se",
    },
    "squares": {
        "200 m2, 1000 cm3": "two hundred square meters, one thousand cubic centimeters",
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
        "that 12V battery": "that twelve volt battery",
        "a $3.5-million deal": "a three point five million dollar deal",
        "their $50 monthly fee": "their fifty dollar monthly fee",
        "the 5 km were hard, the $5 he owed": "the five kilometers were hard, the five dollars he owed",
        "the $20 million raised, my $5 back": "the twenty million dollars raised, my five dollars back",
        "his $2 million went to charity": "his two million dollars went to charity",
    },
}


@pytest.mark.parametrize(
    ("written", "said"),
    [pytest.param(w, s, id=f"{group}-{w[:24]!a}") for group, rows in TABLE.items() for w, s in rows.items()],
)
def test_normalized_text(written: str, said: str) -> None:
    assert normalize(written).text == said
    assert normalize(said).text == said, "what is said is its own normal form"


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z']+", re.sub(r"'s\b", "", text.lower())) if len(word) > 1}


def test_verbalized_words_are_in_the_lexicon() -> None:
    lexicon = Lexicon(lambda _: ())
    examples = {rule.example: rule.normalized for rule in RULES}
    for written, said in chain(examples.items(), *(rows.items() for rows in TABLE.values())):
        added = _words(said) - _words(as_written(written).text) - set(re.findall("[a-z]+", written.lower()))
        for word in added:
            assert lexicon.pronounce(word), (written, word)
