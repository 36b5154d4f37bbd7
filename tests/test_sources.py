"""Draft sources: when the walk begins and ends, what is forced, which ways are found, and that nothing raises."""

import random
import weakref

import numpy as np
import pytest

from gdlib import recognizers
from gdlib.drafts import DraftError, bounded
from gdlib.drafts.branches import BranchSource
from gdlib.drafts.grammar import GrammarSource
from gdlib.drafts.mtp import MTPSource
from gdlib.drafts.ngram import NGramSource
from gdlib.drafts.walker import OUTSIDE, Walker
from gdlib.grammar import Grammar
from gdlib.models import hf
from gdlib.recognizers import Recognizer
from gdlib.recognizers import machine as m
from gdlib.recognizers.arena import Arena, ArenaFull, LimitError
from gdlib.tokens.vocabulary import Vocabulary

PEOPLE = r"""
root ::= (obj "\n")+
obj ::= "{\"name\":" str ",\"role\":" role ",\"age\":" int ",\"active\":" bool "}"
role ::= "\"nurse\"" | "\"doctor\"" | "\"driver\""
bool ::= "true" | "false"
int ::= "0" | [1-9] [0-9]*
str ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt])* "\""
"""
RECORD = '{"name":"Anna Berg","role":"doctor","age":34,"active":true}\n'


@pytest.fixture(scope="module")
def vocab():
    return Vocabulary.from_hf(hf.load_tokenizer())


@pytest.fixture(scope="module")
def people():
    return Grammar.from_gbnf(PEOPLE)


def behind(source, vocab, text, prompt="", room=24):
    """What the source proposes behind this text, as bytes."""
    source.begin(vocab.encode(prompt))
    source.commit(vocab.encode(text))
    return [vocab.decode(path) for path in source.propose((), room)]


def letters(*tokens):
    """A vocabulary of these tokens, single letters and marks, and an eos at its end."""
    return Vocabulary(
        [*(t.encode() for t in tokens), *(bytes([b]) for b in range(32, 127)), b"\n", b""], [96 + len(tokens)]
    )


# the grammar source


def test_a_preamble_is_skipped_and_the_walk_begins_at_the_root_s_first_byte(vocab, people):
    source = GrammarSource(people, vocab)
    assert behind(source, vocab, "") == [] and behind(source, vocab, "Here is the list you want:\n") == []
    assert behind(source, vocab, 'Sure, here it is: {"') == [b'name":"']
    assert behind(source, vocab, "{") == []  # `{"` is one token: who writes `{` alone means to write something else
    assert behind(source, vocab, '{"name') == [b'":"']


def test_forced_text_goes_on_past_the_end_of_a_record(vocab, people):
    source = GrammarSource(people, vocab)
    assert behind(source, vocab, RECORD.removesuffix("}\n")) == [b'}\n{"name":"']
    assert behind(source, vocab, "", prompt="Two people:\n" + RECORD) == [b'{"name":"']


def test_a_byte_that_does_not_conform_ends_the_walk_and_may_begin_another(vocab, people):
    source = GrammarSource(people, vocab)
    assert behind(source, vocab, '{"name": "Anna", "age') == []
    assert behind(source, vocab, '{"name": "Anna"}\n{"') == [b"name"]  # it wrote `":` before
    assert behind(source, vocab, '{"nam{"name":"A","role') == [b'":"']
    # within one token
    odd = letters('{"na{"name', "x")
    source = GrammarSource(people, odd)
    source.begin(())
    assert source.propose((), 24) == []
    source.commit([0])
    assert odd.decode(source.propose((), 24)[0]) == b'":"'


def test_a_special_token_ends_the_walk(vocab, people):
    source = GrammarSource(people, vocab)
    source.begin(vocab.encode('{"name'))
    assert source.propose((), 24)
    source.commit([vocab.eos_ids[0]])
    assert source.propose((), 24) == []
    source.commit([len(vocab) + 7])  # of a padded head
    assert source.propose((), 24) == []


