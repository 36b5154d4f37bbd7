"""The text that the tiny model learns from: made up here, from a seed, so that anyone can make it again.

Every document is of one kind: records behind the lines they are drawn from (orders, calls, events, reviews), questions
with an answer in prose and a line of JSON, or a request with plain prose. They have the forms of the prompts in
`workloads/drafts` and none of their contents: names, goods, places and sentences are other ones, and a part of the
names is put together from syllables, so that a model has to learn to copy rather than to know them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator


def _listed(text: str, mark: str | None = ",") -> list[str]:
    """What stands between the marks (None: any white space), with line breaks as spaces."""
    return [word.strip() for word in " ".join(text.split()).split(mark)]


FIRST = _listed(
    """Anna Boris Clara Derek Esther Frank Gloria Hector Ines Jorge Karin Lars Maria Nils Olga Pedro Rosa Stefan
    Tanya Ulrich Vera Wilhelm Yusuf Zoe Agnes Bernard Cecile Dmitri Erika Fabian Greta Hugo Irma Julius Katya
    Leon Mona Noel Oscar Paula Quentin Rita Samuel Thea Urs Viola Walid Xenia Yara Zeno Aisha Björn Chloë Darius
    Edda Farid Gemma Harald Ilse Jakob""",
    None,
)
LAST = _listed(
    """Abel Brandt Castro Duval Engel Fischer Grant Holm Ivanov Jansen Keller Lopez Meyer Novak Olsen Perez Roth
    Schmidt Torres Ullman Vogel Weber Young Ziegler Arnold Becker Conrad Dietz Ebert Franke Gomez Hansen Ibsen
    Jonas Kramer Lange Marino Nowak Ortega Petrov Rossi Santos Thomas Urban Vidal Wolff Zeller Ahmadi Bauman
    Cheng Doyle Eriksen Ferrari Gupta Hahn""",
    None,
)
GOODS = {
    "a toy shop": "doll house,kite,train set,spinning top,teddy bear,marble run,jigsaw,wooden blocks,yo-yo,puppet",
    "a stationer": "fountain pen,ink bottle,ring binder,envelope box,desk lamp,stapler,ruler,eraser,paper tray,globe",
    "a pet shop": "dog leash,cat tree,fish tank,bird cage,rabbit hutch,food bowl,chew bone,hamster wheel,brush,straw",
    "a furniture store": "oak table,arm chair,book shelf,coat rack,foot stool,night stand,sofa bed,mirror,rug,bench",
    "a tea house": "green tea,tea pot,honey jar,ginger biscuit,mint tea,sugar tongs,tea strainer,cup and saucer,tray",
    "a bicycle shop": "bell,saddle,chain oil,inner tube,rear rack,pump,brake cable,pedal set,child seat,mudguard",
    "a clothes shop": "wool scarf,linen shirt,rain coat,leather belt,cotton socks,straw hat,silk tie,apron,gloves",
    "a camera shop": "tripod,lens cap,photo album,memory card,film roll,camera bag,flash,battery pack,picture frame",
}
STATUS = ("new", "paid", "packed", "shipped", "returned")
QUANTITIES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 20, 24, 30, 36, 50)
ROOMS = ("kitchen", "bedroom", "bathroom", "hall", "garage", "study")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = _listed("January February March April May June July August September October November December", None)
CITIES = _listed(
    """Madrid Berlin Chicago Helsinki Cairo Lima Nairobi Osaka Vienna Boston Dublin Prague Seoul Tunis Riga Toronto
    Warsaw Zagreb Geneva Havana Bergen Porto Ghent Turin Malmö Lyon Basel Seattle Miami Quito""",
    None,
)
TOWNS = _listed(
    """Selby Corby Falmouth Penrith Dorking Malvern Keswick Louth Romsey Thirsk Buxton Marlow Hythe Tring Bude
    Frome Kelso Wick Cromer Diss Ripon Ely Arundel Padstow Newquay Skipton""",
    None,
)
TASKS = _listed(
    """rice,washing machine,oven,pizza,phone call,meditation,cake,bike ride,shower,reading,plants,potatoes"""
)
MEETINGS = _listed(
    """tennis,piano lesson,barber,book club,parents' evening,yoga,dinner with Karin,swimming,chess,car service"""
)
ARTISTS = _listed(
    """The Paper Boats,Nina Vale,Old Harvest,Blue Lantern,Miguel Sol,The Tin Hats,Clara Nord,Seven Rivers,Echo Park"""
)
MESSAGES = _listed(
    """the keys are under the mat,the meeting is moved,lunch is in the fridge,the parcel is here,I am running
    late,the bus was full,we are out of milk,the film starts at eight,the doctor called back,the garden gate is
    open,I found the blue folder,the car is ready"""
)
KINDS = {
    "concert": ("Songs of the North,Evening Organ,Drums at Dusk,Spring Voices,Harp and Flute,Night Music",
                "The {who} plays {what},{who} gives {what},{what} with the {who} can be heard"),
    "lecture": ("Rivers of Ice,The Roman Wall,Why Birds Sing,Glass and Light,Stars over Town,Bread in History",
                "{who} speaks about {what},A talk on {what} is given by {who},{what} is the subject of {who}"),
    "workshop": ("Paint a Plate,Weave a Basket,Build a Birdhouse,Make Paper,Mend a Chair,Cut a Stencil",
                 "Learn with {who}: {what},{what} with {who},{who} shows how to {what}"),
    "market": ("Flower Market,Fish Market,Spring Fair,Honey Market,Wool Fair,Book Market",
               "The {what} is held by {who},{who} opens the {what},The {what} of {who} takes place"),
    "exhibition": ("Maps of Islands,Clay and Fire,Portraits in Oil,Old Clocks,Boats of Wood,Posters of Travel",
                   "{what} by {who} is on show,{who} shows {what},{what} can be seen; it was made by {who}"),
}  # fmt: skip
VENUES = _listed(
    """Village Hall,Round House,Old Bakery,Market Hall,Chapel,Boat House,School Yard,Glass House,Tower Room,Barn"""
)
PRODUCTS = _listed(
    """desk fan,wall clock,running shoes,city bike,coffee grinder,camping stove,sleeping bag,garden chair,Night
    Train,Castle Quest,radio alarm,toaster,Violet 5,rain jacket,travel mug,cordless drill,snow shovel,Lantern
    2,bread bin, water filter,yoga mat,tool box"""
)
GOOD = _listed(
    """it starts at once,it is light and easy to carry,the colours are as bright as in the picture,it does what the
    box says,it came two days early,the handle is comfortable,it makes almost no noise,it looks much dearer than
    it was,the instructions are short and clear,it fits well on a small shelf,the material feels solid,it is
    simple to clean"""
)
BAD = _listed(
    """the lid does not close well,it smells of plastic,the screws were too short,one corner was scratched,it is
    hard to reach the button,the cord is far too short,it stopped after two weeks,the seam came open,it gets hot
    very quickly,the paint came off,it is heavier than I thought,nobody answers at the service number"""
)
AFTER = _listed(
    """I use it every morning and would not want to be without it.|My sister has ordered the same one.|After {n}
    weeks it still works like on the first day.|I have sent it back and wait for my money.|For this price I had
    expected a bit more.|We took it on a trip of {n} days and had no trouble.|The children fight over it.|It now
    stands in the cellar.|I would buy it again, but not in this colour.|The seller was friendly and sent another
    part within {n} days.""",
    "|",
)
TOPICS = {  # topic -> (question, subject, keywords)
    "tides": ("What causes the tides?", "The tide", "moon,gravity,water,coast"),
    "volcanoes": ("Why do volcanoes erupt?", "A volcano", "magma,pressure,gas,rock"),
    "glaciers": ("How does a glacier move?", "A glacier", "ice,weight,valley,snow"),
    "clocks": ("How does a clock keep time?", "A clock", "spring,wheel,balance,hours"),
    "glass": ("How is glass made?", "Glass", "sand,heat,furnace,cooling"),
    "yeast": ("What does yeast do?", "Yeast", "sugar,gas,dough,warmth"),
    "owls": ("Why can owls hunt at night?", "An owl", "hearing,feathers,eyes,silence"),
    "batteries": ("How does a battery work?", "A battery", "metal,acid,current,charge"),
    "lightning": ("What is lightning?", "Lightning", "cloud,charge,spark,air"),
    "telescopes": ("How does a telescope work?", "A telescope", "lens,mirror,light,focus"),
    "deserts": ("Why are deserts dry?", "A desert", "wind,rain,mountain,heat"),
    "spiders": ("How do spiders make webs?", "A spider", "silk,thread,trap,insects"),
    "cheese": ("How is cheese made?", "Cheese", "milk,rennet,salt,curd"),
    "sleep": ("Why do we sleep?", "Sleep", "brain,rest,memory,night"),
    "bridges": ("How does a bridge carry its load?", "A bridge", "arch,steel,weight,pillar"),
    "salmon": ("How do salmon find their river?", "A salmon", "smell,river,sea,spawning"),
    "steam": ("How does a steam engine work?", "A steam engine", "boiler,piston,coal,pressure"),
    "taxes": ("What are taxes for?", "A tax", "state,roads,schools,income"),
    "colours": ("Why do we see colours?", "A colour", "eye,light,nerve,brain"),
    "earthquakes": ("What is an earthquake?", "An earthquake", "plates,crust,waves,fault"),
    "snow": ("Why is snow white?", "Snow", "crystal,light,air,cold"),
    "locks": ("How does a lock work?", "A lock", "key,pins,spring,bolt"),
    "whales": ("How do whales breathe?", "A whale", "lungs,blowhole,surface,air"),
    "pencils": ("How are pencils made?", "A pencil", "graphite,clay,wood,glue"),
}
WHY = _listed(
    """because the {a} pushes against the {b}|when the {a} meets the {b} and slows down|since the {a} is stronger
    than the {b}|as soon as there is enough {a} near the {b}|because the {a} is drawn towards the {b}|while the
    {a} and the {b} change places""",
    "|",
)
THEN = _listed(
    """In this way the {c} is kept for a long time.|So the {c} grows a little with every day.|That is why the {c}
    can be found almost everywhere.|Without the {c} nothing of this would happen.|The {c} then returns to where
    it came from, and all begins again.|What is left of it is carried away by the {c}.""",
    "|",
)
ACTS = _listed(
    """changes its form,begins to move,gives off energy,grows,takes in what it needs,does its work,comes about"""
)
ASKS = _listed(
    """Describe {a} {t}.|Tell me about {a} {t}.|Write a few sentences about {a}.|Write a short letter about
    {a}.|What is special about {a} {t}?|Explain to a friend what {a} is like.|Give three reasons to visit
    {a}.|Tell a short story about {a}.|How can I prepare for {a}?|What should I know about {a}?|Write the first
    lines of a book about {a}.""",
    "|",
)
THINGS = _listed(
    """a harbour,a bakery,an old bridge,a summer night,a long train ride,a village school,the first snow,a birthday
    party,a walk by the river,a quiet library,a busy kitchen,a small theatre,a mountain hut,a flower shop,a day
    at the beach,a garden behind a house,a journey by ship,a new neighbour,a storm,a concert in the park"""
)
TIMES = _listed("""in the morning,late at night,in winter,after the rain,on a Sunday,before the holidays,in spring""")
PEOPLE = _listed(
    """the baker,an old woman,my brother,the teacher,a child,the captain,our neighbour,the postman,a young man,a
    friend"""
)
SIGHTS = _listed(
    """the light,a red door,the smell of bread,the wind,a row of lamps,the sound of bells,a grey cat,the water,the
    dust"""
)
DOINGS = _listed(
    """stands at the window and waits,opens the shutters,counts the coins,carries a basket across the square, looks
    up at the clouds,sings an old song,reads the paper,pours a cup of coffee,sweeps the steps,tells the same
    story again,laughs and goes on,closes the book"""
)
SENTENCES = _listed(
    """{t}, {p} {d}, and {s} is everywhere.|There is {s}, and {p} {d}.|Nobody hurries here: {p} {d}, and so it has
    always been.|What I remember best is {s}.|Then {p} {d}, while {q} {e}.|It is best to come {t}, when {s}
    makes everything look new.|First {p} {d}; after that {q} {e}.|Some people come for {s}, others because {p}
    {d}.|If you ask {p}, the answer is always {s}.|And when {q} {e}, the day is nearly over.|I often think of
    {s} and of how {p} {d}.""",
    "|",
)
_PARTS = _listed(
    """ba be bo da de do fa fe ga go ha ka ke la le lo ma me mi mo na ne no pa pe ra re ri ro sa se so ta te ti to
    va ve wa za""",
    None,
)


