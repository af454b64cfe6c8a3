"""Make the demo's table: reviews of an invented hotel, put together at random from the sentences below.

    python examples/make_reviews.py FILE.csv [ROWS]

Every sentence was written for this project. The same number of rows is the same table each time.
"""

import csv
import random
import sys
from datetime import date, timedelta
from pathlib import Path

COLUMNS = ("review", "topic", "verdict", "nights", "arrived")
FIRST_DAY, DAYS = date(2025, 1, 1), 365

SENTENCES = {
    ("room", "pleased"): [
        "The room was {clean} and the bed was {soft}",
        "We had a {large} room with a {view}",
        "The bathroom was {clean}, with a large shower and plenty of hot water",
        "I slept well, as the room was quiet and the curtains kept out the light",
        "The air conditioning was quiet and kept the room cool",
        "There was a desk, a lamp and fast wifi, so I could work in the evening",
        "Fresh towels came every day and the pillows were {soft}",
        "From the balcony we watched the {sunset} over the {water}",
        "The mattress was firm and the blankets were warm",
        "A kettle, tea and a small fridge in the room made us feel at home",
    ],
    ("room", "disappointed"): [
        "The room was {dirty} and the carpet had stains",
        "The bed was too {hard} and my back hurt in the morning",
        "The shower was cold and the drain was blocked",
        "There was noise from the street until {late}, so nobody could sleep",
        "The air conditioning was {loud} and dripped on the floor",
        "The wifi in our room was slow and stopped in the evening",
        "There was mould in the bathroom and a smell of damp",
        "The walls are thin, and we heard every word from the next room",
        "The room was {small}, with no window that opens",
        "The heating did not work and the blankets were thin",
    ],
    ("breakfast", "pleased"): [
        "Breakfast was {good}, with fresh fruit and warm bread",
        "The coffee was hot and strong, and the eggs were cooked as we wanted them",
        "The buffet had a large choice of cheese, ham and pastries",
        "There was fresh orange juice and home-made jam every morning",
        "They made {pancakes} for the children without being asked",
        "Breakfast was served on the terrace, in the morning sun",
        "They had good vegetarian dishes and oat milk",
        "The cook baked a cake for the last day of our holiday",
        "The porridge and the honey from the region were {good}",
        "We could have breakfast until eleven, which was perfect on a holiday",
    ],
    ("breakfast", "disappointed"): [
        "The coffee was cold and tasted of nothing",
        "The bread was stale and the butter was gone by {early}",
        "The buffet was {empty} and nobody filled it up again",
        "The eggs were cold and the bacon was greasy",
        "There was a queue for the coffee machine every morning",
        "The dining room was crowded, and we waited for a table",
        "There was nothing for vegetarians but toast and jam",
        "The fruit came from a can and the juice was too sweet",
        "Plates and cups were dirty, and we had to ask for spoons",
        "Breakfast cost extra and was the same every day",
    ],
    ("staff", "pleased"): [
        "The staff were {kind} and always had time for us",
        "The receptionist {upgraded} without being asked",
        "The porter carried our luggage up to the third floor",
        "At check-in we got a map and good tips for restaurants",
        "The manager called a taxi for us at four in the morning",
        "Our son lost his teddy bear, and the cleaners found it and sent it home",
        "The waiter remembered our names and what we like to drink",
        "They kept our bags for the whole day after check-out",
        "The night porter let us in with a smile although we were very late",
        "When I was ill they brought soup and called a doctor",
    ],
    ("staff", "disappointed"): [
        "The receptionist was {rude} and never looked up from the phone",
        "Check-in took {long}, with a long queue and one person at the desk",
        "They lost our booking and wanted us to pay twice",
        "I asked three times for clean towels and none came",
        "The waiter was {rude} and brought the wrong dish",
        "Nobody answered the telephone at the reception at night",
        "The cleaners came in at eight without knocking",
        "I wrote to the manager about the bill and had no answer",
        "They charged my card for a minibar that we never opened",
        "Nobody helped us with the luggage, and the lift was broken",
    ],
    ("location", "pleased"): [
        "The hotel is {near} the old town, in a quiet street",
        "The beach is {minutes} away on foot, through a park",
        "The bus to the airport stops right in front of the door",
        "There are good restaurants and a bakery round the corner",
        "From the station it is a short walk, all of it flat",
        "Parking was easy and free, behind the hotel",
        "The museum and the market are {near} the hotel",
        "The garden is green and quiet, with a view of the {water}",
        "Perfect for walking: the path up the hill begins at the door",
        "The tram into the centre comes every {minutes}",
    ],
    ("location", "disappointed"): [
        "The hotel is far from the centre and there is no bus at night",
        "There was a building site next door, with noise from {early}",
        "Parking costs twenty a day and the garage is narrow",
        "The beach is much further away than the website says",
        "The street is {dirty} and I did not feel safe there at night",
        "There is no shop or restaurant near the hotel",
        "The way from the station is long and steep, and hard with luggage",
        "The road in front is busy, and there is traffic all night",
        "The bar next door plays loud music until {late}",
        "It was hard to find, as there is no sign at the road",
    ],
}
SLOTS = {
    "clean": ["clean", "spotless", "very clean", "bright and clean"],
    "soft": ["comfortable", "soft", "very comfortable"],
    "large": ["large", "lovely", "bright", "quiet"],
    "view": ["view of the sea", "balcony", "view of the harbour", "view of the garden"],
    "sunset": ["sunset", "boats", "lights"],
    "water": ["sea", "harbour", "river", "lake"],
    "dirty": ["dirty", "dusty", "not clean", "dark and dirty"],
    "hard": ["hard", "soft", "short", "narrow"],
    "late": ["two in the morning", "late at night", "midnight", "three in the morning"],
    "early": ["seven in the morning", "eight o'clock", "half past seven", "six in the morning"],
    "loud": ["loud", "broken", "old and loud", "noisy"],
    "small": ["small and dark", "tiny", "too small for two", "hot and small"],
    "good": ["excellent", "very good", "delicious", "a pleasure"],
    "pancakes": ["pancakes", "waffles", "scrambled eggs", "hot chocolate"],
    "empty": ["half empty", "empty", "nearly empty by nine", "poor"],
    "kind": ["friendly", "kind", "very helpful", "friendly and helpful"],
    "upgraded": [
        "gave us a better room",
        "printed our tickets",
        "booked a boat trip for us",
        "found us a cot for the baby",
    ],
    "rude": ["rude", "unfriendly", "impatient", "not helpful"],
    "long": ["an hour", "forty minutes", "far too long", "half an hour"],
    "near": ["close to", "two streets from", "right beside", "a short walk from"],
    "minutes": ["five minutes", "ten minutes", "eight minutes", "a quarter of an hour"],
}
OPENINGS = {
    "pleased": [
        "A lovely stay.",
        "We enjoyed our time here.",
        "Good value for the price.",
        "My second visit.",
        "We came for a weekend.",
        "I was here for a conference.",
        "A birthday present for my mother.",
        "",
    ],
    "disappointed": [
        "Not worth the price.",
        "We expected more.",
        "I was here for work.",
        "We came for a weekend.",
        "Never again.",
        "The pictures promise too much.",
        "Our summer holiday.",
        "",
    ],
}
CLOSINGS = {
    "pleased": [
        "We would come again.",
        "I can recommend it.",
        "Thank you to everybody.",
        "The children did not want to leave.",
        "Next year we stay longer.",
        "Well done.",
        "",
    ],
    "disappointed": [
        "We will not come back.",
        "I want my money back.",
        "I cannot recommend it.",
        "Next time I take another hotel.",
        "For this price it is too little.",
        "We left a day early.",
        "",
    ],
}
LINKS = (". ", ", and ", ". Also, ", ". Besides, ")


