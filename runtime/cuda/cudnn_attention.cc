#include "runtime/cuda/cudnn_attention.h"

#include <limits>
#include <utility>

namespace windtunnel::cuda {
namespace {

// Shapes of [batch, heads, seq, head_dim] and similar tensors in the graph.
class Shapes {
 public:
  explicit Shapes(const AttentionProblem& problem) : p_(problem) {}

  GraphShape Queries() const { return Rows(p_.heads, PackedRow()); }
  GraphShape Keys() const { return Rows(p_.kv_heads, PackedRow()); }
  // For a second factor that is multiplied transposed: rows become columns.
  GraphShape Transposed(const GraphShape& shape) const {
    GraphShape result = shape;
    std::swap(result.dims[2], result.dims[3]);
    std::swap(result.strides[2], result.strides[3]);
    return result;
  }
  GraphShape Out() const { return Rows(p_.heads, p_.heads * p_.head_dim); }
  GraphShape Scores() const { return Packed({p_.batch, p_.heads, p_.seq, p_.seq}); }
  GraphShape Statistics() const { return Packed({p_.batch, p_.heads, p_.seq, 1}); }
  GraphShape OfAllHeads() const { return Packed({p_.batch, p_.heads, p_.seq, p_.head_dim}); }

 private:
  int64_t PackedRow() const { return (p_.heads + 2 * p_.kv_heads) * p_.head_dim; }
  GraphShape Rows(int64_t heads, int64_t row) const {
    return {{p_.batch, heads, p_.seq, p_.head_dim}, {p_.seq * row, p_.head_dim, row, 1}};
  }
  static GraphShape Packed(std::array<int64_t, 4> dims) {
    return {dims, {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1}};
  }

