"""The expressions for formats: against Python's own calendars and addresses, and by examples from the RFCs."""

import calendar
import ipaddress
import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdlib.grammar.formats import FORMATS, MAX_LENGTH, NARROWER, REFUSED

COMPILED = {name: re.compile(pattern) for name, pattern in FORMATS.items()}


def takes(name, text):
    return bool(COMPILED[name].fullmatch(text)) and len(text) <= MAX_LENGTH.get(name, len(text))


EXAMPLES = {
    "duration": ("P3D PT5H P1Y2M3DT4H5M6S P9W P0D P07M PT1M2S", "P PT P1D2H P1Y2D PT1H2S P1W1D P1.5D p1d -P1D 3D P1DT"),
    "email": (
        "ann@host.org a.b+c@x-y.z !#$%@h o'neil@h.co x@1.2 q@[10.0.0.1] q@[IPv6:2001:db8::7] q@[ipv6:::10.0.0.1] "
        '"a\\"b"@h.org ""@h "a.@.b"@h x@xn--abc',
        "ann .a@h a.@h a..b@h a@ @h a@-h a@h- a@h. a@.h a@h_i a@[10.0.0.256] a@[::1] a@[x:y] a@b@c "
        'a"b@h "a"b"@h é@h a@é q@[IPv6:1:2:3:4:5:6:7::] q@[IPv6:1::2:3:4:5:6:7:8] <a@h>',
    ),
    "idn-email": ('ünï@bücher.example 村@村.jp x@h.org "ü"@h \U0001f600@h', "ü a@b@c ü@-ü @ü ü..ü@h"),
    "hostname": (
        "a A1 a-b.c-d x.y.z 127.0.0.1 9 a--b aa-b a-b--c abc--d " + "a" * 63 + " " + ".".join(["b" * 49] * 5),
        "a. .a a..b -a a- a_b é ab--c xn--abc A.XN--b ab---c ab--- " + "a" * 64 + " " + ".".join(["b" * 50] * 5),
    ),
    "ipv4": ("0.0.0.0 255.255.255.255 1.20.199.249", "256.1.1.1 1.1.1 01.1.1.1 1.1.1.1.1 1.1.1.1/8 ::1 1.1.1."),
    "uri": (
        "a:b a: http://h http://h:80/p?q#f http://u:p@h/ file:///etc urn:isbn:1 x:/a x:// mailto:a@b.c h://[::1]:8/ "
        "h://[v1.x:y] h://[V1a.~] a:%41 a+b.c-1:x h://h?a/b?c#d/e?f http://300.1.1.1/ data:, x:/.//y",
        "a /a //h 1a:b a:%4 a:%zz a:<b> a:b|c a:[b] h://[::1 h://[1.2.3.4] h://[::1]a h://h:x/ a:é a:#b#c h://a@b@c/ "
        "a:^ a:` a:{b} a:\\b h://[v.x] h://[v1.] :b ht_tp://h",
    ),
    "uri-reference": (
        "a /a //h //h:1/x?y#z ?q #f ./a:b a/b:c ../x a@b http://h/ x:y // /%41 //[::1]/ a//b @ &",
        "1:b a[b] %4 /[x] //h:x \\ é #a#b :a ://h %: //a@b@c",
    ),
    "iri": (
        "http://bücher/é?ü#ö a:b x:?\ue000 x:村 h://村:80 h://[::1]/é",
        "é /é x:\ue000 a:<é",
    ),
    "iri-reference": ("é /é ?\ue000 #é //é a:é ./a:é", "#\ue000 \ue000 é\\ é[ é%4"),
    "uri-template": (
        "a {x} {x,y} {+x:3}/{?q*} {x:9999} {a.b} {%41_1} é %41 it's {=x} {|x,y*} a:[b]@!$&()*+,;=~",
        "{ } {} {x {x,} {,,x} {x:0} {x:10000} {x:01} {x**} {a..b} {.} {x y} %4 a<b a>b a|b a^b a`b a\\b {-x} {x}}",
    ),
    "uuid": (
        "00000000-0000-0000-0000-000000000000 ABCDEFab-0123-4567-89ab-cdefABCDEF01",
        "00000000-0000-0000-0000-00000000000 0000000000000000-0000-0000-000000000000 "
        "g0000000-0000-0000-0000-000000000000 {00000000-0000-0000-0000-000000000000} "
        "urn:uuid:00000000-0000-0000-0000-000000000000",
    ),
    "json-pointer": ("/ /a/b /~0~1 // /é /a%b /\u2028", "a ~ /~ /~2 #/a /a~ ./a"),
    "relative-json-pointer": ("0 1/a 0# 12/~0 3// 0+1/x 1-2# 1+0", "01 -1 /a # 1## 1#/a 1a 0/~ 1+/a 1-01"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name):
    good, bad = EXAMPLES[name]
    assert [t for t in good.split(" ") if not takes(name, t)] == []
    assert [t for t in bad.split(" ") if takes(name, t)] == []


def test_every_format_is_one_anchored_expression():
    for name, pattern in FORMATS.items():
        assert pattern.startswith("^") and pattern.endswith("$") and "^" not in pattern[1:2]
        assert not re.search(r"\(\?[^:]", pattern), "only plain groups"
        for text in ("", " ", "\n"):
            empty = ("uri-reference", "iri-reference", "uri-template", "json-pointer")
            assert takes(name, text) == (text == "" and name in empty)
    assert set(MAX_LENGTH) | set(NARROWER) <= set(FORMATS) and not set(REFUSED) & set(FORMATS)


def test_end_of_text_is_the_end():
    good = {n: e[0].split(" ")[0] for n, e in EXAMPLES.items()} | {"date": "2024-02-29", "time": "00:00:00Z"}
    for name, text in good.items():
        assert takes(name, text) and not takes(name, " " + text), name
        if name != "json-pointer":  # where these are characters like others
            assert not takes(name, text + "\n") and not takes(name, text + "\x00"), name


def test_dates_are_those_of_the_calendar():
    assert takes("date", "0000-02-29")  # the rule of divisions holds before year 1, too
    for year in [1, 4, 100, 400, 1600, 1700, 1896, 1900, *range(1996, 2006), 2096, 2100, 2400, 9996, 9999]:
        for month in range(14):
            last = calendar.monthrange(year, month)[1] if 1 <= month <= 12 else 0
            days = {d for d in range(34) if takes("date", f"{year:04}-{month:02}-{d:02}")}
            assert days == set(range(1, last + 1)), (year, month)
    for text in (
        "2024-2-01",
        "24-01-01",
        "02024-01-01",
        "2024-01-1",
        "2024/01/01",
        "20240101",
        "2024-01-01Z",
        "２024-01-01",
    ):
        assert not takes("date", text)


def test_times():
    for text in ["00:00:00Z", "23:59:59.999z", "12:30:00+05:45", "12:30:00-00:00", "00:00:00.0+23:59"]:
        assert takes("time", text), text
        assert takes("date-time", "2024-02-29T" + text) and takes("date-time", "2024-02-29t" + text)
        assert not takes("date-time", "2023-02-29T" + text) and not takes("date-time", "2024-02-28 " + text)
    clocks = ["24:00:00Z", "00:60:00Z", "00:00:61Z", "00:00Z", "00:00:00.Z", "0:00:00Z", "00:00:00,5Z", "T00:00:00Z"]
    zones = ["", "+1:00", "+24:00", "+00:60", "+0000", "+01", " Z", "Z+01:00", "+01:00Z", "#01:00", "UTC"]
    for text in clocks + ["00:00:00" + zone for zone in zones]:
        assert not takes("time", text) and not takes("date-time", "2024-01-01T" + text), text


def test_leap_seconds_are_at_midnight_utc_at_the_end_of_june_and_december():
    offsets = [(sign, h, m) for sign in "+-" for h in range(24) for m in (0, 30)]
    for sign, h, m in offsets:
        shift = (60 * h + m) * (1 if sign == "+" else -1)
        local = (23 * 60 + 59 + shift) % (24 * 60)
        for minute in {local, (local + 1) % 1440, (local + 60) % 1440, (local + 720) % 1440, 1439, 0, 30}:
            text = f"{minute // 60:02}:{minute % 60:02}:60{'.5' if h % 2 else ''}{sign}{h:02}:{m:02}"
            assert takes("time", text) == (minute == local), text
        text = f"{local // 60:02}:{local % 60:02}:60{sign}{h:02}:{m:02}"
        days = {d for d in ("06-30", "07-01", "12-31", "01-01", "03-31") if takes("date-time", f"1998-{d}T{text}")}
        expected = {"07-01", "01-01"} if shift > 0 else {"06-30", "12-31"}
        assert days == (expected if m == 0 and -12 <= shift // 60 <= 14 else set()), text
    assert takes("date-time", "2016-12-31t23:59:60.25z") and not takes("date-time", "2016-12-31T23:58:60Z")
    assert not takes("time", "23:59:61Z") and not takes("time", "23:59:60+01:00")


hexadecimal = st.text("0123456789abcdefABCDEF", max_size=5)
four = st.lists(st.integers(0, 260).map(str), min_size=3, max_size=5).map(".".join)
pieces = st.lists(st.one_of(hexadecimal, hexadecimal, hexadecimal, four, st.just("0")), max_size=9)


@settings(max_examples=400, deadline=None)
@given(pieces, st.integers(0, 9), st.booleans())
def test_ipv6_as_the_standard_library_reads_it(parts, gap, with_gap):
    if with_gap:
        text = ":".join(parts[:gap]) + "::" + ":".join(parts[gap:])
    else:
        text = ":".join(parts)
    try:
        ipaddress.IPv6Address(text)
        valid = True
    except ValueError:
        valid = False
    assert takes("ipv6", text) == valid, text
    assert takes("uri", f"x://[{text}]") == valid


def test_ipv6_with_every_number_of_groups():
    for ends in ([], ["1.2.3.4"]):
        size = 2 * len(ends)
        for before in range(10):
            left = ["a"] * before
            assert takes("ipv6", ":".join(left + ends)) == (before + size == 8)
            for after in range(10):
                text = ":".join(left) + "::" + ":".join(["b"] * after + ends)
                assert takes("ipv6", text) == (before + after + size <= 7), text
                assert takes("email", f"x@[IPv6:{text}]") == (before + after + size <= 6), text


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_expression_as_machine(name):
    """The expressions stay within what the package's own reader of patterns takes."""
    regex = pytest.importorskip("gdlib.grammar.regex")
    regular = pytest.importorskip("gdlib.grammar.regular")
    machine = regular.dfa(regex.whole(FORMATS[name], "utf8"))
    good, bad = EXAMPLES.get(name, ("", ""))
    for text in (good + " " + bad).split(" "):
        assert regular.contains(machine, text.encode()) == bool(COMPILED[name].fullmatch(text)), text


@pytest.mark.skipif("GDLIB_SUITE" not in os.environ, reason="GDLIB_SUITE names no copy of the official tests")
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_official_suite(name):
    path = Path(os.environ["GDLIB_SUITE"]) / "tests/draft2020-12/optional/format" / f"{name}.json"
    cases = [c for group in json.loads(path.read_text()) for c in group["tests"] if isinstance(c["data"], str)]
    wrong = [c["data"] for c in cases if takes(name, c["data"]) != c["valid"]]
    # What NARROWER names may be left out, nothing may be let in.
    assert [t for t in wrong if name not in NARROWER or takes(name, t)] == []
    assert all("xn--" in t for t in wrong)