def filled(sentence: str, chance: random.Random) -> str:
    return sentence.format(**{name: chance.choice(words) for name, words in SLOTS.items()})


def review(topic: str, verdict: str, chance: random.Random) -> str:
    """Two or three sentences on the topic, an opening and a closing."""
    sentences = [filled(each, chance) for each in chance.sample(SENTENCES[topic, verdict], chance.choice((2, 2, 3)))]
    body = sentences[0]
    for each in sentences[1:]:
        link = chance.choice(LINKS)
        body += link + (each if link == ". " or each.startswith("I ") else each[0].lower() + each[1:])
    parts = (chance.choice(OPENINGS[verdict]), f"{body}.", chance.choice(CLOSINGS[verdict]))
    return " ".join(part for part in parts if part)


def rows(count: int) -> list[tuple[str, str, str, int, date]]:
    """``count`` reviews: more pleased guests than not, long stays in summer, and long stays complain of breakfast."""
    chance = random.Random(2025)
    made = []
    for _ in range(count):
        arrived = FIRST_DAY + timedelta(days=chance.randrange(DAYS))
        summer = arrived.month in (6, 7, 8)
        nights = min(14, 1 + int(chance.expovariate(1 / (5 if summer else 2))))
        topic = chance.choices(("room", "breakfast", "staff", "location"), (4, 3 if nights < 5 else 5, 3, 3))[0]
        pleased = {"room": 0.5, "breakfast": 0.6 if nights < 5 else 0.35, "staff": 0.65, "location": 0.6}[topic]
        verdict = "pleased" if chance.random() < pleased else "disappointed"
        made.append((review(topic, verdict, chance), topic, verdict, nights, arrived))
    return made


def main(file: Path, count: int = 4000) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as target:
        writer = csv.writer(target, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(count))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
