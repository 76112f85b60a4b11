"""Which parts of which files are backwards, and which ops' gradient checks have to notice a mistake there.

A region is
  "record"         every lambda given to record() or record_many(); its op's name, where it is a literal, is
                   what is run, and of the file's patterns those that are no op's name
  "function NAME"  the bodies of all functions of that name, a regular expression
  "class NAME"     the bodies of all functions of that class
  "after TEXT"     the bodies of all functions from the line that holds TEXT to the end of the file
  "from TEXT"      from the line that holds TEXT to the end of its block
  "line TEXT"      the line that holds TEXT
A region that is not found is an error.
"""

UNARY = ("exp log sqrt square reciprocal neg tanh sigmoid softplus log_sigmoid silu gelu_erf gelu_tanh "
         "elu_plus_one").split()

GATED = "unified gla delta_rule gated_delta_rule kda gated_delta_product kda_product".split()
GATED_RECURRENT = [f"{op}.recurrent" for op in GATED]
GATED_CHUNKWISE = [f"{op}.chunkwise" for op in GATED]

WKV = ["wkv.recurrent", "wkv.chunkwise"]

FILES = {
    "autograd/ops_arithmetic.h": (["record", "function chain"], ["mul", "unselected"]),
    "autograd/ops_dropout.h": (["record"], ["dropout"]),
    "autograd/ops_loss.cc": (["record"], ["cross_entropy"]),
    "autograd/ops_matmul.cc": (["record"], ["matmul"]),
    "autograd/ops_norm.h": (["record", "function row_parameter_grad"], ["layer_norm", "rms_norm"]),
    "autograd/ops_reduce.h": (["record", "function spread"], ["sum", "mean", "max"]),
    "autograd/ops_shape.h": (["record"], ["slice"]),
    "autograd/ops_unary.h": (["record"], ["square", "elu_plus_one", "exp", "log", "unselected"]),
    "tensor/elementwise.cc": (["function reduce_to"], ["add", "mul"]),
    "tensor/index.cc": (["function scatter_add_rows"], ["gather_rows"]),
    "tensor/reduce.cc": (["function max_backward"], ["max"]),
    "tensor/kernels/gemm.cc": (["line if (e.gelu_grad_pre)", "function ColumnSumsT", "function column_sums"],
                               ["gelu_mlp", "linear"]),
    "tensor/kernels/math-inl.h": (
        ["function SigmoidGrad", "function TimesSigmoidGrad", "function SiluGrad", "function TanhGrad",
         "function EluPlusOneGrad"],
        ["sigmoid", "silu", "tanh", "tanh_far_out", "gelu_tanh", "elu_plus_one"]),
    "tensor/kernels/gelu-inl.h": (["function GeluErfGrad", "function GeluTanhGrad"], ["gelu_erf", "gelu_tanh"]),
    "tensor/kernels/norm-inl.h": (
        ["function AddParameterGrads", "function LayerNormBackwardRow", "function LayerNormBackward",
         "function RmsNormBackward"],
        ["layer_norm", "rms_norm", "norm_in_place"]),
    "tensor/kernels/softmax-inl.h": (["function SoftmaxBackward", "function LogSumExpBackward"],
                                     ["softmax", "cross_entropy", "log_sum_exp_rows"]),
    "tensor/kernels/unary-inl.h": (["function G", "function UnaryBackwardLoop", "function UnaryBackward"], UNARY),
    "tensor/kernels/norm.cc": ([r"function \w+Backward\w+", r"function \w+_backward"],
                               ["layer_norm", "rms_norm"]),
    "tensor/kernels/softmax.cc": ([r"function \w+Backward\w+", r"function \w+_backward"],
                                  ["softmax", "cross_entropy", "log_sum_exp_rows"]),
    "tensor/kernels/unary.cc": ([r"function \w+Backward\w+", r"function \w+_backward"], ["square", "elu_plus_one"]),
    "nn/decay_gate.cc": (["record"], ["decay_gate"]),
    "nn/embedding.cc": (["record"], ["embed"]),
    "nn/gelu_mlp.cc": (["record"], ["gelu_mlp"]),
    "nn/head_loss.cc": (["record", "from // (H4)"], ["head_loss"]),
    "nn/kernels/head_loss.cc": (["from // (H3) dl ="], ["head_loss"]),
    "nn/gates.cc": (["record"], ["swish_gate"]),
    "nn/kernels/l2_normalize.cc": ([r"function L2Backward\w+", "function l2_normalize_backward"], ["l2_normalize"]),
    "nn/kernels/rope.cc": ([r"function Rotate\w*Backward\w*", "function rope_rotate_back"], ["rope"]),
    "nn/kernels/short_convolution.cc": (
        [r"function Grad\w+", r"function \w+Backward\w+", r"function \w+_backward"], ["short_convolution"]),
    "nn/kernels/swish_gate.cc": ([r"function SwishBackward\w"], ["swish_gate"]),
    "nn/layers/parts.cc": (["record"], ["repeat_heads"]),
    "nn/linear.cc": (["record"], ["linear"]),
    "nn/normalize.cc": (["record"], ["l2_normalize"]),
    "nn/rope.cc": (["record"], ["rope"]),
    "nn/short_convolution.cc": (["function backward"], ["short_convolution"]),
    "nn/token_shift.cc": (["record"], ["token_shift"]),
    "nn/kernels/token_shift.cc": (["function BackwardT"], ["token_shift"]),
    "nn/products.h": (["function add_outer", "function add_column_sums"], ["linear", "gelu_mlp"]),
    "nn/mixers/linear_attention.cc": (["function backward"],
                                      ["linear_attention.recurrent", "linear_attention.chunkwise"]),
    "nn/mixers/linear_attention_parallel.cc": (["record"], ["linear_attention.parallel"]),
    "nn/mixers/gated_recurrence.cc": (["function backward"], GATED_RECURRENT + GATED_CHUNKWISE),
    "nn/mixers/wkv.cc": (["function backward"], WKV),
    "nn/mixers/kernels/wkv-inl.h": (
        ["line shares.read_rest", "line shares.write_rest", "function WkvStepBackward", "function StoreShares",
         "function LoadShares", "function StoreGradient", "function StartAdjoint", "function FinishAdjoint"], WKV),
    "nn/mixers/kernels/wkv_chunkwise-inl.h": (["function WkvChunkwiseBackward"], ["wkv.chunkwise"]),
    "nn/mixers/kernels/wkv_recurrent-inl.h": (["function WkvRecurrentBackward"], ["wkv.recurrent"]),
    "nn/mixers/parallel_ops.cc": (["record"], ["segment_products", "solve_unit_lower"]),
    "nn/mixers/kernels/gated_backward-inl.h": (["class GatedChunkwiseBackward"], GATED_CHUNKWISE),
    "nn/mixers/kernels/gated_gates-inl.h": (["function ScalarGatesBackward", "function VectorGatesBackward"],
                                            GATED_CHUNKWISE),
    "nn/mixers/kernels/gated_recurrent-inl.h": (["class GatedRecurrentBackward"], GATED_RECURRENT),
    "nn/mixers/softmax_attention.cc": (["function backward", "function zero_rows"],
                                       ["softmax_attention.recurrent", "softmax_attention.chunkwise",
                                        "forgetting_attention.recurrent", "forgetting_attention.chunkwise",
                                        "capped_attention.recurrent", "capped_attention.chunkwise"]),
    "nn/mixers/kernels/decay-inl.h": (["function FeatureGrad", "line s = s * gamma + p"],
                                      ["linear_attention.recurrent", "linear_attention.chunkwise"]),
    "nn/mixers/kernels/decay_backward-inl.h": (["class ChunkwiseBackward"], ["linear_attention.chunkwise"]),
    "nn/mixers/kernels/decay_recurrent-inl.h": (
        ["after struct TokenRows"],
        ["linear_attention.recurrent"]),
    "nn/mixers/kernels/softmax_attention-inl.h": (
        ["after struct BackwardScratch"], ["softmax_attention.chunkwise", "forgetting_attention.chunkwise", "capped_attention.chunkwise"]),
    "nn/mixers/kernels/softmax_forget-inl.h": (["function AddGateGrads", "function WriteGateGrads"],
                                               ["forgetting_attention.chunkwise"]),
    "nn/mixers/kernels/softmax_rows-inl.h": (["function WriteSums", "function RowsBackwardT"],
                                             ["softmax_attention.recurrent", "forgetting_attention.recurrent", "capped_attention.recurrent"]),
}

# Functions that look like a backward by their name: a file that holds one has to be above, or here.
BACKWARD = r"\w*(?:Backward|Grad)\w*|\w+_backward"
NOT_MUTATED = {
    "autograd/evaluate.h",  # of the checks themselves
    "autograd/tape.h",  # the tape
    "nn/mixers/faces.cc",  # of the checks themselves
    "nn/mixers/kernels/softmax_attention.cc",  # dispatch alone, by macros
}

# Statements that compute nothing: hints to the cache, declarations, and checks that other tests see to.
SKIP = ("Prefetch", "hwy::Prefetch(", "fail(", "check_ids(", "static_cast<void>(", "static_assert", "using ",
        "constexpr ", "static ", "alignas(")
