"""The messages of the runtime by id, each in English and Chinese with the same fields."""

from __future__ import annotations

from typing import Mapping, Tuple

TEMPLATES: Mapping[str, Tuple[str, str]] = {
    "list.semicolon": ("{parts:; }", "{parts:；}"),
    "list.comma": ("{parts:, }", "{parts:，}"),
    "list.lines": ("{parts:\n}", "{parts:\n}"),
    "list.colon": ("{parts:: }", "{parts:：}"),
    # Of checks on accuracy.
    "gate.right": ("{right} of {n:#row} right", "{n} 个样本中答对 {right} 个"),
    "gate.full": ("{right} of {n:#example} with score 1", "{n} 个样例中 {right} 个得分为 1"),
    "gate.rows": ("{n:#row}", "{n} 个样本"),
    "gate.repeats": ("distinct texts: {distinct} for {n} rows", "{n} 个样本中只有 {distinct} 条不同的文本"),
    "gate.unseen": ("no golden row has {labels:, }", "随包样本中没有 {labels:、}"),
    "gate.unseen_more": (
        "no golden row has {labels:, } and {more} more",
        "随包样本中没有 {labels:、} 等类别（另有 {more} 个）",
    ),
    "gate.would_decide": ("about {n} {of} would decide", "约需 {n} 个{of}才能判定"),
    "gate.too_close": (
        "too close to the limit to decide, even with 10 million {of}",
        "离门限太近，即使有 1000 万个{of}也无法判定",
    ),
    "gate.more_may_decide": (
        "more rows may decide; how many is not known for {metric}",
        "增加样本或许能够判定；指标 {metric} 所需的数量无法估计",
    ),
    "gate.of_label": ("{metric} of {label}", "{label} 的 {metric}"),
    "gate.majority": (
        "a model that answers {answer} to every text has {value}",
        "对所有文本都回答 {answer} 的模型为 {value}",
    ),
    "gate.lost": (
        "{lost:#row} lost against {name}, {won} won",
        "与{name}相比，{lost} 个样本由对变错，{won} 个由错变对",
    ),
    "gate.lower": (
        "{lower} lower than with the float model, {higher} higher",
        "得分比浮点模型低的有 {lower} 个，高的有 {higher} 个",
    ),
    "gate.nothing": ("nothing", "空"),
    "gate.float_model": ("the float model", "浮点模型"),
    "gate.earlier_release": ("the earlier release", "之前的版本"),
    "gate.a_baseline": ("{name}", " {name} "),
    # What is counted: of samples that would decide.
    "unit.rows": ("rows", "样本"),
    "unit.answers": ("answers", "回答"),
    "unit.spans": ("spans", "实体"),
    "unit.of_label": ("{unit} of {label}", "属于 {label} 的{unit}"),
    # Of checks on classes.
    "gate.recall": ("{label}: {right} right of {n} in the golden rows", "{label}：随包样本中的 {n} 个答对 {right} 个"),
    "gate.precision": ("{label}: {right} right of {n:#answer}", "{label}：{n} 个回答中 {right} 个正确"),
    "gate.f1": (
        "{label}: {right} right of {n} in the golden rows or the answers",
        "{label}：样本与回答的并集中共 {n} 个，答对 {right} 个",
    ),
    "gate.worth": (
        "{detail}, worth {worth} since some share a text",
        "{detail}，因部分出自同一文本，相当于 {worth} 个",
    ),
    "gate.lowest": ("lowest of {n} classes: {detail}", "{n} 个类别中最低的 {detail}"),
    "gate.more_classes": ("and {more} more of {n} classes", "{n} 个类别中另有 {more} 个"),
    "gate.no_answer": ("no answer has this class", "没有回答属于该类别"),
    "gate.no_row": ("no golden row has this class", "随包样本中没有该类别"),
    "gate.high_end": ("the high end allows for {n} classes", "置信区间上界已按 {n} 个类别校正"),
    # Of checks on time.
    "gate.input_to_answer": ("from input to answer, batch 1", "从输入到得出结果，batch 为 1"),
    "gate.tokens": ("{low} to {high} tokens", "{low} 到 {high} 个词元"),
    "gate.a_text": ("a text", "文本"),
    "gate.no_such_texts": (
        "no golden row has {lengths}: give `data.test` such texts",
        "随包样本中没有{lengths}的文本：请在 `data.test` 中加入",
    ),
    "gate.unstable": (
        "unstable: the medians of two windows differ by {drift:.0%}, measured in {n:#process|processes}: "
        "measure on an idle machine",
        "测量不稳定：两个窗口的中位数相差 {drift:.0%}，已在 {n} 个进程中测量：请在空闲的机器上测量",
    ),
    "gate.disturbed": ("{by}: measure on an idle machine", "{by}：请在空闲的机器上测量"),
    "gate.in_interval": ("the limit lies within the interval", "门限落在置信区间内"),
    "gate.emulated": ("emulated ({why}): measure on the device itself", "运行于模拟环境（{why}）：请在设备本身上测量"),
    "gate.emulated_memory": ("emulated ({why})", "运行于模拟环境（{why}）"),
    "beside.unknown": (
        "this device does not report the CPU time of other programs",
        "该设备不提供其他程序占用的 CPU 时间",
    ),
    "beside.others": (
        "other programs used {used:.2f} of {cores:#core} meanwhile",
        "期间其他程序占用了 {cores} 个核中的 {used:.2f} 个",
    ),
    "beside.guests": (
        "{others}, of that {stolen:.2f} by other virtual machines of the host",
        "{others}，其中 {stolen:.2f} 个被宿主机上的其他虚拟机占用",
    ),
    "emulated.kernel": ("the kernel is {kernel}, the process {machine}", "内核为 {kernel}，进程为 {machine}"),
    "emulated.cpu": (
        "the CPU is described as {cpu}, the process is {machine}",
        "CPU 标识为 {cpu}，进程为 {machine}",
    ),
    "emulated.built": (
        "the kernel was built for x86-64, the process is {machine}",
        "内核为 x86-64 构建，进程为 {machine}",
    ),
    "turns.faster": ("not slower than the active {active}", "不慢于当前版本 {active}"),
    "turns.slower": ("slower than the active {active}", "慢于当前版本 {active}"),
    "turns.undecided": ("not decided beside the active {active} either", "与当前版本 {active} 对比也无法判定"),
    "turns.detail": (
        "{word}: {ratio:.2f} times its time ({low:.2f} to {high:.2f}), limit {limit:g}, in turns; in ms alone: {alone}",
        "{word}：轮流计时，耗时为其 {ratio:.2f} 倍（{low:.2f} 到 {high:.2f}），门限 {limit:g}；仅按毫秒：{alone}",
    ),
    "sustained.thirds": (
        "last third of {seconds:.0f} s without pauses against the first",
        "连续运行 {seconds:.0f} s，最后三分之一与最初三分之一相比",
    ),
    "sustained.none": ("no throttling was counted", "没有记录到降频"),
    "sustained.unknown": ("this device does not report throttling", "该设备不报告降频"),
    "throttle.events": ("{n:#throttling event}", "降频 {n} 次"),
    "throttle.cooling": (
        "cooling devices went from state {before} to {after}",
        "散热设备的状态由 {before} 变为 {after}",
    ),
    "throttle.firmware": (
        "the firmware reports undervoltage or heat ({bits})",
        "固件报告电压不足或过热（{bits}）",
    ),
    "throttle.capped": (
        "the clock was capped at {share:.0%} of the highest",
        "频率被限制在最高频率的 {share:.0%}",
    ),
    # Of checks on processes and files.
    "process.one_run": (
        "fresh process: load, then {ran}; one run, since the limit is more than {near:g} % away",
        "新进程：加载模型，再处理{ran}；只测一次，因为与门限相差超过 {near:g} %",
    ),
    "process.median": (
        "median of {n} fresh processes: load, then {ran}",
        "{n} 个新进程的中位数：加载模型，再处理{ran}",
    ),
    "process.texts": ("{n:#golden text}", " {n} 条随包文本"),
    "process.examples": ("{n:#example}", " {n} 个样例"),
    "process.both_sides": ("the runs lie on both sides of the limit", "各次结果分布在门限两侧"),
    "process.cold_start": ("median, process start to end", "从进程启动到结束的时间，取中位数"),
    "size.weights": ("the model's weights", "模型权重"),
    "size.bundle": ("the bundle file", "部署包文件"),
    "size.unknown": (
        "the size of {file} is not known here: run the gate on that file",
        "此处不知道{file}的大小：请对该文件运行 gate",
    ),
    "gate.no_rows_here": (
        "the labelled rows are not in the bundle; gate with --rows FILE",
        "部署包中没有带标签的样本；请用 --rows FILE 检查",
    ),
    "gate.no_gates": ("the recipe sets no gates", "配方没有设门限"),
    "gate.accuracy_not_gated": (
        "accuracy is not gated: the recipe sets no limit for it",
        "准确率没有门限：配方没有为它设限",
    ),
}
