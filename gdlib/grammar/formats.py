"""JSON Schema's `format` names as regular expressions, so that a format is enforced like a pattern.

Only what is regular is here, and as exact as the defining RFC: leap years, days per month, IPv6 abbreviations. Where
exactness would cost a huge machine the expression is narrower, never wider, and NARROWER says so. All expressions are
anchored, in ECMA syntax, without flags or lookarounds.
"""

from __future__ import annotations

# RFC 3339 section 5.6 and appendix C: days per month, and 29 February where the year is divisible by 4 but not by 100,
# or by 400. 0000 is the year 1 BC, a leap year.
_DIGIT = "[0-9]"
_BY_FOUR = "(?:0[48]|[2468][048]|[13579][26])"  # 04, 08, ..., 96
_LEAP_YEAR = f"(?:{_DIGIT}{{2}}{_BY_FOUR}|(?:00|{_BY_FOUR})00)"
_DATE = (
    f"(?:{_DIGIT}{{4}}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1{_DIGIT}|2[0-8])"
    f"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)

# RFC 3339 section 5.6: "T" and "Z" in either case. A second 60 there is only at 23:59 UTC, so the hour and the minute
# must fit the offset: 15:59:60-08:00, 01:29:60+01:30.
_FRACTION = rf"(?:\.{_DIGIT}+)?"
_HOUR, _MINUTE = f"(?:[01]{_DIGIT}|2[0-3])", f"[0-5]{_DIGIT}"
_TIME = f"{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"
_WEST = "|".join(f"{h:02}:(?:29:60{_FRACTION}-{23 - h:02}:30|59:60{_FRACTION}-{23 - h:02}:00)" for h in range(24))
_EAST = "|".join(
    [rf"{h:02}:(?:29:60{_FRACTION}\+{h:02}:30|59:60{_FRACTION}\+{h + 1:02}:00)" for h in range(23)]
    + [rf"23:29:60{_FRACTION}\+23:30"]
)
_UTC = f"23:59:60{_FRACTION}(?:[Zz]|[+-]00:00)"

# Section 5.7: leap seconds come at the end of June and of December; east of UTC that is the next day. Most documents
# with times have this format, so it has to be ready fast: here just the whole hours that are in use.
_WEST_HOURS = "|".join(f"{23 - h}:59:60{_FRACTION}-{h:02}" for h in range(1, 13))
_EAST_HOURS = "|".join(rf"{h - 1:02}:59:60{_FRACTION}\+{h:02}" for h in range(1, 15))
_DATE_TIME = (
    f"(?:{_DATE}[Tt]{_TIME}|{_DIGIT}{{4}}-(?:(?:06-30|12-31)[Tt](?:{_UTC}|(?:{_WEST_HOURS}):00)"
    f"|(?:07-01|01-01)[Tt](?:{_EAST_HOURS}):00))"
)

# RFC 3339 appendix A: no unit between two others may be missing, weeks stand alone. Units in upper case, as ISO 8601.
_N = f"{_DIGIT}+"
_CLOCK = f"T(?:{_N}H(?:{_N}M(?:{_N}S)?)?|{_N}M(?:{_N}S)?|{_N}S)"
_DAYS = f"(?:{_N}D|{_N}M(?:{_N}D)?|{_N}Y(?:{_N}M(?:{_N}D)?)?)"
_DURATION = f"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK}|{_N}W)"

# RFC 2673 section 3.2 with RFC 3986's dec-octet, which has no leading zeros.
_OCTET = f"(?:25[0-5]|2[0-4]{_DIGIT}|1{_DIGIT}{{2}}|[1-9]?{_DIGIT})"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"


def _groups(most: int, ipv4: str) -> str:
    """At most so many groups, the last two of them as groups or as an IPv4 address."""
    if most == 0:
        return ""
    choices = f"{_GROUP}(?::{_GROUP}){{0,{most - 1}}}"
    if most > 1:
        choices += f"|(?:{_GROUP}:){{0,{most - 2}}}{ipv4}"
    return f"(?:{choices})?"


def _ipv6(ipv4: str, most: int) -> str:
    """Eight groups, or at most `most` around a "::"."""
    gaps = ["::" + _groups(most, ipv4)]
    gaps += [f"{_GROUP}(?::{_GROUP}){{{n - 1}}}::{_groups(most - n, ipv4)}" for n in range(1, most + 1)]
    return f"(?:(?:{_GROUP}:){{6}}(?:{_GROUP}:{_GROUP}|{ipv4})|{'|'.join(gaps)})"


# RFC 4291 section 2.2, as RFC 3986 has it: "::" stands for one group or more.
_IPV6 = _ipv6(_IPV4, 7)

# RFC 1123 section 2.1: letters, digits and inner hyphens, 63 to a label. RFC 5890 section 2.3.1 reserves labels with
# hyphens in the third and fourth place for A-labels (xn--...), see NARROWER.
_ALNUM, _LDH = "[0-9A-Za-z]", "[0-9A-Za-z-]"
_LABEL = f"{_ALNUM}(?:{_LDH}?{_ALNUM}|{_LDH}(?:{_ALNUM}{_LDH}{{0,59}}{_ALNUM}|-{_ALNUM}(?:{_LDH}{{0,58}}{_ALNUM})?))?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"

# RFC 5321 section 4.1.2, "Mailbox": dotted atoms or a quoted string; a domain of any labels or an address in brackets
# (IPv6 is the only registered tag; there "::" stands for two groups or more, and octets may have leading zeros).
# RFC 6531 section 3.3 adds all characters beyond ASCII. What IDNA asks of labels besides is not part of that rule.
_ATEXT = "0-9A-Za-z!#$%&'*+/=?^_`{|}~\\-"
_SNUM = f"(?:25[0-5]|2[0-4]{_DIGIT}|[01]?{_DIGIT}{{1,2}})"
_MAIL_IPV4 = rf"{_SNUM}(?:\.{_SNUM}){{3}}"
_MAIL_IPV6 = _ipv6(_MAIL_IPV4, 6)


def _mailbox(more: str) -> str:
    """`more`: the characters allowed besides ASCII, as inside of a class."""
    atom = f"[{_ATEXT}{more}]+"
    quoted = rf'"(?:[ !#-\[\]-~{more}]|\\[ -~])*"'
    label = f"[0-9A-Za-z{more}](?:[0-9A-Za-z{more}-]*[0-9A-Za-z{more}])?"
    address = rf"\[(?:{_MAIL_IPV4}|[Ii][Pp][Vv]6:{_MAIL_IPV6})\]"
    return rf"(?:{atom}(?:\.{atom})*|{quoted})@(?:{label}(?:\.{label})*|{address})"


# RFC 3987 section 2.2: what an IRI may have besides the characters of a URI; the second only in a query.
_UCSCHAR = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr(plane << 16 | (0x1000 if plane == 14 else 0))}-{chr(plane << 16 | 0xFFFD)}" for plane in range(1, 15)
)
_IPRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _references(more: str, private: str) -> tuple[str, str]:
    """RFC 3986 appendix A: (with a scheme, with or without). `more` and `private` are inside of classes."""
    hexadecimal = "%[0-9A-Fa-f]{2}"
    plain = f"0-9A-Za-z._~{more}!$&'()*+,;="  # unreserved and sub-delims, without "-"
    character = f"(?:[{plain}:@-]|{hexadecimal})"
    address = rf"\[(?:{_IPV6}|[Vv][0-9A-Fa-f]+\.[0-9A-Za-z._~!$&'()*+,;=:-]+)\]"
    authority = f"(?:(?:[{plain}:-]|{hexadecimal})*@)?(?:{address}|(?:[{plain}-]|{hexadecimal})*)(?::[0-9]*)?"
    tail = f"(?:/{character}*)*"
    after = f"//{authority}{tail}|/(?:{character}+{tail})?"
    ends = rf"(?:\?(?:[{plain}{private}:@/?-]|{hexadecimal})*)?(?:#(?:[{plain}:@/?-]|{hexadecimal})*)?"
    full = f"[A-Za-z][0-9A-Za-z+.-]*:(?:{after}|{character}+{tail})?{ends}"
    no_colon = f"(?:[{plain}@-]|{hexadecimal})+"
    return full, f"(?:{full}|(?:{after}|{no_colon}{tail})?{ends})"


