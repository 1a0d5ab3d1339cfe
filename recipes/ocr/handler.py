"""Handler of PP-OCR's models: the lines of text in an image.

Detection is Differentiable Binarization (Liao and others, 2020): contours of the thresholded map, their smallest
rectangles, grown by area * ratio / perimeter. Recognition is greedy CTC decoding (Graves and others, 2006). All numbers
are those of RapidOCR, and so are the answers.
"""

import math

import cv2
import numpy as np

from edgepack_runtime.errors import UsageError

# Sizes of the image, in pixels.
LONGEST, SHORTEST = 2000, 30  # sides
WIDEST = 8  # width / height; a wider image gets a margin
# Detection.
DETECTED_SIDE = 736  # the shorter side is at least this long
PIXEL, BOX = 0.3, 0.5  # least probability
GROWTH = 1.6
MOST_BOXES = 1000
LEAST_SIDE = 3
SAME_LINE = 10  # pixels
# Direction and recognition.
HEIGHT, LEAST_WIDTH, DIRECTION_WIDTH = 48, 320, 192
UPSIDE_DOWN = 0.9  # least probability
BATCH = 6
LEAST_SCORE = 0.5

_BYTES = np.arange(256, dtype=np.float32)
FOR_DETECTION = ((_BYTES * (1 / 255.0) - np.full(256, 0.5)) / 0.5).astype(np.float32)
FOR_LINES = (_BYTES / 255 - 0.5) / 0.5


class Handler:
    item = "file"

    def load(self, folder):
        cv2.setNumThreads(1)
        characters = (folder / "characters.txt").read_bytes().decode().split("\n")
        self.characters = ["", *characters, " "]  # 0 is CTC's blank

    def predict(self, item, graphs):
        image = _decoded(item)
        height, width = image.shape[:2]
        image, scale_x, scale_y = _fitted(image)
        image, margin = _with_margin(image)
        boxes = _in_order(_boxes(_detected(image, graphs["detect"]), image.shape))
        lines = [_cut_out(image, box) for box in boxes]
        _turn(lines, graphs["direction"])
        found = self._read(lines, graphs["recognize"])
        answer = []
        for box, (text, score) in zip(boxes, found):
            if score >= LEAST_SCORE:
                corners = (box - [0, margin]) * [scale_x, scale_y]
                corners = np.clip(corners, 0, [width, height]).round(1).tolist()
                answer.append({"text": text, "box": corners, "score": round(score, 6)})
        return answer

    def score(self, answer, expected):
        """1 - the edit distance of the texts / the length of the longer one. White space does not count."""
        found = "".join("".join(line["text"] for line in answer).split())
        right = "".join(expected.split())
        longer = max(len(found), len(right))
        return 1 - _distance(found, right) / longer if longer else 1.0

    def _read(self, lines, graph):
        """The text of each line and its mean probability."""
        found = [("", 0.0)] * len(lines)
        for batch in _batches(lines):
            widest = max([LEAST_WIDTH / HEIGHT, *(_ratio(lines[number]) for number in batch)])
            probabilities = _run(graph, [_padded(lines[number], int(HEIGHT * widest)) for number in batch])
            best, scores = probabilities.argmax(axis=2), probabilities.max(axis=2)
            for number, row, score in zip(batch, best, scores):
                kept = row != 0
                kept[1:] &= row[1:] != row[:-1]
                text = "".join(self.characters[one] for one in row[kept])
                found[number] = (text, float(np.mean(score[kept].tolist())) if text else 0.0)
        return found


def _run(graph, images):
    return np.asarray(next(iter(graph({"x": np.stack(images)}).values())))


def _decoded(raw):
    """The image as BGR, as it is stored: a camera's note that it is turned does not count."""
    data = np.frombuffer(raw, np.uint8)
    image = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if raw else None
    if image is None:
        raise UsageError("the file is no image that OpenCV reads", fix="send a PNG or a JPEG file")
    if image.ndim == 3 and image.shape[2] == 4 and image.dtype == np.uint8:
        return _opaque(image)
    return cv2.imdecode(data, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)


def _opaque(image):
    """An image with transparency on white; black on nothing becomes black on white, too."""
    outside = cv2.cvtColor(cv2.bitwise_not(image[..., 3]), cv2.COLOR_GRAY2BGR)
    colour = np.ascontiguousarray(image[..., :3])
    colour = cv2.bitwise_and(colour, colour, mask=image[..., 3])
    return cv2.bitwise_not(colour) if colour.any() else cv2.add(colour, outside)