def _pick(chance: random.Random, listed: str) -> str:
    return chance.choice(listed.split(","))


def _word(chance: random.Random, most: int = 3) -> str:
    end = chance.choice(["", "n", "r", "s", "l", "x", "nd", "th"])
    return "".join(chance.choices(_PARTS, k=chance.randint(2, most))) + end


def _name(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return f"{_word(chance, 2).capitalize()} {_word(chance).capitalize()}"
    return f"{chance.choice(FIRST)} {chance.choice(LAST)}"


def _rising(chance: random.Random, first: int, step: int) -> Iterator[int]:
    while True:
        yield first
        first += chance.randint(1, step)


def _dumps(value, spaced: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def orders(chance: random.Random, spaced: bool | None = None) -> str:
    """Orders of a shop as lines of text, then as NDJSON: compact, or with spaces behind commas and colons."""
    spaced = chance.random() < 0.4 if spaced is None else spaced
    shop = chance.choice(list(GOODS))
    dash = chance.random() < 0.4
    lines, records = [], []
    for number, _ in zip(_rising(chance, chance.randint(1000, 9800), 4), range(chance.randint(3, 9)), strict=False):
        who, quantity, status = _name(chance), chance.choice(QUANTITIES), chance.choice(STATUS)
        what = _pick(chance, GOODS[shop]) if chance.random() < 0.7 else f"{_word(chance)} {_word(chance, 2)}"
        express, wrapped = chance.random() < 0.5, chance.random() < 0.4
        head = f"Order {number}, {who}" if dash else f"Order {number} for {who}"
        post = "express" if express else "standard post"
        lines.append(f"{head}: {quantity} x {what}, {post}, {status}{', gift wrapped' if wrapped else ''}.")
        keys = ("orderId", "customerName", "productName", "quantity", "expressDelivery", "orderStatus", "giftWrapped")
        values = (number, who, what, quantity, express, status, wrapped)
        records.append(_dumps(dict(zip(keys, values, strict=True)), spaced))
    head = f"Orders of {shop}:\n" + "\n".join(lines)
    return f"{head}\n\nThe same orders as NDJSON, one JSON object a line:\n" + "\n".join(records) + "\n"


def _request(chance: random.Random) -> tuple[str, str, dict]:
    """(what is asked, the name of the function, its arguments)"""
    kind = chance.choice(["set_timer", "send_message", "play_music", "get_weather", "add_event", "switch_light"])
    if kind == "set_timer":
        minutes, label = chance.choice([2, 3, 5, 6, 9, 10, 12, 15, 18, 20, 35, 45, 60]), chance.choice(TASKS)
        ask = "Set a timer of {} minutes for the {}.|Give me {} minutes for the {}.|Start a {} minute timer for {}."
        ask += "|Remind me in {} minutes of the {}.|{} minutes, please, for the {}."
        return chance.choice(ask.split("|")).format(minutes, label), kind, {"minutes": minutes, "label": label}
    if kind == "send_message":
        who = chance.choice([_name(chance), *FIRST[:12], "Dad", "Dr Roth"])
        text = chance.choice(MESSAGES)
        ask = chance.choice(["Tell {} that {}.", "Write to {} that {}.", "Let {} know {}.", "Message {}: {}."])
        return ask.format(who, text), kind, {"recipient": who, "text": _sentence(text) + "."}
    if kind == "play_music":
        artist = chance.choice(ARTISTS) if chance.random() < 0.7 else f"{_word(chance).capitalize()}"
        shuffle = chance.random() < 0.5
        ask = "Play {}, shuffled.|Some {} in any order, please." if shuffle else "Play {} in order.|I want to hear {}."
        return chance.choice(ask.split("|")).format(artist), kind, {"artist": artist, "shuffle": shuffle}
    if kind == "get_weather":
        city = chance.choice(CITIES) if chance.random() < 0.7 else _word(chance).capitalize()
        unit = chance.choice(["celsius", "fahrenheit"])
        ask = "How warm is it in {}, in {}?|Weather for {} in {}.|Is it raining in {}? In {}, please."
        ask += "|Do I need a hat in {}? {}.|What does {} look like tomorrow, {}?"
        return chance.choice(ask.split("|")).format(city, unit), kind, {"city": city, "unit": unit}
    if kind == "add_event":
        title, day, hour = chance.choice(MEETINGS), chance.choice(DAYS), chance.randint(7, 21)
        ask = "Add {}, {} at {}.|Note {} on {} at {}.|Put the {} on {} at {}.|{} is on {} at {}."
        words = _sentence(chance.choice(ask.split("|")).format(title, day, hour))
        return words, kind, {"title": title, "day": day, "hour": hour}
    room, on = chance.choice(ROOMS), chance.random() < 0.5
    ask = "Light on in the {}.|Switch on the {} light.|It is dark in the {}, light please.|Make it bright in the {}."
    off = "Light off in the {}.|Turn off the {} light.|Nobody is in the {}, turn off the light.|Make it dark in the {}."
    return chance.choice((ask if on else off).split("|")).format(room), kind, {"room": room, "on": on}


def calls(chance: random.Random) -> str:
    """Requests, then the same as function calls, one a line."""
    lines, records = [], []
    first = chance.randint(100, 980)
    for number in range(first, first + chance.randint(4, 11)):
        ask, name, arguments = _request(chance)
        lines.append(f"{number}: {ask}")
        records.append(_dumps({"id": number, "name": name, "arguments": arguments}))
    head = "Requests:\n" + "\n".join(lines)
    return f"{head}\n\nThe same requests as function calls, one JSON object a line:\n" + "\n".join(records) + "\n"


def events(chance: random.Random) -> str:
    """Texts about events, each with a line of nested objects below it."""
    parts = ["Each text is about an event; the line of JSON below it says the same."]
    for _ in range(chance.randint(2, 5)):
        kind = chance.choice(list(KINDS))
        titles, says = KINDS[kind]
        title = _pick(chance, titles) if chance.random() < 0.7 else f"{_word(chance)} {_word(chance)}".title()
        who = chance.choice([_name(chance), f"{_word(chance).capitalize()} {chance.choice(['Band', 'Trio', 'Club'])}"])
        venue = chance.choice(VENUES) if chance.random() < 0.7 else f"{_word(chance).capitalize()} Hall"
        city = chance.choice(TOWNS) if chance.random() < 0.7 else _word(chance).capitalize()
        day, month = chance.randint(1, 28), chance.choice(MONTHS)
        start = f"{chance.randint(8, 21):02d}:{chance.choice(['00', '15', '30', '45'])}"
        price = 0 if chance.random() < 0.4 else chance.randint(2, 40)
        where = chance.choice([f"at the {venue} in {city}", f"in the {venue}, {city},"])
        free = chance.choice(["Entry is free", "It is free", "No ticket is needed", "Nothing is charged"])
        cost = chance.choice(["Tickets are {} pounds", "Entry costs {} pounds", "The price is {} pounds"]).format(price)
        text = f"{kind.capitalize()}. {_sentence(chance.choice(says.split(',')).format(who=who, what=title))} "
        text += f"{where} on {day} {month} at {start}. {cost if price else free}"
        record = {
            "event": {"title": title, "kind": kind},
            "place": {"venue": venue, "city": city},
            "date": {"day": day, "month": month, "start": start},
            "tickets": {"free": not price, "price": price},
        }
        if chance.random() < 0.9:
            contact, phone = _name(chance), f"0{chance.randint(1100, 1999)} 555 0{chance.randint(10, 199)}"
            text += chance.choice(["; ask {}, {}", ". Contact {}, {}", ". Call {}, {}", "; write to {}, {}"]).format(
                contact, phone
            )
            record["contact"] = {"name": contact, "phone": phone}
        parts.append(f"Text: {text}.\nJSON:\n{_dumps(record)}")
    return "\n\n".join(parts) + "\n"


def reviews(chance: random.Random) -> str:
    """Reviews as lines of text, then as NDJSON with one long text a record."""
    lines, records = [], []
    first = chance.randint(100, 980)
    for number in range(first, first + chance.randint(3, 6)):
        who = _name(chance)
        what = chance.choice(PRODUCTS) if chance.random() < 0.8 else f"{_word(chance)} {_word(chance, 2)}"
        stars, verified = chance.randint(1, 5), chance.random() < 0.7
        verdict = "recommended" if stars > 3 else "mixed" if stars == 3 else "avoid"
        said = [chance.choice(GOOD), chance.choice(BAD if stars < 5 else GOOD)]
        if stars < 3:
            said.reverse()
        text = f"{_sentence(said[0])}, {'but' if stars < 5 else 'and'} {said[1]}. "
        text += chance.choice(AFTER).format(n=chance.randint(2, 12))
        star = "star" if stars == 1 else "stars"
        head = f"Review {number} by {who}, {what}, {stars} {star}, {verdict}{', verified' if verified else ''}"
        lines.append(f"{head}: {text}")
        keys = ("reviewId", "author", "product", "stars", "verdict", "text", "verified")
        records.append(_dumps(dict(zip(keys, (number, who, what, stars, verdict, text, verified), strict=True))))
    head = "Reviews:\n" + "\n".join(lines)
    return f"{head}\n\nThe same reviews as NDJSON, one JSON object a line:\n" + "\n".join(records) + "\n"


def cards(chance: random.Random) -> str:
    """Questions, each with an answer of two sentences and a line of JSON about it."""
    parts = ["Each question is answered in two sentences, followed by one line of JSON."]
    for topic in chance.sample(list(TOPICS), chance.randint(3, 6)):
        question, subject, words = TOPICS[topic]
        a, b, c = chance.sample(words.split(","), 3)
        first = f"{subject} {chance.choice(ACTS)} {chance.choice(WHY).format(a=a, b=b)}."
        record = {
            "topic": topic,
            "level": chance.choice(["basic", "intermediate", "advanced"]),
            "keywords": [a, b, c][: chance.randint(2, 3)],
            "minutes": chance.randint(1, 5),
            "followup": chance.random() < 0.5,
        }
        answer = f"{first} {chance.choice(THEN).format(c=c)}"
        parts.append(f"Question: {question}\nAnswer: {answer}\n{_dumps(record)}")
    return "\n\n".join(parts) + "\n"


def prose(chance: random.Random) -> str:
    """A request and some plain sentences."""
    ask = chance.choice(ASKS).format(a=chance.choice(THINGS), t=chance.choice(TIMES))
    said = []
    for _ in range(chance.randint(8, 16)):
        words = {
            "p": chance.choice(PEOPLE), "q": chance.choice(PEOPLE), "d": chance.choice(DOINGS),
            "e": chance.choice(DOINGS), "s": chance.choice(SIGHTS), "t": chance.choice(TIMES),
        }  # fmt: skip
        said.append(_sentence(chance.choice(SENTENCES).format(**words)))
    return f"{ask}\n\n" + " ".join(said) + "\n"


KIND: dict[str, tuple[Callable[[random.Random], str], float]] = {  # kind -> (its maker, its share of the documents)
    "orders": (orders, 0.3),
    "calls": (calls, 0.2),
    "nested": (events, 0.15),
    "reviews": (reviews, 0.12),
    "cards": (cards, 0.13),
    "prose": (prose, 0.1),
}


def documents(seed: int, kind: str | None = None) -> Iterator[tuple[str, str]]:
    """(kind, text) without end, in an order and with contents that the seed decides; `kind`: of this one alone.

    ValueError for a kind there is not.
    """
    if kind is not None and kind not in KIND:
        raise ValueError(f"kind {kind!r}: there is {', '.join(KIND)}")
    chance = random.Random(f"{seed}/{kind or ''}")
    names, shares = list(KIND), [share for _, share in KIND.values()]
    while True:
        name = kind or chance.choices(names, shares)[0]
        yield name, KIND[name][0](chance)