  const AttentionProblem& p_;
};

cudnnDataType_t TypeOf(DType dtype) {
  return dtype == DType::kFloat16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

// The scores that a query may see; `hidden` elsewhere.
GraphTensor Mask(GraphBuilder& graph, const GraphShape& shape, GraphTensor scores, GraphTensor hidden) {
  const GraphTensor row = graph.Virtual(shape, CUDNN_DATA_INT32),
                    column = graph.Virtual(shape, CUDNN_DATA_INT32);
  graph.Index(2, scores, row);
  graph.Index(3, scores, column);
  const GraphTensor visible = graph.Virtual(shape, CUDNN_DATA_BOOLEAN), masked = graph.Virtual(shape);
  graph.Apply(CUDNN_POINTWISE_CMP_GE, row, column, visible);
  graph.Select(visible, scores, hidden, masked);
  return masked;
}

// Softmax. The row's maximum is subtracted before the exponential and added back in the log-sum-exp.
GraphTensor Softmax(GraphBuilder& graph, const Shapes& shapes, GraphTensor scores, GraphTensor log_sum_exp,
                    cudnnDataType_t type) {
  const GraphTensor most = graph.Virtual(shapes.Statistics()), less = graph.Virtual(shapes.Scores()),
                    exponential = graph.Virtual(shapes.Scores()), sum = graph.Virtual(shapes.Statistics()),
                    logarithm = graph.Virtual(shapes.Statistics()),
                    probabilities = graph.Virtual(shapes.Scores(), type);
  graph.Reduce(CUDNN_REDUCE_TENSOR_MAX, scores, most);
  graph.Apply(CUDNN_POINTWISE_SUB, scores, most, less);
  graph.Apply(CUDNN_POINTWISE_EXP, less, exponential);
  graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  graph.Apply(CUDNN_POINTWISE_LOG, sum, logarithm);
  graph.Apply(CUDNN_POINTWISE_ADD, most, logarithm, log_sum_exp);
  graph.Apply(CUDNN_POINTWISE_DIV, exponential, sum, probabilities);
  return probabilities;
}

// result = transposed probabilities times gradients, for keys and values; summed over the query heads that
// share them.
void MultiplyTransposed(GraphBuilder& graph, const AttentionProblem& problem, const Shapes& shapes,
                        GraphTensor probabilities, GraphTensor gradients, GraphTensor result) {
  const cudnnDataType_t type = TypeOf(problem.dtype);
  const GraphTensor turned = graph.Virtual(shapes.Transposed(shapes.Scores()), type);
  graph.Reshape(probabilities, turned);
  if (problem.heads == problem.kv_heads) return graph.Multiply(turned, gradients, result);
  const GraphTensor of_all_heads = graph.Virtual(shapes.OfAllHeads(), type);
  graph.Multiply(turned, gradients, of_all_heads);
  graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, of_all_heads, result);
}

// products = the dot products of the rows of out and dout.
void MultiplyRows(GraphBuilder& graph, const Shapes& shapes, GraphTensor out, GraphTensor dout,
                  GraphTensor one, GraphTensor products) {
  const GraphTensor by_element = graph.Virtual(shapes.OfAllHeads()),
                    by_row = graph.Virtual(shapes.Statistics());
  graph.Apply(CUDNN_POINTWISE_MUL, dout, out, by_element);
  graph.Reduce(CUDNN_REDUCE_TENSOR_ADD, by_element, by_row);
  graph.Apply(CUDNN_POINTWISE_MUL, by_row, one, products);
}

GraphTensor ScaledScores(GraphBuilder& graph, const Shapes& shapes, GraphTensor queries, GraphTensor keys,
                         GraphTensor scale) {
  const GraphTensor scores = graph.Virtual(shapes.Scores()), scaled = graph.Virtual(shapes.Scores());
  graph.Multiply(queries, keys, scores);
  graph.Apply(CUDNN_POINTWISE_MUL, scores, scale, scaled);
  return scaled;
}

// Recomputes the probabilities from the rows' log-sum-exp.
GraphTensor Probabilities(GraphBuilder& graph, const Shapes& shapes, bool causal, GraphTensor scaled,
                          GraphTensor log_sum_exp, GraphTensor hidden) {
  const GraphTensor less = graph.Virtual(shapes.Scores());
  graph.Apply(CUDNN_POINTWISE_SUB, scaled, log_sum_exp, less);
  const GraphTensor seen = causal ? Mask(graph, shapes.Scores(), less, hidden) : less;
  const GraphTensor probabilities = graph.Virtual(shapes.Scores());
  graph.Apply(CUDNN_POINTWISE_EXP, seen, probabilities);
  return probabilities;
}

// Gradients of the scores before scaling.
GraphTensor ScoreGradients(GraphBuilder& graph, const Shapes& shapes, GraphTensor dprobabilities,
                           GraphTensor products, GraphTensor probabilities, GraphTensor scale) {
  const GraphTensor centred = graph.Virtual(shapes.Scores()), dscaled = graph.Virtual(shapes.Scores()),
                    dscores = graph.Virtual(shapes.Scores());
  graph.Apply(CUDNN_POINTWISE_SUB, dprobabilities, products, centred);
  graph.Apply(CUDNN_POINTWISE_MUL, centred, probabilities, dscaled);
  graph.Apply(CUDNN_POINTWISE_MUL, dscaled, scale, dscores);
  return dscores;
}

}  // namespace

float HiddenScore(const CudnnApi& api) {
  using Limits = std::numeric_limits<float>;
  return api.version() >= 91000 ? -Limits::infinity() : Limits::lowest();
}

Result<AttentionForwardPlan> PlanAttentionForward(const CudnnApi& api, const AttentionProblem& problem,
                                                  const GraphTarget& target) {
  const Shapes shapes(problem);
  const cudnnDataType_t type = TypeOf(problem.dtype);
  GraphBuilder graph(api);
  const AttentionForwardTensors t{.queries = graph.Tensor(type, shapes.Queries()),
                                  .keys = graph.Tensor(type, shapes.Transposed(shapes.Keys())),
                                  .values = graph.Tensor(type, shapes.Keys()),
                                  .scale = graph.Value(),
                                  .hidden = graph.Value(),
                                  .out = graph.Tensor(type, shapes.Out()),
                                  .log_sum_exp = graph.Tensor(CUDNN_DATA_FLOAT, shapes.Statistics())};
  const GraphTensor scaled = ScaledScores(graph, shapes, t.queries, t.keys, t.scale);
  const GraphTensor seen = problem.causal ? Mask(graph, shapes.Scores(), scaled, t.hidden) : scaled;
  const GraphTensor probabilities = Softmax(graph, shapes, seen, t.log_sum_exp, type);
  graph.Multiply(probabilities, t.values, t.out);
  WT_ASSIGN_OR_RETURN(GraphPlan plan, graph.Plan(target));
  return AttentionForwardPlan{std::move(plan), t};
}

Result<AttentionBackwardPlan> PlanAttentionBackward(const CudnnApi& api, const AttentionProblem& problem,
                                                    const GraphTarget& target) {
  const Shapes shapes(problem);
  const cudnnDataType_t type = TypeOf(problem.dtype);
  GraphBuilder graph(api);
  const AttentionBackwardTensors t{.queries = graph.Tensor(type, shapes.Queries()),
                                   .keys = graph.Tensor(type, shapes.Transposed(shapes.Keys())),
                                   .values = graph.Tensor(type, shapes.Transposed(shapes.Keys())),
                                   .out = graph.Tensor(type, shapes.Out()),
                                   .dout = graph.Tensor(type, shapes.Out()),
                                   .log_sum_exp = graph.Tensor(CUDNN_DATA_FLOAT, shapes.Statistics()),
                                   .scale = graph.Value(),
                                   .hidden = graph.Value(),
                                   .one = graph.Value(),
                                   .dqueries = graph.Tensor(type, shapes.Queries()),
                                   .dkeys = graph.Tensor(type, shapes.Keys()),
                                   .dvalues = graph.Tensor(type, shapes.Keys()),
                                   .products = graph.Tensor(CUDNN_DATA_FLOAT, shapes.Statistics()),
                                   .query_sums = graph.Tensor(CUDNN_DATA_FLOAT, shapes.OfAllHeads())};
  MultiplyRows(graph, shapes, t.out, t.dout, t.one, t.products);
  const GraphTensor scaled = ScaledScores(graph, shapes, t.queries, t.keys, t.scale);
  const GraphTensor probabilities =
      Probabilities(graph, shapes, problem.causal, scaled, t.log_sum_exp, t.hidden);
  MultiplyTransposed(graph, problem, shapes, probabilities, t.dout, t.dvalues);

  const GraphTensor dprobabilities = graph.Virtual(shapes.Scores());
  graph.Multiply(t.dout, t.values, dprobabilities);
  const GraphTensor dscores =
      ScoreGradients(graph, shapes, dprobabilities, t.products, probabilities, t.scale);
  MultiplyTransposed(graph, problem, shapes, dscores, t.queries, t.dkeys);

  const GraphTensor rows_of_keys = graph.Virtual(shapes.Keys(), type);
  graph.Reshape(t.keys, rows_of_keys);
  graph.Multiply(dscores, rows_of_keys, t.query_sums);
  graph.Apply(CUDNN_POINTWISE_IDENTITY, t.query_sums, t.dqueries);
  WT_ASSIGN_OR_RETURN(GraphPlan plan, graph.Plan(target));
  return AttentionBackwardPlan{std::move(plan), t};
}

}  // namespace windtunnel::cuda