def test_wrong_and_empty_grammars_propose_nothing(vocab):
    for text in ('root ::= ""', 'root ::= "" | ""', 'root ::= "<html>"', "root ::= [0-9]"):
        source = GrammarSource(Grammar.from_gbnf(text), vocab)
        assert behind(source, vocab, RECORD) == [], text
        for path in BranchSource(Grammar.from_gbnf(text), vocab).propose((), 24):
            assert list(path) == [vocab.eos_ids[0]]


def test_a_grammar_that_forces_text_for_ever_fills_the_room(vocab):
    source = GrammarSource(Grammar.from_gbnf('root ::= "ab " root'), vocab)
    source.begin(vocab.encode("ab"))
    for room in (0, 1, 7, 48):
        paths = source.propose((), room)
        assert [len(p) for p in paths] == [room] * (room > 0)


def test_ahead_is_followed_and_forgotten(vocab, people):
    source, again = GrammarSource(people, vocab), GrammarSource(people, vocab)
    for s in (source, again):
        s.begin(())
    text = vocab.encode("well " + RECORD + RECORD)
    for at in range(len(text)):
        ahead = text[at : at + 9]
        direct = GrammarSource(people, vocab)
        direct.begin(())
        direct.commit([*text[:at], *ahead])
        state = (source.walker.state, source.walker.tail, repr(source.walker.counts), repr(source.walker.taken))
        assert bool(source.propose(ahead, 24)) == bool(direct.propose((), 24))
        assert state == (source.walker.state, source.walker.tail, repr(source.walker.counts), repr(source.walker.taken))
        assert source.propose((), 24) == again.propose((), 24)
        source.commit(text[at : at + 1])
        again.commit(text[at : at + 1])


def test_grammar_drafts_of_conforming_text_are_right(vocab, people):
    """Linear, as one source by itself: nearly all that is proposed is what the text says."""
    text = "".join(
        f'{{"name":"{n}","role":"{r}","age":{a},"active":{b}}}\n'
        for n, r, a, b in [
            ("Jo", "nurse", 7, "true"),
            ("Émile Zola", "driver", 62, "false"),
            ("X, Y", "doctor", 0, "true"),
        ]
    )
    ids = vocab.encode("Some people.\n" + text)
    source, at, proposed, accepted, forwards = GrammarSource(people, vocab), 0, 0, 0, 0
    source.begin(())
    while at < len(ids):
        path = next(iter(source.propose((), 24)), ())[: len(ids) - at - 1]
        same = next((i for i, t in enumerate(path) if t != ids[at + i]), len(path))
        proposed, accepted, forwards = proposed + len(path), accepted + same, forwards + 1
        source.commit(ids[at : at + same + 1])
        at += same + 1
    assert proposed > 30 and accepted >= 0.98 * proposed and forwards < len(ids) - accepted + 1


def test_armed_from_the_start_where_the_text_must_conform(vocab, people):
    source = GrammarSource(people, vocab, armed=True)
    assert behind(source, vocab, "", prompt="People:\n") == [b'{"name":"']
    assert behind(source, vocab, "{", prompt="People:\n") == [b'"name":"']


def test_a_likely_boundary_is_drafted_once_the_text_has_shown_it(vocab):
    """Behind `"a"` come `,` and `]` alike, and `",` is a token: held back until the text has said which it is."""
    source = GrammarSource(Grammar.from_gbnf(r'root ::= "{\"tags\":[\"a" "\"" (",\"b\"")* "]}"'), vocab)
    assert behind(source, vocab, '{"tags":["a') == []
    assert behind(source, vocab, '{"tags":["a', prompt='{"tags":["a"]}\n' * 20) in ([], [b'"]}'])


# what the grammar engine refuses