def _fitted(image):
    """The image with sides from SHORTEST to LONGEST, and by how much its coordinates are to be multiplied."""
    height, width = image.shape[:2]
    for is_unfit, side, limit in ((int.__gt__, max, LONGEST), (int.__lt__, min, SHORTEST)):
        now = side(image.shape[:2])
        if is_unfit(now, limit):
            image = _resized(image, limit / now)
    return image, width / image.shape[1], height / image.shape[0]


def _resized(image, ratio):
    """The image with sides that are multiples of 32, which the network needs."""
    height, width = (round(int(side * ratio) / 32) * 32 for side in image.shape[:2])
    if not height or not width:
        raise UsageError(f"an image of {image.shape[1]} x {image.shape[0]} pixels is too narrow to be read")
    return cv2.resize(image, (width, height))


def _with_margin(image):
    """The image with a black margin above and below if it is flat, and the height of the margin."""
    height, width = image.shape[:2]
    if height > SHORTEST and width / height <= WIDEST:
        return image, 0
    margin = abs(max(int(width / WIDEST), SHORTEST) * 2 - height) // 2
    return cv2.copyMakeBorder(image, margin, margin, 0, 0, cv2.BORDER_CONSTANT, value=(0, 0, 0)), margin


def _detected(image, graph):
    """The probability of text, for each pixel of the resized image."""
    image = _resized(image, max(DETECTED_SIDE / min(image.shape[:2]), 1.0))
    return _run(graph, [cv2.LUT(image, FOR_DETECTION).transpose(2, 0, 1)])[0, 0]