_URI, _URI_REFERENCE = _references("", "")
_IRI, _IRI_REFERENCE = _references(_UCSCHAR, _IPRIVATE)

# RFC 6570 section 2, with erratum 6937: "'" is a literal.
_VARIABLE = r"(?:[0-9A-Za-z_]|%[0-9A-Fa-f]{2})(?:\.?(?:[0-9A-Za-z_]|%[0-9A-Fa-f]{2}))*(?::[1-9][0-9]{0,3}|\*)?"
_URI_TEMPLATE = (
    rf"(?:[!#$&-;=?-\[\]_a-z~{_UCSCHAR}{_IPRIVATE}]|%[0-9A-Fa-f]{{2}}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)

# RFC 6901 section 3; draft-bhutton-relative-json-pointer-00 section 3, with "0-1#" as in its examples.
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_RELATIVE_POINTER = f"(?:0|[1-9][0-9]*)(?:[+-](?:0|[1-9][0-9]*))?(?:#|{_POINTER})"

FORMATS: dict[str, str] = {
    name: f"^{pattern}$"
    for name, pattern in {
        "date": _DATE,
        "time": f"(?:{_TIME}|{_UTC}|{_WEST}|{_EAST})",
        "date-time": _DATE_TIME,
        "duration": _DURATION,
        "email": _mailbox(""),
        "idn-email": _mailbox("\u0080-\ud7ff\ue000-\U0010ffff"),
        "hostname": _HOSTNAME,
        "ipv4": _IPV4,
        "ipv6": _IPV6,
        "uri": _URI,
        "uri-reference": _URI_REFERENCE,
        "iri": _IRI,
        "iri-reference": _IRI_REFERENCE,
        "uri-template": _URI_TEMPLATE,
        "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",  # RFC 4122 section 3; no version is asked for
        "json-pointer": _POINTER,
        "relative-json-pointer": _RELATIVE_POINTER,
    }.items()
}

# Characters at most, where the format has a limit that the expression does not show.
MAX_LENGTH: dict[str, int] = {"hostname": 253}

# Valid texts that the expression leaves out, by format.
NARROWER: dict[str, str] = {
    "hostname": "labels with '--' in the third and fourth place (xn--...): most are no valid Punycode",
    "time": "leap seconds at offsets that are no multiple of half an hour",
    "date-time": "leap seconds not at the end of June or December, or at offsets other than -12:00, -11:00 ... +14:00",
}

# Formats of JSON Schema that are not enforced, with the reason.
REFUSED: dict[str, str] = {
    "regex": "parentheses must match, so regular expressions are not a regular language",
    "idn-hostname": "IDNA's rules for labels (normal form, bidirectional text, contexts) are too large for a machine",
}
