"""Operators that graphs may have: those that compute, and none that reads or writes files or calls other code.

A graph is looked at before a library opens it, in all its parts: branches and bodies of loops, functions, blocks. The
file is walked as it is encoded; nothing of it is run, and it takes little memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import onnx.defs

from edgepack.errors import StageFailedError
from edgepack.util import confined_files
from edgepack_runtime.bundle import onnx_file
from edgepack_runtime.bundle.onnx_file import DOMAIN, FUNCTION_DOMAIN, KEY, LEAF, NAME, OP_TYPE, VALUE
from edgepack_runtime.util.fs import read_regular

_MOST_JSON_BYTES: Final = 256 * 2**20  # the graph of Paddle 3 without its weights: some MB
_STANDARD: Final = ("", "ai.onnx", "ai.onnx.ml")
_MICROSOFT_DOMAIN: Final = "com.microsoft"
# Of ONNX Runtime's own operators those that its optimizer, its quantizer and exporters write. Others call Python
# (PythonOp, ATen) or read files (EPContext).
_MICROSOFT: Final = """
    Attention BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DecoderMaskedMultiHeadAttention
    DecoderMaskedSelfAttention DequantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul
    EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul FusedMatMulActivation GatherBlockQuantized
    GatherND Gelu GemmaRotaryEmbedding GroupNorm GroupQueryAttention Inverse LayerNormalization MatMulBnb4
    MatMulInteger16 MatMulIntegerToFloat MatMulNBits MultiHeadAttention NGramRepeatBlock NhwcConv NhwcFusedConv
    NhwcMaxPool PackedAttention PackedMultiHeadAttention Pad QAttention QEmbedLayerNormalization QGemm
    QLinearAdd QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul
    QLinearReduceMean QLinearSigmoid QLinearSoftmax QLinearWhere QMoE QOrderedAttention QOrderedGelu
    QOrderedLayerNormalization QOrderedMatMul QuantizeLinear QuickGelu RelativePositionBias RemovePadding
    RestorePadding RotaryEmbedding SimplifiedLayerNormalization SkipGroupNorm SkipLayerNormalization
    SkipSimplifiedLayerNormalization SparseAttention TransposeMatMul Trilu UnfoldTensor Unique
"""
# What paddle2onnx 1.3 and 2.1 convert, by the names of Paddle 2 and 3. Without `print`.
_CONVERTED: Final = """
    abs acos affine_channel arg_max arg_min argsort array_length array_read array_to_tensor array_write asin
    assign assign_out assign_value atan atan2 batch_norm bicubic_interp bicubic_interp_v2 bilinear_interp
    bilinear_interp_v2 bitwise_and bitwise_not bitwise_or bitwise_xor bmm brelu cast ceil clip concat conv2d
    conv2d_transpose conv3d conv3d_transpose cos cosh create_array cross_entropy_with_softmax cumsum data_norm
    deformable_conv depthwise_conv2d depthwise_conv2d_transpose dequantize_linear dist dot dropout einsum
    elementwise_add elementwise_div elementwise_floordiv elementwise_max elementwise_min elementwise_mod
    elementwise_mul elementwise_pow elementwise_sub elu embedding empty equal erf exp expand expand_as
    expand_as_v2 expand_v2 eye fft_r2c fill_any_like fill_constant fill_constant_batch_size_like fill_zeros_like
    flatten2 flatten_contiguous_range flip floor full full_int_array full_like full_with_tensor gather gather_nd
    gaussian gaussian_random gelu greater_equal greater_than grid_sampler group_norm hard_shrink hard_sigmoid
    hard_swish hardshrink hardtanh index_put index_sample index_select instance_norm isfinite isinf isnan
    layer_norm leaky_relu less_equal less_than linear_interp linear_interp_v2 linspace log log10 log1p log2
    log_softmax logical_and logical_not logical_or logical_xor logsigmoid logsumexp lookup_table lookup_table_v2
    masked_select matmul matmul_v2 max_pool2d_with_index max_pool3d_with_index mean meshgrid mish mul
    multiclass_nms3 multinomial mv nearest_interp nearest_interp_v2 norm not_equal one_hot one_hot_v2 p_norm pad
    pad3d partial_concat partial_sum pixel_shuffle pool2d pool3d pow prelu put_along_axis quantize_linear range
    reciprocal reduce_all reduce_any reduce_max reduce_mean reduce_min reduce_prod reduce_sum relu relu6
    repeat_interleave reshape reshape2 rnn roi_align roll round rsqrt scale scatter scatter_nd_add select_input
    selu set_value set_value_with_tensor shape shape64 share_data sigmoid sign silu sin sinh size slice softmax
    softmax_with_cross_entropy softplus softshrink softsign split split_with_num sqrt square squeeze squeeze2
    stack strided_slice sum swish take_along_axis tan tanh tanh_shrink temporal_shift thresholded_relu tile
    top_k top_k_v2 transpose transpose2 tril tril_triu trilinear_interp trilinear_interp_v2 triu unbind unfold
    uniform unique unsqueeze2 unstack where where_index yolo_box
