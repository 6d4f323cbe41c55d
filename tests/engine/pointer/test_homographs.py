"""Homographs in sentences: the share of readings that a person would give."""

from __future__ import annotations

import re

from voicelab.engine.pointer.config import PHONES
from voicelab.engine.pointer.english import load_lexicon
from voicelab.engine.pointer.homographs import _SENSES, _TABLE, homograph

SENTENCES = """
read 1|I read that book last week.
read 0|I read the news every morning.
read 1|She has read it twice.
read 0|Can you read this to me?
read 1|He read the letter and cried.
read 0|They read to their children at night.
read 1|The report was read aloud.
read 0|Read the instructions first.
read 1|We read about it yesterday.
read 0|She likes to read in bed.
read 1|The teacher read us a story.
read 0|Students read three novels each term.
lead 1|The pipe was made of lead.
lead 0|She took the lead in the race.
lead 0|He will lead the team.
lead 1|Lead is a toxic metal.
lead 1|Old houses often have lead paint.
lead 0|These roads lead to the city.
lead 0|Our lead singer is ill.
lead 1|The roof was covered with lead sheets.
lead 0|They lead by three points.
lead 1|The diver wore weights of lead.
live 1|The show is live tonight.
live 0|We live in a small town.
live 1|They played live music.
live 0|Where do you live?
live 1|The match was broadcast live.
live 0|My parents live near the sea.
live 1|A live wire fell on the road.
live 0|Few people live to a hundred.
live 1|The website goes live on Monday.
live 1|We are live from London.
tear 0|A tear rolled down her cheek.
tear 1|Do not tear the paper.
tear 1|There is a tear in my sleeve.
tear 0|She shed a single tear.
tear 1|They tear down old houses.
tear 1|Be careful or you will tear it.
tears 0|Her eyes filled with tears.
tears 1|He tears the letter up.
bow 1|The actors bow to the audience.
bow 0|He drew his bow and shot an arrow.
bow 1|The ship's bow hit the rock.
bow 0|She tied a ribbon in a bow.
bow 1|Please bow before the queen.
bow 0|The violin bow is broken.
minute 0|Wait a minute.
minute 1|The differences are minute.
minute 1|They found minute traces of gold.
minute 0|It takes one minute to boil.
minute 1|She described it in minute detail.
minute 0|The minute hand is stuck.
produce 0|The market sells fresh produce.
produce 1|The factory will produce cars.
produce 0|Produce is cheaper in summer.
produce 1|These trees produce fruit.
produce 1|They produce oil.
produce 0|All the produce was sold.
resume 0|Send us your resume.
resume 1|Talks will resume tomorrow.
resume 0|Her resume is impressive.
resume 1|We resume at nine.
resume 0|He attached a resume to the email.
resume 1|Please resume your seats.
content 1|She was content with the result.
content 0|The content of the page is new.
content 1|He seems content.
content 0|We publish video content.
content 1|They are content to wait.
content 0|The alcohol content is low.
polish 1|She speaks Polish at home.
polish 0|Polish the table.
polish 1|The Polish team won.
polish 0|He bought shoe polish.
polish 1|Polish sausages are popular.
polish 0|I need to polish my boots.
desert 0|The desert is hot.
desert 1|Soldiers may desert the army.
desert 0|Camels cross the desert.
desert 1|He would never desert his friends.
desert 0|They live in a desert town.
desert 1|Do not desert me.
wound 0|The wound healed slowly.
wound 1|He wound the clock.
wound 0|The nurse cleaned the wound.
wound 1|The road wound through the hills.
wound 0|It could wound his pride.
wound 1|She wound the yarn into a ball.
dove 0|A white dove flew away.
dove 1|She dove into the pool.
dove 0|The dove is a symbol of peace.
dove 1|He dove for the ball.
dove 1|The submarine dove deeper.
dove 0|We saw a dove in the tree.
close 0|The shop is close to home.
close 1|Please close the door.
close 0|They are close friends.
close 1|We close at six.
close 0|It was a close race.
close 1|Did you close it?
wind 0|The wind is strong.
wind 1|Wind the clock up.
wind 0|A cold wind blew.
wind 1|You must wind the rope around it.
object 0|What is that object?
object 1|I object to this.
object 1|They object to the plan.
object 0|The object was found.
record 0|He broke the record.
record 1|We record every call.
record 1|Record the song now.
record 0|Her record is clean.
present 0|He gave me a present.
present 1|She will present the award.
refuse 1|They refuse to pay.
refuse 0|The refuse was collected.
permit 0|You need a permit.
permit 1|We do not permit smoking.
conduct 1|They conduct research.
conduct 0|His conduct was bad.
rebel 0|The rebel army won.
rebel 1|Teenagers rebel against rules.
contract 0|Sign the contract.
contract 1|Metals contract in the cold.
insult 0|That was an insult.
insult 1|Do not insult him.
subject 0|Math is my favorite subject.
subject 1|They subject him to tests.
suspect 0|The suspect was arrested.
suspect 1|I suspect foul play.
project 0|The project is late.
project 1|We project growth next year.
use 0|It is of no use.
use 1|How do you use it?
house 0|The house is big.
house 1|The shelters house many families.
excuse 0|That is no excuse.
excuse 1|Please excuse me.
estimate 0|Give me an estimate.
estimate 1|We estimate the cost.
separate 0|They sleep in separate rooms.
separate 1|Please separate the eggs.
graduate 0|She is a graduate student.
graduate 1|He will graduate in May.
moderate 0|It was a moderate success.
moderate 1|She will moderate the debate.
elaborate 0|It was an elaborate plan.
elaborate 1|Could you elaborate on that?
deliberate 0|It was a deliberate act.
deliberate 1|The jury will deliberate tomorrow.
perfect 0|A perfect day.
perfect 1|He tried to perfect his technique.
invalid 1|The code is invalid.
row 0|We sat in the front row.
row 1|They had a terrible row about money.
row 0|Row the boat.
bass 1|He caught a bass in the lake.
bass 0|She plays bass guitar.
bass 1|We ate grilled bass.
bass 0|The bass is too loud.
sow 1|Farmers sow seeds in spring.
sow 0|The sow had ten piglets.
advocate 0|She is an advocate of peace.
advocate 1|They advocate change.
attribute 1|I attribute it to luck.
attribute 0|Patience is a good attribute.
abuse 0|Drug abuse is rising.
abuse 1|They abuse their power.
increase 0|There was an increase in sales.
increase 1|Prices increase every year.
transport 0|Public transport is good.
transport 1|Trucks transport goods.
upset 1|Do not upset her.
conflict 0|The conflict ended.
conflict 1|The stories conflict.
protest 0|The protest was peaceful.
protest 1|Workers protest against cuts.
import 1|We import coffee.
import 0|The import of cars fell.
export 1|They export wine.
digest 1|Snakes digest slowly.
convict 0|The convict escaped.
convict 1|The jury may convict him.
close 1|At the close of the day we left.
close 0|That was close.
read 1|Once she had read the note, she left.
read 0|If you read carefully, you will see.
read 1|Nobody read the manual.
read 1|When I was a child, I read a lot.
read 0|How often do you read?
read 1|My father read the paper before breakfast.
read 1|Have you read this?
read 0|Let me read it.
read 0|We should read more.
read 1|It was widely read.
read 1|I had never read it.
read 0|Most people read silently.
read 0|You must read and sign.
lead 1|Lead melts easily.
lead 0|Lead the way.
lead 1|He was hit by a lead pipe.
lead 0|The lead in the play is new.
lead 0|All paths lead home.
lead 1|Water with lead is unsafe.
tear 0|A tear fell from his eye.
tear 1|He had a tear in his jeans.
tear 1|The fabric may tear.
tear 1|I saw him tear the page.
live 1|Live music starts at eight.
live 0|They live here.
live 0|Animals that live underground are shy.
live 1|The concert was live.
live 1|It is a live broadcast.
live 0|To live is to learn.
bow 1|He made a low bow.
bow 0|Her hair had a pink bow.
bow 1|She stood at the bow of the ship.
bow 1|They bow to each other.
bow 0|The archer raised his bow.
minute 1|A minute amount of salt is enough.
minute 0|Every minute counts.
minute 1|The crack was so minute that nobody saw it.
minute 0|He arrived at the last minute.
produce 0|Local produce tastes better.
produce 1|Cows produce milk.
produce 0|We buy produce at the market.
produce 1|Did it produce any results?
resume 0|The recruiter read every resume.
resume 0|Update your resume before you apply.
content 1|The cat is content.
content 0|Read the content carefully.
content 1|He was not content with second place.
content 0|Fat content varies.
polish 1|My grandfather was Polish.
polish 0|Use nail polish.
polish 1|Polish is a Slavic language.
desert 1|His courage did not desert him.
desert 0|The Sahara is a desert.
desert 1|They desert their posts.
wound 1|The path wound up the mountain.
wound 0|He had a bullet wound.
wound 1|The clock was wound up.
wound 0|A wound on his leg hurt.
dove 1|The kids dove in.
dove 1|She quickly dove under the bed.
dove 0|He held a dove.
wind 1|Rivers wind through the valley.
wind 0|Wind blew all night.
wind 0|There was no wind.
wind 1|The paths wind around the lake.
row 1|The neighbors had a blazing row.
row 0|They row across the lake.
sow 1|You reap what you sow.
close 0|Stay close to me.
close 1|The store closes soon, so close the window.
close 0|We were so close.
object 0|A strange object fell.
object 1|Nobody will object.
record 1|The band will record an album.
record 0|It was a record year.
record 1|These devices record sound.
present 1|They present their findings.
present 0|All members were present.
permit 1|If conditions permit, we go.
refuse 1|I refuse.
conduct 1|Metals conduct heat.
increase 0|The increase was small.
use 0|The use of force is banned.
use 1|People use phones daily.
house 1|The museum will house the art.
excuse 1|Excuse me.
separate 1|Walls separate the rooms.
estimate 0|The estimate was too low.
graduate 1|They graduate next year.
perfect 1|She wants to perfect her English.
subject 1|Do not subject him to this.
contest 1|They contest the will.
contest 0|She won the contest.
project 1|They project strong growth.
project 0|This project is mine.
abuse 1|Do not abuse the system.
alternate 1|The days alternate.
duplicate 0|Keep a duplicate copy.
duplicate 1|Do not duplicate this key.
intimate 0|They are intimate friends.
associate 0|She is an associate professor.
associate 1|I associate summer with ice cream.
appropriate 0|That is not appropriate.
coordinate 1|They coordinate the work.
delegate 1|Managers delegate tasks.
delegate 0|Each delegate spoke.
minute 0|Could you give me one more minute to finish?
close 1|Banks in the region close early on Fridays.
close 1|The factory is expected to close by the end of the year.
import 1|Countries that import most of their food are at risk.
duplicate 0|The database contains duplicate entries.
row 1|The minister resigned after a row over expenses.
dove 1|The goalkeeper dove to the left.
tear 0|A tear fell onto the page.
refuse 0|Trucks collect refuse on Fridays.
"""


def test_homographs_by_part_of_speech() -> None:
    wrong = []
    rows = [row.split("|") for row in SENTENCES.strip().splitlines()]
    for key, sentence in rows:
        word, sense = key.split()
        tokens = re.findall(r"[A-Za-z']+|[.,;:?!]", sentence)
        words = [token.lower() if token[0].isalpha() else "" for token in tokens]
        sound = homograph(words, words.index(word), tokens[words.index(word)])
        expected = (_SENSES.get(word) or _TABLE[word])[int(sense)]
        if (" ".join(sound) if sound else load_lexicon()[word]) != expected:
            wrong.append(sentence)
    assert len(wrong) <= 0.04 * len(rows), wrong


def test_phones_are_in_the_inventory() -> None:
    readings = (sound for table in (_TABLE, _SENSES) for pair in table.values() for sound in pair)
    assert {phone for sound in readings for phone in sound.split(" ")} <= set(PHONES)
    assert homograph(["the", "dog", "barks"], 1, "dog") is None
