"""Handler of Baidu's LAC: the words of a Chinese text, each with its part of speech or kind of name."""

import struct


class Handler:
    item = "text"

    def load(self, folder):
        ids = _table(folder / "word.dic")
        self.ids = {character: int(number) for number, character in ids.items()}
        self.unknown = self.ids["OOV"]
        self.simplified = _table(folder / "q2b.dic")
        self.tags = {int(number): tag for number, tag in _table(folder / "tag.dic").items()}
        self.viterbi = Viterbi(_matrix(folder / "lac_crf_transitions.npy"))

    def predict(self, item, graphs):
        if not item:
            return []
        ids = [self.ids.get(self.simplified.get(one, one), self.unknown) for one in item]
        outputs = graphs["model"]({"token_ids": [ids], "length": [len(ids)]})
        [emissions] = next(iter(outputs.values())).tolist()
        words = []
        for character, number in zip(item, self.viterbi.best_path(emissions)):
            tag, _, place = self.tags.get(number, "n-B").rpartition("-")
            if place == "I" and words:
                words[-1][0] += character
            else:
                words.append([character, tag or place])  # the tag O has no place
        return words

    def score(self, answer, expected):
        """F1 of the words: one is right if its place and its tag are."""
        found, right = _placed(answer), _placed(expected)
        return 2 * len(found & right) / (len(found) + len(right)) if found or right else 1.0


class Viterbi:
    """The best path of tags: the highest sum of emissions and of transitions from tag to tag."""

    def __init__(self, transitions):
        self.into = [list(column) for column in zip(*transitions)]
        self.most = max(map(max, transitions))

    def best_path(self, emissions):
        sums, came_from = emissions[0], []
        for row in emissions[1:]:
            # A tag whose sum is lower than the best way to every tag, by more than any transition adds, starts no best
            # path: a few tags are left of some sixty. What is left out changes no result.
            order = sorted(range(len(sums)), key=sums.__getitem__, reverse=True)
            following, sources = [], []
            for emission, column in zip(row, self.into):
                best, source = float("-inf"), 0
                for tag in order:
                    if sums[tag] + self.most < best:
                        break
                    way = sums[tag] + column[tag]
                    if way > best or (way == best and tag < source):
                        best, source = way, tag
                following.append(best + emission)
                sources.append(source)
            sums = following
            came_from.append(sources)
        path = [max(range(len(sums)), key=sums.__getitem__)]
        for sources in reversed(came_from):
            path.append(sources[path[-1]])
        return path[::-1]


def _table(file):
    """The lines `KEY<tab>VALUE` of a file."""
    with file.open(encoding="utf-8", newline="\n") as lines:
        pairs = (line.rstrip("\n").partition("\t") for line in lines)
        return {key: value for key, tab, value in pairs if tab}


def _matrix(file):
    """A matrix of float32 as nested lists, from NumPy's format 1."""
    raw = file.read_bytes()
    [size] = struct.unpack_from("<H", raw, 8)
    numbers = struct.unpack(f"<{(len(raw) - 10 - size) // 4}f", raw[10 + size :])
    side = round(len(numbers) ** 0.5)
    return [numbers[row * side : (row + 1) * side] for row in range(side)]


def _placed(words):
    """Words as (begin, end, tag)."""
    places, begin = set(), 0
    for word, tag in words:
        places.add((begin, begin + len(word), tag))
        begin += len(word)
    return places