"""
# The names that Paddle 3 has for them in its own graphs, and their relatives.
_PADDLE_3: Final = """
    add add_n add_n_array all any arange argmax argmin assign_array broadcast_tensors conv2d_transpose_bias
    cumprod divide flatten floor_divide fmax fmin frobenius_norm full_batch_size_like fused_linear
    fused_softmax_mask fused_softmax_mask_upper_triangle grid_sample hardsigmoid hardswish heaviside increment
    index_add kthvalue linear_v2 logcumsumexp matmul_with_flatten max maximum median memcpy_d2h memcpy_h2d min
    minimum mode multiply nonzero numel prod remainder rint rms_norm slice_array slice_array_dense subtract
    sync_batch_norm topk tril_indices triu_indices trunc unsqueeze
"""
# Control flow and detection of Paddle 2, and what PaddleSlim writes.
_PADDLE_2: Final = """
    anchor_generator beam_search beam_search_decode box_coder collect_fpn_proposals conditional_block cos_sim
    crf_decoding crop_tensor ctc_align density_prior_box distribute_fpn_proposals
    fake_channel_wise_dequantize_max_abs fake_channel_wise_quantize_abs_max
    fake_channel_wise_quantize_dequantize_abs_max fake_dequantize_max_abs fake_quantize_abs_max
    fake_quantize_dequantize_abs_max fake_quantize_dequantize_moving_average_abs_max
    fake_quantize_moving_average_abs_max fake_quantize_range_abs_max feed fetch fill_zeros_like2
    generate_proposals_v2 gru im2sequence isfinite_v2 isinf_v2 isnan_v2 lod_array_length lrn lstm matrix_nms
    maxout moving_average_abs_max_scale multiclass_nms multiclass_nms2 pad2d prior_box read_from_array
    select_output sequence_pool uniform_random while write_to_array
