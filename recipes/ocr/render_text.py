"""Render images of text and write them with their texts: the examples of this recipe.

apt-get install fonts-wqy-zenhei
../../.venv/bin/python render_text.py /usr/share/fonts/truetype/wqy/wqy-zenhei.ttc
"""

import argparse
import json
import random
import string
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

CHINESE = [
    "今天的天气非常好",
    "北京市海淀区中关村大街",
    "请在收银台出示会员卡",
    "保质期十二个月",
    "本产品须在阴凉干燥处存放",
    "增值税电子普通发票",
    "温度传感器运行正常",
    "设备编号与生产日期",
    "禁止吸烟",
    "小心地滑",
    "欢迎光临",
    "购买方名称",
    "高速公路收费站前方两公里",
    "用户名或密码不正确",
    "正在连接服务器",
    "列车即将进站请站在黄线以内",
    "人民医院门诊大楼",
    "合计金额",
    "开户银行",
    "压力表每半年校验一次",
    "配料表",
    "水稻种子发芽率不低于百分之八十五",
]
LATIN = [
    "Total amount",
    "Serial number",
    "Made in China",
    "Edge device",
    "Open daily",
    "No smoking",
    "Wi-Fi password",
    "Ethernet",
    "Power supply",
    "Temperature sensor",
    "Best before",
    "Model",
    "Warning: high voltage",
    "Firmware update",
    "Invoice",
    "Page",
]


def words(dice):
    """One line of Chinese, Latin letters and digits."""
    kind = dice.choice(("chinese", "latin", "digits", "mixed", "mixed"))
    if kind == "chinese":
        return "".join(dice.sample(CHINESE, dice.choice((1, 1, 2))))
    if kind == "latin":
        return dice.choice(LATIN)
    if kind == "digits":
        form = dice.choice(("####-##-##", "##:##:##", "1##########", "¥###.##", "No.########", "###-########"))
        return "".join(dice.choice(string.digits) if mark == "#" else mark for mark in form)
    number = f"{dice.randrange(10000)}{dice.choice(('kg', 'mm', '%', '元', 'V', ''))}"
    code = "".join(dice.choices(string.ascii_uppercase + string.digits, k=dice.randrange(3, 9)))
    return dice.choice(CHINESE) + dice.choice((number, code, f"({code})", f"：{number}"))


def rendered(dice, font, number):
    """An image and its text, line by line."""
    size = dice.randrange(16, 49)
    face = ImageFont.truetype(font, size)
    lines = [words(dice) for _ in range(1 if number % 5 == 0 else dice.randrange(1, 9))]
    boxes = [face.getbbox(line) for line in lines]
    gap, margin = dice.randrange(size // 4, size), dice.randrange(4, 2 * size)
    width = max(box[2] for box in boxes) + 2 * margin
    height = sum(box[3] for box in boxes) + gap * (len(lines) - 1) + 2 * margin
    dark = tuple(dice.randrange(0, 90) for _ in range(3))
    bright = tuple(dice.randrange(170, 256) for _ in range(3))
    ink, paper = (dark, bright) if dice.random() < 0.8 else (bright, dark)
    image = Image.new("RGB", (width, height), paper)
    draw = ImageDraw.Draw(image)
    top = margin
    for line, box in zip(lines, boxes, strict=True):
        draw.text((margin, top), line, font=face, fill=ink)
        top += box[3] + gap
    if number % 7 == 3:
        image = image.rotate(dice.uniform(-4, 4), Image.Resampling.BICUBIC, expand=True, fillcolor=paper)
    if number % 4 == 1:
        image, lines = image.rotate(180), lines[::-1]
    if number % 10 == 6:
        image = image.convert("L")
    return image, lines


def main():
    parser = argparse.ArgumentParser(description="Render images of text for recipes/ocr.")
    parser.add_argument("font")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    (options.out / "examples").mkdir(parents=True, exist_ok=True)
    with (options.out / "examples.jsonl").open("w", encoding="utf-8") as rows:
        for number in range(options.count):
            image, lines = rendered(dice, options.font, number)
            name = f"examples/{number:03}.{'jpg' if number % 3 == 2 else 'png'}"
            image.save(options.out / name)
            rows.write(json.dumps({"file": name, "expected": "\n".join(lines)}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