@pytest.mark.parametrize("error", [ArenaFull(), LimitError("too much"), RecursionError(), KeyError("x")])
@pytest.mark.parametrize("kind", [GrammarSource, BranchSource])
def test_a_walker_that_fails_never_raises(monkeypatch, vocab, people, kind, error):
    source = kind(people, vocab)
    text = vocab.encode("So:\n" + RECORD + RECORD)
    source.begin(text[:9])
    real, calls = Recognizer.step, [0]

    def step(self, config, byte):
        calls[0] += 1
        if calls[0] % 7 == 3:
            raise error
        return real(self, config, byte)

    monkeypatch.setattr(Recognizer, "step", step)
    for token in text[9:30]:
        for path in source.propose((), 24):
            assert len(path) <= 24
        source.propose(text[:4], 8)
        source.commit([token])
    monkeypatch.undo()
    failure = source.walker.failure
    source.begin(())
    source.commit(vocab.encode('\n{"name'))
    assert source.propose((), 24)
    assert isinstance(error, ArenaFull) or failure


def test_too_ambiguous_a_grammar_goes_on_with_another_machine(vocab):
    source = GrammarSource(Grammar.from_gbnf('root ::= root root | "ab" | "abab"'), vocab)
    source.begin(vocab.encode("abab" * 20))
    source.propose((), 24)


def no_strangers(monkeypatch):
    """Let every recognizer be asked about its own configurations alone; returns the list of what went wrong."""
    wrong, own = [], weakref.WeakKeyDictionary()

    def mine(recognizer):
        return own.setdefault(recognizer, {OUTSIDE, recognizer.start})

    def checked(name, result):
        real = getattr(Recognizer, name)

        def method(self, config, *arguments):
            if config not in mine(self):
                wrong.append((name, config))
            out = real(self, config, *arguments)
            mine(self).update(result(out))
            return out

        monkeypatch.setattr(Recognizer, name, method)

    checked("step", lambda out: [out])
    checked("advance", lambda out: [out])
    checked("_forced", lambda out: [out[1]])
    checked("first_bytes", lambda out: [])
    checked("accepting", lambda out: [])
    return wrong


@pytest.mark.parametrize("kind", [GrammarSource, BranchSource])
def test_no_configuration_of_a_full_arena_is_read_in_the_next(monkeypatch, vocab, kind):
    """Nesting makes configurations without end, and there is room for a few hundred."""
    rules = r'root ::= "{\"key\":" (root | "[" root "]" | "\"" [a-z]* "\"" | "true") "}"'
    wrong, fulls, text = no_strangers(monkeypatch), 0, vocab.encode('So:\n{"key":"x"}' + '{"key":[' * 40)
    for scale in (0.001, 0.0043, 0.0047, 0.0051, 0.0055):

        class Small(Arena):
            def __init__(self, earley=False, scale=scale, max_items=500):
                super().__init__(earley, scale, max_items)

        monkeypatch.setattr(recognizers, "Arena", Small)
        monkeypatch.setattr(recognizers, "_ARENAS", {})
        source = kind(Grammar.from_gbnf(rules), vocab)
        arenas = {source.walker.recognizer.arena}
        source.begin(())
        for at, token in enumerate(text):
            source.propose((), 24)
            source.propose(text[at : at + 5], 24)
            source.commit([token])
            arenas.add(source.walker.recognizer.arena)
        fulls += len(arenas) - 1
    assert fulls > 5 and not wrong


@pytest.mark.parametrize("error", [ArenaFull(), LimitError("too much")])
@pytest.mark.parametrize("kind", [GrammarSource, BranchSource])
def test_a_refusal_at_any_place_leaves_nothing_of_the_old_arena(monkeypatch, vocab, kind, error):
    rules = r'root ::= "[" word ("," word)* "]" "\n"*' + "\n" + r'word ::= "\"alpha\"" | "\"beta\"" | "\"gamma\""'
    text, ahead = vocab.encode('["alpha","beta"]\n["beta'), vocab.encode('","')
    calls = turn = 0
    while calls >= turn:
        with monkeypatch.context() as patch:
            calls, turn = 0, turn + 1
            wrong = no_strangers(patch)
            source = kind(Grammar.from_gbnf(rules), vocab)
            source.begin(text)
            real = Recognizer.run

            def run(self, *arguments, turn=turn, real=real):
                nonlocal calls
                calls += 1
                if calls == turn:
                    raise error
                return real(self, *arguments)

            patch.setattr(Recognizer, "run", run)
            source.walker._steps.clear()
            source.propose(ahead, 24)
            if calls >= turn:
                assert source.walker.state == OUTSIDE
            source.propose(ahead, 24)
            source.commit(ahead)
            source.propose((), 24)
            assert not wrong
    assert turn > 3