"""
_PDMODEL: Final = frozenset(f"{_CONVERTED} {_PADDLE_3} {_PADDLE_2}".split())
# Dialects by their number, as Paddle 3 shortens them, and their operators.
_PIR: Final = {
    "builtin": frozenset(["combine", "constant", "parameter", "shadow_output", "slice", "split"]),
    "pd_op": frozenset(f"{_CONVERTED} {_PADDLE_3} data feed fetch if while select_input".split()),
    "cf": frozenset(["has_elements", "stack_create", "tuple_pop", "tuple_push", "yield"]),
}
_DIALECTS: Final = {"0": "builtin", "1": "pd_op", "2": "cf"}
_PROGRAM: Final = {  # framework.proto of Paddle 2: blocks lie beside each other, and refer to each other by number
    "program": {1: "block"},
    "block": {4: "operator"},
    "operator": {3: LEAF},
}
_FORBIDDEN: Final = "operators that read or write files or call other code are refused, and so is what is not known"


def require_known(graph: Path) -> None:
    """Check a graph: an `.onnx` file, or a `.pdmodel` or `.json` of Paddle.

    Raises:
        StageFailedError: it has an operator that is not allowed, or it is not such a file.
    """
    look = {".pdmodel": _of_pdmodel, ".json": _of_pir}.get(graph.suffix, _of_onnx)
    try:
        unknown = sorted({name for name, allowed in look(graph) if not allowed})
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise _invalid(graph, str(error) or type(error).__name__) from error
    if unknown:
        names = ", ".join(name[:80] for name in unknown[:5])
        raise StageFailedError(
            f"graphs: {graph.name} has operators that are not allowed: {names}",
            why=_FORBIDDEN,
            fix="export the model without them; if it is not your own, ask its author what they are for",
        )


def outside_files(graph: Path) -> tuple[Path, ...]:
    """The files beside an ONNX file that hold weights of it, sorted.

    Raises:
        StageFailedError: it is not an ONNX file, or names a file that is not below its folder, or is not regular.
    """
    try:
        names = {
            _text(value)
            for kind, leaves in onnx_file.messages_of(graph, onnx_file.ONNX, "model")
            if kind == "entry" and b"location" in leaves.get(KEY, ())
            for value in leaves.get(VALUE, ())
        }
        return tuple(confined_files.below(graph.parent, name) for name in sorted(names))
    except (OSError, ValueError) as error:
        raise _invalid(graph, str(error)) from error


def _invalid(graph: Path, why: str) -> StageFailedError:
    kind = "ONNX model" if graph.suffix == ".onnx" else "Paddle graph"
    what = f"graphs: {graph.name} is not a valid {kind}"
    return StageFailedError(what, why=why[:500], fix="export the model again")


def _of_onnx(graph: Path) -> Iterator[tuple[str, bool]]:
    """Every operator of a model, and whether it is allowed. The model's own functions are: their bodies are walked."""
    functions, used = set(), set()
    for kind, leaves in onnx_file.messages_of(graph, onnx_file.ONNX, "model"):
        if kind == "node":
            domain = _names(leaves, DOMAIN)[-1]
            used |= {(domain, name) for name in _names(leaves, OP_TYPE)}
        elif kind == "function":
            domain = _names(leaves, FUNCTION_DOMAIN)[-1]
            if domain not in _STANDARD and not domain.startswith(_MICROSOFT_DOMAIN):  # a library has its own of these
                functions.add((domain, _names(leaves, NAME)[-1]))  # the last one counts, as for libraries
    for domain, name in used:
        standard = domain in _STANDARD and onnx.defs.has(name, "" if domain == "ai.onnx" else domain)
        allowed = (
            standard or (domain == _MICROSOFT_DOMAIN and name in _MICROSOFT.split()) or (domain, name) in functions
        )
        yield f"{domain}.{name}".lstrip("."), allowed


def _names(leaves: onnx_file.Leaves, field: int) -> list[str]:
    """The values of a text, "" without any. Libraries skip a number in its place, and we would not.

    Raises:
        ValueError: one is a number.
    """
    values = leaves.get(field, [b""])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError("the name of an operator is a number")
    return [_text(value) for value in values]


def _of_pdmodel(graph: Path) -> Iterator[tuple[str, bool]]:
    found = [leaves for kind, leaves in onnx_file.messages_of(graph, _PROGRAM, "program") if kind == "operator"]
    if not found:
        raise ValueError("it has no operators")
    for leaves in found:
        for name in _names(leaves, 3):
            yield name, name.rstrip("_") in _PDMODEL


def _of_pir(graph: Path) -> Iterator[tuple[str, bool]]:
    """Every operator of a program of Paddle 3: wherever there are `ops`, for regions lie in operators."""
    pending: list[Any] = [json.loads(read_regular(graph, _MOST_JSON_BYTES), object_pairs_hook=_unique)]
    found = False
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for operator in _list(value.get("ops", [])):
                found = True
                yield _pir_name(operator)
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    if not found:
        raise ValueError("it has no operators")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("`ops` is not a list")
    return value


def _pir_name(operator: Any) -> tuple[str, bool]:
    code = operator.get("#") if isinstance(operator, dict) else None
    if code == "p":
        return "builtin.parameter", True
    dialect, _, name = str(code).partition(".")
    dialect = _DIALECTS.get(dialect, dialect)
    return f"{dialect}.{name}", name.rstrip("_") in _PIR.get(dialect, ())


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no key is repeated: readers differ in which of them counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _text(value: int | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
