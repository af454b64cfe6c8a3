"""Write invented support tickets as CSV: `python examples/make_tickets.py 4000 > support.csv`. All of it is made up."""

import csv
import random
import sys
from datetime import date, timedelta

SAYS = {
    "router": [
        "The router drops the line",
        "No wifi in the kitchen",
        "The router restarts by itself",
        "The light is red",
    ],
    "phone": ["The phone has no dial tone", "Calls break off", "The voicemail is silent", "Nobody can hear me"],
    "billing": [
        "I was charged twice",
        "The invoice has the wrong name",
        "My refund is missing",
        "The discount is gone",
    ],
}
URGENT = ["We cannot work at all.", "Please send someone today.", "This is an emergency for our shop."]
PATIENT = ["There is no hurry.", "Please look at it when you can.", "I can live with it for now."]


def tickets(count: int) -> list[dict[str, object]]:
    chance = random.Random(0)
    rows: list[dict[str, object]] = []
    for _ in range(count):
        product = chance.choices(list(SAYS), [5, 3, 2])[0]
        high = chance.random() < (0.5 if product == "router" else 0.2)
        opened = date(2024, 1, 1) + timedelta(chance.randrange(366))
        message = f"{chance.choice(SAYS[product])} since {opened:%A}. {chance.choice(URGENT if high else PATIENT)}"
        paid = "" if chance.random() < 0.1 else round(min(99.99, chance.gammavariate(2, 12 if high else 20)), 2)
        row = {"product": product, "priority": "high" if high else "low", "opened": opened, "paid": paid}
        rows.append({**row, "message": message})
    return rows


if __name__ == "__main__":
    made = tickets(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
    writer = csv.DictWriter(sys.stdout, list(made[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(made)
