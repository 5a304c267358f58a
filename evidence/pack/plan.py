"""Which pieces of a draft are shown: a fixed order by what each explains per token, cut where the budget ends.

The order does not depend on the budget, and the place of the cut is found by halving, the same way at every budget. So
a larger budget keeps every ID that a smaller one has, whatever the counter does, and no budget is exceeded.
"""

from collections.abc import Callable, Sequence

from headroom.evidence.pack.items import ALWAYS, SECTIONS, Draft, Item
from headroom.evidence.pack.tokens import TokenCounter


def in_order(draft: Draft, counter: TokenCounter) -> list[Item]:
    """The pieces by what each explains per token; none before the piece that it needs."""
    scores: dict[str, float] = {}
    costs: dict[int, int] = {}
    items = {item.key: item for item in draft.items}
    named: set[int] = set()
    for item in draft.items:
        tokens = counter.count("\n".join((*item.lines, item.index, item.index)))
        for number in set(item.frames) - named:
            if number not in costs:
                costs[number] = counter.count(draft.frames[number - 1])
            tokens += costs[number]
        named.update(item.frames)
        scores[item.key] = item.value / (tokens + 1)
    depth: dict[str, int] = {}

    def bounded(item: Item) -> tuple[float, int]:
        """Score and depth, the score never above that of what the piece needs."""
        if item.key not in depth:
            depth[item.key] = 0
            if item.needs:
                above, level = bounded(items[item.needs])
                scores[item.key] = min(scores[item.key], above)
                depth[item.key] = level + 1
        return scores[item.key], depth[item.key]

    def key(item: Item) -> tuple[float, int, int, tuple[int, ...]]:
        score, level = bounded(item)
        return -score, level, SECTIONS.index(item.section), item.place

    return sorted(draft.items, key=key)


def cut_to(
    items: Sequence[Item],
    render: Callable[[Sequence[Item]], str],
    counter: TokenCounter,
    budget: int,
) -> tuple[list[Item], str, int]:
    """The longest beginning that was found to fit, its text and its tokens.

    Raises:
        ValueError: Even what has to be said always does not fit.
    """
    least = sum(item.value == ALWAYS for item in items)

    def tried(count: int) -> tuple[list[Item], str, int]:
        chosen = list(items[:count])
        text = render(chosen)
        return chosen, text, counter.count(text)

    best = tried(len(items))
    if best[2] <= budget:
        return best
    best = tried(least)
    if best[2] > budget:
        raise ValueError(f"a pack of this snapshot needs at least {best[2]} tokens, not {budget}")
    low, high = least, len(items) - 1
    while low < high:
        middle = (low + high + 1) // 2
        here = tried(middle)
        if here[2] <= budget:
            low, best = middle, here
        else:
            high = middle - 1
    return best
