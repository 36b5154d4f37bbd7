"""Which rows of a forward paid for which experts, where the experts of the model are read from disk.

A forward reads each expert once, for all rows that need it. So a drafted row is free where a row that decoding reads
anyway needs the same experts, and dear where it alone needs others; whether it was then kept decides what it was worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TEXT, PROMPT = "text", "prompt"  # the row that plain decoding reads too; rows of the prompt


class ExpertUse:
    """Sums what a store logs, by the source of each row. store: a gdlib.models.expert_store.ExpertStore."""

    def __init__(self, store):
        self.store = store
        self.total, self.prompt = _counts(), _counts()
        self.total["rejected_bytes"] = 0
        self.sources: dict[str, dict[str, int]] = {}

    def add(self, log, sources: Sequence[str], kept: Sequence[bool]) -> None:
        """One forward. log: its ForwardLog; sources, kept: of each row; row 0 is the root's and always kept."""
        total = self.prompt if sources[0] == PROMPT else self.total
        total["forwards"] += 1
        total["loads"] += log.loads
        total["miss_bytes"] += log.miss_bytes
        total["read_seconds"] += log.read_seconds
        for tier, count in log.hits.items():
            total["hits"][tier] += count
        if total is self.prompt:
            for selected in log.selected:
                total["selections"] += selected.size
                total["distinct"] += np.unique(selected).size
            return
        sources = np.asarray(sources)
        kept = np.asarray(kept, bool)
        order = np.argsort(~kept, kind="stable")  # an expert is paid for by the first kept row that needs it
        names = list(dict.fromkeys(sources.tolist()))
        for name in names:
            mine = self.sources.setdefault(name, {"rows": 0, "selections": 0, "distinct": 0, "loads": 0})
            mine["rows"] += int((sources == name).sum())
        for selected, missed in zip(log.selected, log.missed, strict=True):
            experts, first = np.unique(selected[order], return_index=True)
            payer = order[first // selected.shape[1]]
            total["selections"] += selected.size
            total["distinct"] += experts.size
            paid = payer[np.isin(experts, np.fromiter(missed, int, len(missed)))]
            total["rejected_bytes"] += int((~kept[paid]).sum()) * self.store.expert_bytes
            for name in names:
                rows = sources == name
                mine = self.sources[name]
                mine["selections"] += int(rows.sum()) * selected.shape[1]
                mine["distinct"] += np.unique(selected[rows]).size
                mine["loads"] += int(rows[paid].sum())

    def report(self) -> dict:
        """Counts of the run, the prompt's forward apart.

        selections: experts that rows asked for; distinct: of them, once a layer and forward; hits: distinct ones served
        by each tier; loads and miss_bytes: read from disk; rejected_bytes: of them, for experts that only refused rows
        needed; read_seconds: time that forwards waited for the disk. sources: the same by the source of the row, where
        an expert that several rows needed counts as loaded by the first of them that was kept.
        """
        size = self.store.expert_bytes
        sources = {name: {**counts, "miss_bytes": counts["loads"] * size} for name, counts in self.sources.items()}
        return {**self.total, "expert_bytes": size, "sources": sources, "prompt": self.prompt}


def _counts() -> dict:
    return {
        "forwards": 0,
        "selections": 0,
        "distinct": 0,
        "loads": 0,
        "miss_bytes": 0,
        "hits": {"pinned": 0, "slots": 0},
        "read_seconds": 0.0,
    }
