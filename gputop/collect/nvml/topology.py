"""How GPUs are joined: pairs asked a few a tick, once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from gputop.collect.nvml.card import Card
from gputop.collect.nvml.gate import Late, Lost, Unanswered

PAIRS_A_TICK = 8
_MOST = 4096  # pairs: twice those of 64 GPUs
_NVLINK = 2  # NVML_P2P_CAPS_INDEX_NVLINK
_LEVELS = {0: "switch", 10: "switch", 20: "switch", 30: "bridge", 40: "node", 50: "system"}


class Topology:
    """Words for pairs of GPUs, by their uuids."""

    def __init__(self) -> None:
        self._words: dict[frozenset[str], str | None] = {}
        self._peers: dict[str, tuple[list[str], tuple[tuple[str, str], ...]]] = {}  # of a GPU, with whom it was asked

    def learn(self, cards: Iterable[Card]) -> None:
        """Ask about a few pairs of GPUs that were not asked about yet."""
        left, cards = PAIRS_A_TICK, list(cards)
        if len(self._words) > _MOST:  # most of them of GPUs that are gone
            here = {card.uuid for card in cards}
            self._words = {pair: word for pair, word in self._words.items() if pair <= here}
            self._peers.clear()
        for one, other in combinations(cards, 2):
            pair = frozenset((one.uuid, other.uuid))
            if pair in self._words:
                continue
            try:
                self._words[pair] = _joined(one, other)
                self._peers.clear()
            except Late as late:
                one.hang(late.since_s)
                raise
            left -= 1
            if not left:
                return

    def peers(self, uuid: str, cards: Iterable[Card]) -> tuple[tuple[str, str], ...]:
        """The other GPUs and how this one is joined to them, in the order of their indexes."""
        others = [card.uuid for card in cards if card.uuid != uuid]
        known = self._peers.get(uuid)
        if known is None or known[0] != others:
            words = ((other, self._words.get(frozenset((uuid, other)))) for other in others)
            known = self._peers[uuid] = others, tuple((other, word) for other, word in words if word)
        return known[1]


def _joined(one: Card, other: Card) -> str | None:
    try:
        if one.call("nvmlDeviceGetP2PStatus", since=(other.handle, _NVLINK)) == 0:
            return "nvlink"
    except Lost:
        raise
    except Unanswered:
        pass
    try:
        return _LEVELS.get(one.call("nvmlDeviceGetTopologyCommonAncestor", since=(other.handle,)))
    except Lost:
        raise
    except Unanswered:
        return None
