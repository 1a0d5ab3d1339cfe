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
        "对所有文本都预测为 {answer} 的模型为 {value}",
    ),
    "gate.lost": (
        "{lost:#row} lost against {name}, {won} won",
        "与{name}相比，{lost} 个样本由对变错，{won} 个由错变对",
    ),
    "gate.farther": (
        "{lost:#row} farther from the truth than with {name}, {won} nearer",
        "与{name}相比，{lost} 个样本的误差变大，{won} 个变小",
    ),
    "gate.points_of_error": (
        "100 points are {value}, the error of the best constant answer",
        "100 个百分点即 {value}，是最佳固定答案的误差",
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
    "unit.answers": ("answers", "预测"),
    "unit.spans": ("spans", "实体"),
    "unit.of_label": ("{unit} of {label}", "属于 {label} 的{unit}"),
    # Of checks on classes.
    "gate.recall": ("{label}: {right} right of {n} in the golden rows", "{label}：随包样本中的 {n} 个答对 {right} 个"),
    "gate.precision": ("{label}: {right} right of {n:#answer}", "{label}：{n} 个预测中 {right} 个正确"),
    "gate.f1": (
        "{label}: {right} right of {n} in the golden rows or the answers",
        "{label}：样本与预测的并集中共 {n} 个，预测正确 {right} 个",
    ),
    "gate.worth": (
        "{detail}, worth {worth} since some share a text",
        "{detail}，因部分出自同一文本，相当于 {worth} 个",
    ),
    "gate.lowest": ("lowest of {n} classes: {detail}", "{n} 个类别中最低的是 {detail}"),
    "gate.more_classes": ("and {more} more of {n} classes", "{n} 个类别中另有 {more} 个"),
    "gate.no_answer": ("no answer has this class", "没有预测属于该类别"),
    "gate.no_row": ("no golden row has this class", "随包样本中没有该类别"),
    "gate.high_end": ("the high end allows for {n} classes", "置信区间上界已按 {n} 个类别校正"),
    # Of checks on time.
    "gate.input_to_answer": ("from input to answer, batch 1", "从输入到得出结果，每次 1 条"),
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
    "turns.undecided": ("not decided beside the active {active} either", "与当前版本 {active} 对比后仍无法判定"),
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
    "gate.missed": ("{gate}: {value}, limit {limit}; {why}", "{gate}：{value}，门限 {limit}；{why}"),
    "gate.answered_alone": (
        "the linear model answered {share:.0%} of the rows alone",
        "线性模型单独预测了 {share:.0%} 的样本",
    ),
    "gate.lowest_f1": ("lowest F1 of {n:#class|classes}: {each:, }", "{n} 个类别中 F1 最低的：{each:，}"),
    "gate.latency": (
        "latency p50 {p50_ms:.3f} ms (tokenize {tokenize_p50_ms:.3f}, run {run_p50_ms:.3f}, post {post_p50_ms:.3f}), "
        "p95 {p95_ms:.3f} ms, mean {mean_ms:.3f} ms, n = {n}, threads = {threads}",
        "延迟 p50 {p50_ms:.3f} ms（分词 {tokenize_p50_ms:.3f}，推理 {run_p50_ms:.3f}，后处理 {post_p50_ms:.3f}），"
        "p95 {p95_ms:.3f} ms，平均 {mean_ms:.3f} ms，n = {n}，线程 = {threads}",
    ),
    "gate.measured_at": ("measured at {moment} by this device's clock", "测量时间：{moment}（设备时钟）"),
    "gate.verdict": ("verdict: {verdict}", "结论：{verdict}"),
    "verdict.pass": ("pass", "通过"),
    "verdict.fail": ("fail", "未通过"),
    "verdict.inconclusive": ("inconclusive", "无法判定"),
    "span.to": ("{low} to {high}", "{low} 到 {high}"),
    "span.points": ("{value} points", "{value} 个百分点"),
    "span.bound": ("{sign} {figure}", "{sign} {figure}"),
    "table.gate": ("gate", "检查项"),
    "table.measured": ("measured", "实测值"),
    "table.interval": ("interval", "置信区间"),
    "table.limit": ("limit", "门限"),
    "table.n": ("n", "n"),
    "table.verdict": ("verdict", "结论"),
    "list.or": ("{parts:; or }", "{parts:；或}"),
    "list.indented": ("  {part}", "  {part}"),
    # What every command prints.
    "say.error": ("error: ", "错误："),
    "say.why": ("why: ", "原因："),
    "say.fix": ("fix: ", "解决办法："),
    "say.not_measured": ("{gate}: not measured: {why}", "{gate}：未测量：{why}"),
    "error.no_verb": ("no verb was given", "没有给出子命令"),
    "error.unknown_verb": ("there is no verb `{verb}`", "没有子命令 `{verb}`"),
    "error.unrecognized": ("unrecognized arguments: {words}", "无法识别的参数：{words}"),
    "error.did_you_mean": ("did you mean {word}?", "是不是想写 {word}？"),
    "error.no_file": ("there is no file {path}", "文件 {path} 不存在"),
    "error.stdin": ("standard input", "标准输入"),
    "error.no_text": ("{name} holds no text", "{name}中没有文本"),
    "error.columns": ("{name} has more than one column `{column}`", "{name} 中有多个列 `{column}`"),
    "error.no_column": ("{name} has no column `{column}`", "{name} 中没有列 `{column}`"),
    "error.columns_are": (
        "the first line of a table names its columns; here it names {names}",
        "表格第一行是列名，此处为 {names}",
    ),
    "error.no_serve": ("this bundle was built without `serve: true`", "该部署包构建时没有 `serve: true`"),
    "error.add_serve": ("add `serve: true` to its recipe and build it again", "在配方中写 `serve: true`，重新构建"),
    "rollback.nothing": ("there is no previous release to roll back to", "没有可回滚的上一版本"),
    "error.one_of": ("one of: {names:, }", "可用的有：{names:、}"),
    "error.damaged": ("{name} is damaged: {region}", "{name} 已损坏：{region}"),
    "error.member": ("member {path}", "其中的文件 {path}"),
    "error.member_header": ("header of member {path}", "其中的文件 {path} 的头部"),
    "error.copy_or_verify": (
        "copy the bundle again from where you got it; if that does not help, run `verify` there",
        "从来源处重新复制该文件；若仍然如此，请在来源处运行 `verify`",
    ),
    "error.cut_short": (
        "it is missing: the file is cut short, or not a bundle",
        "缺失：文件不完整，或不是部署包",
    ),
    "error.short_file": (
        "it has {size} bytes: it is cut short, or not a bundle",
        "只有 {size} 字节：文件不完整，或不是部署包",
    ),
    "error.checksum": (
        "its content does not match its size and checksum",
        "内容与记录的大小和校验值不符",
    ),
    "error.no_bundle": ("there is no bundle file {path}", "部署包文件 {path} 不存在"),
    "error.release_damaged": (
        "the release {folder} is damaged: {path}: {why}",
        "版本目录 {folder} 已损坏：{path}：{why}",
    ),
    "error.install_again": (
        "install it again from its file: sh FILE install --prefix {root}",
        "用部署包文件重新安装：sh FILE install --prefix {root}",
    ),
    "error.unsigned": (
        "{name} is not signed, and this device accepts only signed bundles",
        "{name} 没有签名，而该设备只接受已签名的部署包",
    ),
    "error.trusted": ("trusted: {keys}", "受信任的密钥：{keys}"),
    "error.sign": (
        "use the signed bundle; its builder signs it with `edgepack sign`",
        "使用已签名的部署包；构建者可用 `edgepack sign` 签名",
    ),
    "error.untrusted": (
        "{name} is signed by a key that this device does not trust",
        "{name} 的签名密钥不受该设备信任",
    ),
    "error.other_key": ("it is {key}; trusted: {keys}", "该密钥为 {key}；受信任的密钥：{keys}"),
    "error.use_trusted": (
        "use a bundle signed by a trusted key; trust another key only if its owner confirmed the fingerprint",
        "使用由受信任的密钥签名的部署包；只有密钥所有者确认过指纹，才可信任其他密钥",
    ),
    "error.device": ("this device cannot run the bundle: {checks:; }", "该设备无法运行此部署包：{checks:；}"),
    "error.made_for": (
        "its libraries are made for Linux {machines: or } (target {target})",
        "其中的动态库用于 Linux {machines: 或 }（目标 {target}）",
    ),
    "error.build_for": ("build the bundle for a {system} target", "为 {system} 的目标重新构建部署包"),
    "error.this_is": ("this is {system}", "该设备是 {system}"),
    "error.needs_glibc": (
        "the bundle's libraries need glibc {version} or newer",
        "部署包中的动态库需要 glibc {version} 或更新的版本",
    ),
    "error.bundled": (
        "build it with `interpreter: bundled`, which brings its own C library",
        "构建时设 `interpreter: bundled`，自带 C 库",
    ),
    "error.libc": ("the C library is {what}", "C 库为 {what}"),
    "error.unpacked_beside": (
        "the new release is unpacked beside the active one",
        "新版本会解压在当前版本旁边",
    ),
    "error.free_space": ("free some space there", "请清理出一些空间"),
    "error.space": (
        "{free} MiB free at {place}; {needed} MiB needed",
        "{place} 剩余 {free} MiB，需要 {needed} MiB",
    ),
    # Of the verbs.
    "doctor.can": ("this device can run {name} {version}", "该设备可以运行 {name} {version}"),
    "doctor.cannot": ("this device cannot run {name} {version}", "该设备无法运行 {name} {version}"),
    "verify.intact": ("ok: {name} {release}: {n} files, all intact", "校验通过：{name} {release}：{n} 个文件全部完好"),
    "verify.signed": ("signed by {by}, {key}", "签名者 {by}，{key}"),
    "install.installed": ("installed: {release} is active", "安装完成：当前版本为 {release}"),
    "install.repaired": (
        "repaired: {release} is active; damaged files were replaced",
        "已修复：当前版本为 {release}；损坏的文件已替换",
    ),
    "install.already": (
        "already installed: {release} is active and is intact",
        "已经安装：当前版本为 {release}，文件完好",
    ),
    "install.in_doubt": (
        "its gate is INCONCLUSIVE; not shown on this device:",
        "门禁无法判定；在该设备上未能证明：",
    ),
    "install.next": ("next: {command} predict {what}", "下一步：{command} predict {what}"),
    "install.unit": (
        "systemd unit: {unit}; to start it now and at boot:",
        "systemd 单元：{unit}；立即启动并设为开机启动：",
    ),
    "install.this_machine_only": (
        "it answers this machine only; how others may ask: see `For other machines` in the unit",
        "只接受本机的请求；如需接受其他机器的请求，见该单元中的 `For other machines`",
    ),
    "install.server_goes_on": (
        "note: `serve`, process {process}, goes on with {release} until it is started again",
        "注意：`serve`（进程 {process}）在重启之前仍使用 {release}",
    ),
    "install.no_release": ("no release", "（无）"),
    "install.stays": ("{release} stays active", "当前版本仍为 {release}"),
    "install.change_limit": (
        "change the limit and build the bundle again, which takes seconds: "
        "edgepack build RECIPE --set gates.{gate}=...",
        "修改门限并重新构建部署包（只需几秒）：edgepack build RECIPE --set gates.{gate}=...",
    ),
    "install.gate_failed": ("{name} failed its gate on this device", "{name} 在该设备上未通过门禁"),
    "install.gate_inconclusive": (
        "the gate of {name} was inconclusive on this device",
        "{name} 在该设备上的门禁无法判定",
    ),
    "install.send_receipt": ("send the receipt to the builder of the bundle", "将回执发给部署包的构建者"),
    "install.better_model": (
        "send the receipt to the builder of the bundle: more test rows, or a better model, are needed",
        "将回执发给部署包的构建者：需要更多 test 样本，或更好的模型",
    ),
    "install.accept": (
        "take it as it is: --accept-inconclusive, which the receipt names",
        "照原样接受：--accept-inconclusive（会记入回执）",
    ),
    "install.omit_strict": ("omit --strict", "去掉 --strict"),
    "install.wait_longer": (
        "wait longer for other programs to end: --wait {seconds}",
        "延长等待其他程序结束的时间：--wait {seconds}",
    ),
    "trust.unsigned": ("not signed", "没有签名"),
    "trust.by_its_own_account": ("signed by {key} by its own account", "自称由 {key} 签名"),
    "trust.not_verified": (
        "origin not verified: {made_by}, and no key is trusted here (`trust add KEY.pub` adds one; with --prefix DIR "
        "for the install in DIR, and `verify --prefix DIR` asks it)",
        "来源未验证：{made_by}，且此处没有受信任的密钥（`trust add KEY.pub` 可添加；对 DIR 中的安装请加 --prefix DIR，"
        "并用 `verify --prefix DIR` 校验）",
    ),
    "rollback.done": (
        "rolled back: {release} is active; {previous} is kept",
        "已回滚：当前版本为 {release}；{previous} 保留",
    ),
    "uninstall.done": ("uninstalled: {name}", "已卸载：{name}"),
    "uninstall.kept": (
        "receipts and trusted keys stay in {folder} (--purge removes them)",
        "回执和受信任的密钥保留在 {folder} 中（--purge 可删除）",
    ),
    "status.active": ("{name} {release} is active in {prefix}", "{name} {release} 是 {prefix} 中的当前版本"),
    "status.nothing": ("nothing is installed in {prefix}", "{prefix} 中没有安装任何版本"),
    "status.previous": (
        "  previous {release}: `rollback` returns to it",
        "  前一版本 {release}：用 `rollback` 可回滚到它",
    ),
    "status.serves": ("  serves   {release}, process {process}", "  服务中   {release}，进程 {process}"),
    "status.tuned": ("  tuned    {tuning}", "  已调优   {tuning}"),
    "status.trusts": ("  trusts   {key} ({by}, {source})", "  受信任   {key}（{by}，{source}）"),
    "status.revoked": ("  revoked  {key} ({by}, {source})", "  已吊销   {key}（{by}，{source}）"),
    "status.signed": ("  signed   {signed}", "  签名     {signed}"),
    "status.signed_by": ("by {key}, {why}", "{key}，{why}"),
    "status.not_signed": ("no", "无"),
    "status.not_accepted": ("not accepted, see below", "未被接受，见下"),
    "status.not_verified": ("not verified: no key is trusted", "未验证：没有受信任的密钥"),
    "status.by_clock": ("{moment} by this device's clock", "设备时钟 {moment}"),
    "status.last": ("  {verb:<8} {verdict} ({release})", "  {verb:<8} {verdict}（{release}）"),
    "status.below": ("           | {line}", "           | {line}"),
    "status.note": ("  note     {note}", "  注意     {note}"),
}