AMBIGUOUS = {
    "twice itself": 'root ::= root root | "" | "a"',
    "thrice itself": 'root ::= root root root | "" | "a" | "aa"',
    "repeats that may be empty": 'root ::= (("a"?)* "a"?)* "a"',
    "many ways to one text": 'root ::= x+\nx ::= "a" | "aa" | "aaa" | "aaaa" | "a" x "a" | "aa" x',
    "repeats of repeats": 'root ::= (("a"{1,30}){1,30}){1,30}',
    "from both ends": 'root ::= "a" root "a" | "a"',
}


@pytest.mark.parametrize("kind", [GrammarSource, BranchSource])
@pytest.mark.parametrize("name", AMBIGUOUS)
def test_looking_ahead_costs_no_more_than_the_text_s_allowance(monkeypatch, vocab, name, kind):
    """Work is what the compiled machine made or threw away; the clock is not looked at."""
    work, real = [0, 0], bounded.BoundedRecognizer._metered

    def metered(self, *arguments):
        before = self.allowance
        try:
            return real(self, *arguments)
        finally:
            work[self.floor < 0] += before - self.allowance

    source = kind(Grammar.from_gbnf(AMBIGUOUS[name]), vocab, armed=True)
    monkeypatch.setattr(bounded.BoundedRecognizer, "_metered", metered)
    source.begin(())
    limit, text = int(source.walker.recognizer.arena.size[m.LIMIT]), vocab.encode("a" * 300)
    for at, token in enumerate(text):
        for ahead in ((), text[at : at + 3]):
            for path in source.propose(ahead, 24):
                assert len(path) <= 24
        source.commit([token])
        recognizer = source.walker.recognizer
        assert -2 * bounded.RESERVE < recognizer.allowance <= bounded.RESERVE and recognizer.floor == 0
        assert recognizer.arena.size[m.LIMIT] == limit
    assert work[0] <= 2 * bounded.RESERVE + bounded.PER_TOKEN * len(text)
    assert source.walker.failures <= 1


def test_a_spent_allowance_leaves_the_walk_where_it_is_and_comes_back(vocab, people):
    for kind in (GrammarSource, BranchSource):
        fresh = Grammar.from_gbnf(PEOPLE.replace("name", f"name of {kind.name}"))
        source, text = kind(fresh, vocab), vocab.encode('{"name')
        source.begin(text)
        state = source.walker.state
        source.walker.recognizer.allowance = 0
        assert source.propose((), 24) == [] and source.propose(text, 24) == []
        assert source.walker.state == state != OUTSIDE and not source.walker.failures
        source.commit(vocab.encode(f" of {kind.name}"))
        assert source.walker.state != OUTSIDE
        source.walker.recognizer.earn(20)  # tokens more
        assert source.propose((), 24)


def test_no_more_is_looked_at_than_there_is_room_for(vocab):
    grammar = Grammar.from_gbnf("root ::= " + " ".join(f'"item {i}, "' for i in range(400)))
    source = GrammarSource(grammar, vocab, armed=True)
    source.begin(())
    size = source.walker.recognizer.arena.size
    before, made = list(source.propose((), 1)[0]), []
    for room in (1, 8, 24, 48):
        path = list(source.propose((), room)[0])
        assert len(path) == room and path[: len(before)] == before
        before = path
        made.append(int(size[m.N_CONFS]))
    assert made[0] < made[-1]


# branches


