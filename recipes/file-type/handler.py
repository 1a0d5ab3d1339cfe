"""Handler of magika's model: the type of a file from the bytes at its beginning and its end."""

import json

PADDING = 256  # the token after the 256 values of a byte


class Handler:
    item = "file"

    def load(self, folder):
        config = json.loads((folder / "config.min.json").read_text())
        self.labels = config["target_labels_space"]
        self.beginning, self.end, self.block = config["beg_size"], config["end_size"], config["block_size"]

    def preprocess(self, item):
        first = list(item[: self.block].lstrip()[: self.beginning])
        last = list(item[-self.block :].rstrip()[-self.end :])
        first += [PADDING] * (self.beginning - len(first))
        last = [PADDING] * (self.end - len(last)) + last
        return {"bytes": [first + last]}

    def postprocess(self, outputs):
        [scores] = outputs["target_label"].tolist()
        best = max(range(len(scores)), key=scores.__getitem__)
        return {"label": self.labels[best], "score": round(scores[best], 6)}

    def score(self, answer, expected):
        return float(answer["label"] == expected)
