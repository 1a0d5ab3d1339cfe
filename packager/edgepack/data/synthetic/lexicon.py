"""Words, clause forms and sentence templates of `builtin:reviews-zh`.

Everything here was written for this project. Every split uses all of the few words; the splits differ in their
templates.

Slots of a clause form: `{a}` aspect, `{x}` predicate, `{ref}` what it is compared with.
Slots of a template: a clause that agrees with the label (`{m}`, a second one `{s}`), a clause that contradicts it
(`{o}`), an overall verdict that agrees with it (`{v}`), and the place (`{p}`). An upper-case clause slot may also
hold a form that only stands on its own (`不得不说…`). `{m*}` talks about the same aspect as the clause before it and
does not name it again.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Family = Literal["single", "agree", "contrast", "concession", "expectation", "mixed"]
Words = Literal["any", "good", "bad"]


class Quality(NamedTuple):
    """Two opposite predicates."""

    good: str
    bad: str


class Aspect(NamedTuple):
    """An aspect under review, and its qualities."""

    name: str
    qualities: tuple[Quality, ...]


class Venue(NamedTuple):
    """A kind of place: its names in reviews, and its aspects."""

    names: tuple[str, ...]
    aspects: tuple[Aspect, ...]


class ClauseForm(NamedTuple):
    """A form of a clause. `keeps`: whether the clause has the predicate's polarity or the opposite one."""

    pattern: str
    keeps: bool
    words: Words = "any"
    stands_alone: bool = False
    weight: int = 1  # weight among the forms of the same effect


_CLEAN: Final = Quality("干净", "脏")
_QUIET: Final = Quality("安静", "吵")
_TASTY: Final = Quality("好吃", "难吃")
_FAST: Final = Quality("快", "慢")
_FINE: Final = Quality("好", "差")
_NEW: Final = Quality("新", "旧")
_LARGE: Final = Quality("大", "小")
_KIND: Final = Quality("热情", "冷淡")
_CAREFUL: Final = Quality("细心", "马虎")
_COMFORTABLE: Final = Quality("舒服", "难受")
_PRETTY: Final = Quality("好看", "难看")
_PRICE: Final = Aspect("价格", (Quality("便宜", "贵"),))
_SERVICE: Final = Aspect("服务", (_FINE, _KIND))

VENUES: Final = (
    Venue(
        ("酒店", "宾馆"),
        (
            Aspect("房间", (_CLEAN, _QUIET, _NEW, _LARGE)),
            Aspect("床", (_CLEAN, _COMFORTABLE)),
            Aspect("早餐", (_TASTY,)),
            Aspect("前台", (_KIND, _CAREFUL)),
            Aspect("位置", (_FINE,)),
            _PRICE,
        ),
    ),
    Venue(
        ("餐厅", "饭馆"),
        (
            Aspect("菜", (_TASTY,)),
            Aspect("味道", (_FINE,)),
            Aspect("环境", (_CLEAN, _QUIET, _FINE)),
            Aspect("上菜", (_FAST,)),
            _SERVICE,
            _PRICE,
        ),
    ),
    Venue(
        ("店里", "网店"),
        (
            Aspect("质量", (_FINE,)),
            Aspect("衣服", (_PRETTY, _COMFORTABLE)),
            Aspect("颜色", (_PRETTY,)),
            Aspect("客服", (_KIND, _CAREFUL)),
            Aspect("发货", (_FAST,)),
            _PRICE,
        ),
    ),
)

REFERENCES: Final = ("上次", "别家", "以前", "想象中")

CLAUSE_FORMS: Final = (
    # Asserted.
    ClauseForm("{a}很{x}", True, weight=8),
    ClauseForm("{a}非常{x}", True, weight=5),
    ClauseForm("{a}特别{x}", True, weight=4),
    ClauseForm("{a}挺{x}的", True, weight=4),
    ClauseForm("{a}真的{x}", True, weight=3),
    ClauseForm("{a}太{x}了", True, stands_alone=True, weight=4),
    ClauseForm("{a}有点{x}", True, "bad", weight=4),
    # Negated.
    ClauseForm("{a}不{x}", False, weight=8),
    ClauseForm("{a}并不{x}", False, weight=5),
    ClauseForm("{a}不算{x}", False, weight=3),
    ClauseForm("{a}不怎么{x}", False, weight=2),
    ClauseForm("{a}谈不上{x}", False, weight=2),
    ClauseForm("{a}一点也不{x}", False, weight=3),
    ClauseForm("{a}一点都不{x}", False, weight=3),
    ClauseForm("{a}没有那么{x}", False, weight=3),
    ClauseForm("{a}不够{x}", False, "good", weight=2),
    # Negated twice, or a negation without effect.
    ClauseForm("{a}再{x}不过了", True, "good"),
    ClauseForm("不得不说{a}很{x}", True, stands_alone=True),
    ClauseForm("不能说{a}不{x}", True, stands_alone=True),
    # Compared.
    ClauseForm("{a}比{ref}{x}", True),
    ClauseForm("{a}比{ref}还{x}", True),
    ClauseForm("{a}没有{ref}{x}", False, weight=3),
    ClauseForm("{a}不比{ref}{x}", False),
    ClauseForm("{a}不如{ref}{x}", False, "good"),
)