def _boxes(probabilities, shape):
    """Corners of the texts, in the image's pixels: top left, top right, bottom right, bottom left."""
    height, width = shape[:2]
    size = np.array(probabilities.shape[::-1])
    mask = cv2.dilate((probabilities > PIXEL).astype(np.uint8) * 255, np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    found = []
    for contour in contours[:MOST_BOXES]:
        corners, side = _rectangle(contour)
        if side < LEAST_SIDE or _mean_inside(probabilities, corners) < BOX:
            continue
        corners, side = _rectangle(np.array(_grown(corners), np.int32))
        if side < LEAST_SIDE + 2:
            continue
        corners = np.clip(np.round(corners / size * [width, height]), 0, [width, height])
        corners = np.clip(_clockwise(corners.astype(np.float32)), 0, [width - 1, height - 1]).astype(np.float32)
        if min(int(np.linalg.norm(corners[0] - corners[other])) for other in (1, 3)) > LEAST_SIDE:
            found.append(corners)
    return found


def _rectangle(points):
    """Corners of the smallest rectangle around points, clockwise, and its shorter side."""
    rectangle = cv2.minAreaRect(points)
    return _clockwise(cv2.boxPoints(rectangle)), min(rectangle[1])


def _clockwise(corners):
    """Corners in the order top left, top right, bottom right, bottom left."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    top_left, bottom_left = by_x[:2] if by_x[1, 1] > by_x[0, 1] else by_x[1::-1]
    top_right, bottom_right = by_x[2:] if by_x[3, 1] > by_x[2, 1] else by_x[:1:-1]
    return np.array([top_left, top_right, bottom_right, bottom_left])


def _mean_inside(probabilities, corners):
    """The mean probability inside of a rectangle."""
    limit = np.array(probabilities.shape[::-1]) - 1
    low = np.clip(np.floor(corners.min(axis=0)).astype(int), 0, limit)
    high = np.clip(np.ceil(corners.max(axis=0)).astype(int), 0, limit)
    mask = np.zeros((high - low + 1)[::-1], np.uint8)
    cv2.fillPoly(mask, [(corners - low.astype(np.float32)).astype(np.int32)], 1)
    return cv2.mean(probabilities[low[1] : high[1] + 1, low[0] : high[0] + 1], mask)[0]


def _grown(corners):
    """Points of the polygon that is GROWTH * area / perimeter away from `corners`, with round joints.

    As the library Clipper does it: coordinates are whole numbers, and an arc is at most a quarter of a pixel off.
    """
    points = [(float(x), float(y)) for x, y in corners]
    following = [*points[1:], points[0]]
    area = abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, following))) / 2
    away = area * GROWTH / sum(math.dist(a, b) for a, b in zip(points, following))
    whole = [(int(x), int(y)) for x, y in points]
    whole = [point for point, before in zip(whole, [whole[-1], *whole]) if point != before]
    normals = [_normal(a, b) for a, b in zip(whole, [*whole[1:], whole[0]])]
    tolerance = min(0.25, away * 0.25)
    steps = min(math.pi / math.acos(1 - tolerance / away), away * math.pi)
    sine, cosine = math.sin(2 * math.pi / steps), math.cos(2 * math.pi / steps)
    grown = []
    for (x, y), before, after in zip(whole, [normals[-1], *normals], normals):
        turn = before[0] * after[1] - after[0] * before[1]
        along = before[0] * after[0] + before[1] * after[1]
        if abs(turn * away) < 1 and along > 0:
            grown.append((_rounded(x + before[0] * away), _rounded(y + before[1] * away)))
            continue
        angle = math.atan2(min(max(turn, -1.0), 1.0), along)
        normal = before
        for _ in range(max(_rounded(steps / (2 * math.pi) * abs(angle)), 1)):
            grown.append((_rounded(x + normal[0] * away), _rounded(y + normal[1] * away)))
            normal = (normal[0] * cosine - sine * normal[1], normal[0] * sine + normal[1] * cosine)
        grown.append((_rounded(x + after[0] * away), _rounded(y + after[1] * away)))
    return grown


def _normal(a, b):
    """The vector of length 1 that is at right angles to the edge from a to b, outwards."""
    x, y = b[0] - a[0], b[1] - a[1]
    factor = 1 / math.sqrt(x * x + y * y)
    return y * factor, -x * factor


def _rounded(number):
    return int(number - 0.5) if number < 0 else int(number + 0.5)


def _in_order(boxes):
    """Boxes from top to bottom, those of one line from left to right."""
    ordered = sorted(boxes, key=lambda box: (box[0][1], box[0][0]))
    for first in range(len(ordered) - 1):
        for number in range(first, -1, -1):
            here, below = ordered[number][0], ordered[number + 1][0]
            if abs(below[1] - here[1]) >= SAME_LINE or below[0] >= here[0]:
                break
            ordered[number], ordered[number + 1] = ordered[number + 1], ordered[number]
    return ordered


def _cut_out(image, box):
    """The image of one line, by perspective. An upright line is turned."""
    width = int(max(np.linalg.norm(box[0] - box[1]), np.linalg.norm(box[2] - box[3])))
    height = int(max(np.linalg.norm(box[0] - box[3]), np.linalg.norm(box[1] - box[2])))
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    matrix = cv2.getPerspectiveTransform(box, corners)
    line = cv2.warpPerspective(image, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE, flags=cv2.INTER_CUBIC)
    return np.rot90(line) if height / width >= 1.5 else line


def _turn(lines, graph):
    """Turn the lines that are upside down."""
    for batch in _batches(lines):
        probabilities = _run(graph, [_padded(lines[number], DIRECTION_WIDTH) for number in batch])
        for number, (right, wrong) in zip(batch, probabilities):
            if wrong > right and wrong > UPSIDE_DOWN:
                lines[number] = cv2.rotate(lines[number], cv2.ROTATE_180)


def _batches(lines):
    """Numbers of lines with similar ratios."""
    order = np.argsort(np.array([_ratio(line) for line in lines])) if lines else []
    return [order[begin : begin + BATCH] for begin in range(0, len(lines), BATCH)]


def _ratio(line):
    return line.shape[1] / line.shape[0]


def _padded(line, width):
    """A line as the networks read it: HEIGHT x `width`, gray at the right end if it is shorter."""
    resized = cv2.resize(line, (min(math.ceil(HEIGHT * _ratio(line)), width), HEIGHT))
    padded = np.zeros((3, HEIGHT, width), np.float32)
    padded[:, :, : resized.shape[1]] = cv2.LUT(resized, FOR_LINES).transpose(2, 0, 1)
    return padded


def _distance(left, right):
    """The edit distance of two texts."""
    row = list(range(len(right) + 1))
    for number, one in enumerate(left, start=1):
        before, row[0] = row[0], number
        for place, other in enumerate(right, start=1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (one != other))
    return row[-1]