def test_enum_values_are_told_apart_and_followed(vocab, people):
    ways = behind(BranchSource(people, vocab), vocab, '{"name":"Anna","role')
    assert len(ways) == 3 and all(w.startswith(b'":"') for w in ways)
    assert {w[3:] for w in ways} == {b'nurse","age":', b'doctor","age":', b'driver","age":'}


def test_booleans_and_what_follows_them(vocab, people):
    ways = behind(BranchSource(people, vocab), vocab, RECORD.split("true")[0])
    assert set(ways) == {b'true}\n{"name":"', b'false}\n{"name":"'}


def test_out_of_a_string_and_out_of_a_number(vocab, people):
    source = BranchSource(people, vocab)
    assert behind(source, vocab, '{"name":"Anna') == [b'","role":"']
    assert behind(source, vocab, '{"name":"Anna","role":"nurse","age":3') == [b',"active":']


def test_likelier_ways_come_first(vocab, people):
    source = BranchSource(people, vocab)
    for role in ("nurse", "doctor", "driver"):
        prompt = RECORD.replace("doctor", role) * 3
        assert behind(source, vocab, '{"name":"Bo","role":"', prompt=prompt)[0].startswith(role.encode())


def test_the_end_of_the_text_against_another_record(vocab, people):
    source = BranchSource(people, vocab)
    ends = [list(vocab.eos_ids), vocab.encode('{"name":"')]
    source.begin(vocab.encode(RECORD))
    assert sorted(map(list, source.propose((), 24))) == sorted(ends)
    closed = BranchSource(Grammar.from_gbnf('root ::= "{\\"a\\":1}"'), vocab)
    closed.begin(vocab.encode('{"a":1}'))
    assert [list(p) for p in closed.propose((), 24)] == [list(vocab.eos_ids)]


def test_a_comma_against_a_close_in_both_tokenisations():
    vocab = letters('"}', '"},', '"}]', '","', '{"')
    grammar = Grammar.from_gbnf(r'root ::= "[" obj ("," obj)* "]"' + '\nobj ::= "{\\"" [a-z]+ "\\"}"')
    source = BranchSource(grammar, vocab)
    source.begin(())
    source.commit([*map(vocab.first_ids.__getitem__, (b"[", b'{"', b"a"))])
    ways = {tuple(vocab.tokens[t] for t in path) for path in source.propose((), 24)}
    assert (b'"},', b'{"') in ways and (b'"}]',) in {w[:1] for w in ways}


def test_an_optional_space_follows_the_habit_of_the_text(vocab):
    grammar = Grammar.from_gbnf(
        'root ::= ("{\\"a\\":" ws [0-9]+ "," ws "\\"b\\":" ws ("true" | "false") "}\\n")+\nws ::= [ \\t]*'
    )
    source = BranchSource(grammar, vocab)
    spaced, compact = '{"a": 1, "b": true}\n' * 3, '{"a":1,"b":true}\n' * 3
    assert behind(source, vocab, '{"a": 7,', prompt=spaced)[0].startswith(b' "b":')
    assert behind(source, vocab, '{"a":7', prompt=compact)[0].startswith(b',"b":')


def test_ways_are_bounded_and_end_in_room(vocab, people):
    many = Grammar.from_gbnf("root ::= " + " | ".join(f'"{a}{b} end"' for a in "abcdefghij" for b in "klmnopq"))
    for ways in (1, 2, 8):
        for room in (1, 3, 24):
            source = BranchSource(many, vocab, ways=ways, armed=True)
            source.begin(())
            paths = source.propose((), room)
            assert 0 < len(paths) <= ways and all(0 < len(p) <= room for p in paths)
            assert source.propose((), 0) == []


def test_every_way_is_legal(vocab, people):
    """Whatever is proposed behind a text of the grammar goes on in the grammar."""
    rng, source = random.Random(3), BranchSource(people, vocab)
    text = vocab.encode(RECORD * 2)
    source.begin(())
    for token in text:
        source.commit([token])
        for path in source.propose((), rng.choice((2, 9, 24))):
            state = source.walker.along(source.walker.state, [t for t in path if t not in vocab.eos_ids])
            assert state != OUTSIDE