GOOD_VERDICTS: Final = ("很满意", "会再来", "愿意推荐", "不后悔", "没有失望")
BAD_VERDICTS: Final = ("不满意", "不会再来", "不愿意推荐", "很后悔", "很失望")

_LEADS: Final = (
    "",
    "{p}",
    "{p}的",
    "这次",
    "昨天来，",
    "周末来，",
    "晚上来，",
    "第一次来，",
    "第二次来，",
    "今天刚来，",
    "说实话，",
    "老实说，",
    "我觉得",
    "我感觉",
    "个人感觉",
    "总体感觉",
)
_ENDINGS: Final = ("，真的", "，说实话", "，我觉得", "，这是实话")
_THOUGH: Final = ("虽然", "尽管", "虽说", "")
_BUT: Final = ("但是", "但", "不过", "可是", "可")
_EVEN_IF: Final = ("就算", "即使", "哪怕")
_EXPECTED: Final = ("本来以为", "原以为", "之前听说", "朋友说", "网上都说", "看评论说")
_FOUND: Final = ("结果", "没想到", "其实", "来了才发现", "去了才知道")
_OVERALL: Final = ("总的来说", "总体", "总之", "整体上")
_AGREE: Final = (
    "{M}，{S}",
    "{M}，而且{s}",
    "不但{m}，而且{s}",
    "不仅{m}，而且{s}",
    "不光{m}，{s}",
    "不光{m}，而且{s}",
    "不仅{m}，{s}",
    "首先{m}，其次{s}",
    "{p}的{m}，{s}",
    "{p}{m}，{s}",
    "我觉得{m}，{s}",
    "说实话{M}，{S}",
    "{m}，再说{s}",
    "{m}，{s}，{v}",
    "{M}，{v}",
    "{m}，所以{v}",
    "{m}，总之{v}",
    "{m}，我{v}",
)

TEMPLATES: Final[dict[Family, tuple[str, ...]]] = {
    "single": (
        *(f"{lead}{{{'m' if lead.endswith(('的', '得', '觉', '}', '这次')) else 'M'}}}" for lead in _LEADS),
        *("{M}" + ending for ending in _ENDINGS),
    ),
    "agree": _AGREE,
    "contrast": (
        *(f"{though}{{o}}，{but}{{M}}" for though in _THOUGH for but in _BUT),
        *(f"{{p}}的{{o}}，{but}{{M}}" for but in _BUT),
        *(f"{{o}}，{but}我{{v}}" for but in _BUT),
        *(f"{though}{{o}}，{but}还是{{v}}" for though in _THOUGH[:2] for but in _BUT[:2]),
    ),
    "concession": (
        *(f"{even}{{o}}，我也{{v}}" for even in _EVEN_IF),
        *(f"{even}{{o}}，也{{v}}" for even in _EVEN_IF),
    ),
    "expectation": tuple(f"{was}{{o}}，{found}{{m*}}" for was in _EXPECTED for found in _FOUND),
    "mixed": (
        *(f"{{o}}，{{s}}，{overall}{{v}}" for overall in _OVERALL),
        *(f"{{s}}，{{o}}，{overall}{{v}}" for overall in _OVERALL),
    ),
}

FAMILY_WEIGHTS: Final[dict[Family, int]] = {
    "single": 42,
    "agree": 28,
    "contrast": 15,
    "concession": 5,
    "expectation": 6,
    "mixed": 4,
}

# Typing errors: same sound, or a look-alike character.
MISSPELLINGS: Final = (
    ("干净", "干静"),
    ("服务", "服物"),
    ("环境", "环镜"),
    ("味道", "味到"),
    ("位置", "位制"),
    ("便宜", "便易"),
    ("价格", "价各"),
    ("质量", "质亮"),
    ("推荐", "推存"),
    ("感觉", "感决"),
    ("再来", "在来"),
    ("热情", "热请"),
    ("舒服", "书服"),
    ("以为", "已为"),
    ("满意", "满义"),
)
# A typing error must not change the polarity: it never affects a character that negates or contrasts.
SLIP_CHARACTERS: Final = "很的了也都真家太间房店来我"