def test_ways_out_of_schema_strings_and_numbers(vocab):
    """Strings with a bound, formats and bounded numbers are other machines than GBNF's loops."""
    kinds = [
        ({"type": "string", "maxLength": 20}, '"Anna', b'"'),
        ({"type": "string"}, '"Anna', b'"'),
        ({"type": "integer", "minimum": 0, "maximum": 500}, "3", b","),
        ({"type": "number"}, "3", b","),
    ]
    for schema, text, way in kinds:
        properties = {"v": schema, "z": {"const": 1}}
        full = {"type": "object", "properties": properties, "required": ["v", "z"], "additionalProperties": False}
        source = BranchSource(Grammar.from_json_schema(full), vocab)
        ways = behind(source, vocab, '{"v":' + text)
        assert any(w.startswith(way) for w in ways), (schema, ways)


def test_the_prompt_s_walk_is_bounded_and_the_walker_holds_no_more_than_a_tail(vocab, people):
    walker = Walker(people, vocab)
    walker.begin(vocab.encode(RECORD) * 3)
    assert walker.state != OUTSIDE and len(walker.tail) < 10
    assert walker.after(())[0] == walker.state
    walker.begin(())
    assert walker.state == OUTSIDE and not walker.tail and not walker.counts


# n-grams


def test_the_longest_and_latest_match_is_copied():
    source = NGramSource(longest=4, shortest=2)
    source.begin([1, 2, 3, 4, 9, 2, 3, 5, 7, 2, 3])
    assert source.propose((), 3) == [[5, 7, 2]]
    assert source.propose((4,), 2) == [[9, 2]]
    source.commit([4])
    assert source.propose((), 4)[0] == [9, 2, 3, 5]
    assert source.propose((9, 2, 3), 2)[0] == [5, 7]
    assert source.propose((), 0) == [] and NGramSource().propose((), 9) == []


def test_a_copy_goes_on_with_what_it_wrote():
    source = NGramSource()
    source.begin([1, 2, 3, 1, 2, 3])
    assert source.propose((), 7) == [[1, 2, 3, 1, 2, 3, 1]]
    assert source.propose((1, 2), 5) == [[3, 1, 2, 3, 1]]


def test_shorter_matches_that_say_otherwise_come_behind():
    source = NGramSource(longest=3, shortest=1)
    source.begin([1, 2, 3, 7, 2, 3, 8, 3, 9, 1, 2, 3])
    assert [p[0] for p in source.propose((), 2)] == [7, 8, 9]
    assert len(NGramSource(longest=3, shortest=1, ways=1).propose((), 2)) == 0


def test_the_index_finds_what_a_search_finds():
    rng = random.Random(5)
    ids = [rng.randrange(4) for _ in range(300)]
    source = NGramSource(longest=5, shortest=2, ways=1)
    source.begin(ids[:100])
    for at in range(100, 300):
        best = None
        for size in range(5, 1, -1):
            places = [i for i in range(size, at) if ids[i - size : i] == ids[at - size : at]]
            if places:
                best = places[-1]
                break
        got = source.propose((), 1)
        assert got == ([] if best is None else [[ids[best]]])
        source.commit([ids[at]])


def test_ngram_sizes_are_checked():
    with pytest.raises(ValueError, match="shortest=3, longest=2"):
        NGramSource(longest=2, shortest=3)


# multi-token heads


class Headed:
    mtp_depth = 2

    def mtp(self, ahead, room):
        return [len(ahead), 7, 8][:room]


def test_a_head_is_asked_for_no_more_than_it_has():
    source = MTPSource(Headed())
    source.begin([1])
    source.commit([2])
    assert source.propose((), 24) == [[1, 7]] and source.propose((5,), 1) == [[2]] and source.propose((), 0) == []


def test_a_model_without_a_head_is_refused_by_name():
    with pytest.raises(DraftError, match=r"ndarray has no multi-token head: leave 'mtp' out"):
        MTPSource(np.zeros(1))
