// A model: its modules and parameters, and the forward and backward operators of one micro-batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "plan/collectives.h"
#include "plan/model_hooks.h"
#include "plan/program_builder.h"
#include "plan/stages.h"

namespace windtunnel {

// Operators that `add` will add later, labelled with `layer`.
struct DeferredOp {
  int layer = -1;
  std::function<void()> add;
};
using DeferredOps = std::vector<DeferredOp>;

// When a backward computes the gradients of weights: along with those of inputs; delayed until after each
// part of a layer and the exchange that follows it (Megatron's delay_wgrad_compute); or deferred to a
// backward of weights (zero-bubble pipelines).
enum class WeightGradients : uint8_t { kWithInput, kDelayed, kDeferred };

// Tensor parallelism (Megatron's): every rank of the stream's axis has a part of the weights and works on all
// tokens with it. With `sequence`, the operators between attention and MLP (norms, residual stream) are split
// as well, by tokens: rank r has the r-th of equal parts of the micro-batch's rows [sequence, token].
struct TensorParallel {
  CollectiveStream* stream = nullptr;  // null: one rank
  bool sequence = false;
  // Tokens that are gathered before a GEMM or reduce-scattered after one go around the ranks in parts. Each
  // part's transfer overlaps with the GEMM of another part.
  bool overlap = false;
  bool by_copy_engine = false;  // as Collective's
  int streams = 1;              // predicted only: streams on which the GEMMs of parts run concurrently
  // PyTorch splits each sequence of the batch by itself. So gathered tokens have to be reordered afterwards,
  // and tokens to be reduce-scattered beforehand (torch/distributed/_functional_collectives.py): by a copy,
  // or with its compiler by an adjacent elementwise kernel, if there is one.
  enum class Reorder : uint8_t { kNothing, kByCopy, kByCopyOrNeighbor } reorder = Reorder::kNothing;

  int ranks() const { return stream == nullptr ? 1 : stream->ranks(); }
  bool splits() const { return ranks() > 1; }
  bool splits_tokens() const { return splits() && sequence; }
  bool overlaps() const { return splits_tokens() && overlap; }
  // Of the equal parts of a tensor's rows, the one of the rank that is `turn` ahead around the ring.
  Slice PartOf(Slice whole, int turn) const;
  // The GEMM of one rank's part of the rows.
  Gemm OfPart(Gemm whole) const;
  // Whether reordering takes a copy. `by_neighbor`: an elementwise kernel is adjacent to the collective.
  bool copies_tokens(bool by_neighbor) const {
    return reorder == Reorder::kByCopy || (reorder == Reorder::kByCopyOrNeighbor && !by_neighbor);
  }
};
// Tensor parallelism as the scenario and its framework have it, on the stream of the tensor axis.
TensorParallel TensorParallelOf(const Scenario& scenario, CollectiveStream* stream);

// Context parallelism: every rank of the stream's axis has some tokens of each sequence (TokenSplit), and
// attention exchanges what it needs (plan/context_attention.h).
struct ContextParallel {
  CollectiveStream* stream = nullptr;  // null: one rank
  ContextKind kind = ContextKind::kRing;

  int ranks() const { return stream == nullptr ? 1 : stream->ranks(); }
  bool splits() const { return ranks() > 1; }
  TokenSplit tokens() const { return {ranks(), splits() && kind != ContextKind::kUlysses}; }
};

// Expert parallelism: every rank of the stream's axis has equal parts of the experts (plan/experts.h).
struct ExpertParallel {
  CollectiveStream* stream = nullptr;  // null: one rank
  // The axis includes the tensor ranks, as neighbours, and each of them has different experts
  // (parallel.expert.tensor: 1).
  bool with_tensor_ranks = false;
  ExpertDispatcher dispatcher = ExpertDispatcher::kAllToAll;
  int ranks_per_node = 1;  // of the axis
  StreamId host = -1;  // the host stream on which the host waits for the token counts; -1: it does not wait

  int ranks() const { return stream == nullptr ? 1 : stream->ranks(); }
  bool splits() const { return ranks() > 1; }
};
// Expert parallelism as the scenario has it, on the stream of the expert axis. Leaves `host` unset.
ExpertParallel ExpertParallelOf(const Scenario& scenario, CollectiveStream* stream);
// Whether the host must know how many tokens go to each expert before it can issue what follows the router.
// Without a capacity limit, the sizes of the exchange depend on it (Megatron's cuda_sync_point, DeepEP's
// dispatch, torchtitan's input_splits), and in Megatron those of the GEMMs, too.
bool HostCountsTokens(const Scenario& scenario);

// How ranks share the model.
struct ModelParallel {
  TensorParallel tensor = {};
  ContextParallel context = {};
  ExpertParallel expert = {};
};

// How tensor ranks share a parameter: each has an equal part of every block of rows, or of the columns.
struct ParameterSplit {
  enum class By : uint8_t { kNothing, kRows, kColumns } by = By::kNothing;
  std::vector<int64_t> blocks = {};  // the rows of each block: of queries, keys and values; of gate and up
  bool is_partial_gradient = false;  // not split, but each rank's gradient comes from its own tokens only
  bool sees_partial_sums = false;  // not split, but each rank's gradient comes from its part of the sums only
  int experts = 0;  // the rows consist of this many experts, each of which is split as the other members say
};

class Model {
 public:
  explicit Model(const ModelParallel& parallel = {}) : tensor_(parallel.tensor), expert_(parallel.expert) {}
  virtual ~Model() = default;
  // Adds the stage's parameters to the role, in registration order. To be called once.
  virtual void Register(Role& role) = 0;
  // The module tree; module 0 is the root.
  const std::vector<Module>& modules() const { return modules_; }

  // The parameters that the stage uses, as indices into the role's.
  const std::vector<int>& parameters() const { return parameters_; }
  // Other buffers that live as long as the role.
  const std::vector<BufferId>& kept_buffers() const { return kept_buffers_; }

  // Adds the operators of a micro-batch's forward. The first stage loads the data and ignores `input`; the
  // others continue from what the previous stage returned. Returns the input of the next stage. The last
  // stage writes the loss into `loss` and returns the gradient that its backward begins with: that of the
  // mean loss times `gradient_scale`. `loss` has LossElements elements: the model's own loss, then those of
  // multi-token prediction (model.mtp), whose gradients Backward finds by itself.
  virtual Slice Forward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                        double gradient_scale) = 0;
  // Adds the operators of its backward. `doutput` is the gradient of what Forward returned; on the last stage
  // it is what Forward returned. Returns the gradient of `input`; nothing (buffer -1) on the first stage.
  // REQUIRES: Forward of the micro-batch, in the same program.
  Slice Backward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                 WeightGradients weights = WeightGradients::kWithInput);
  // Adds the gradients of weights that a backward with kDeferred left. (Those of norms were computed with
  // their input's.) To be called once per micro-batch.
  void BackwardWeights(ProgramBuilder& builder, int micro_batch);

  // For replicas, over `micro_batches` micro-batches together. MakeInputs makes a temporary for their inputs
  // (token ids, features). Load adds an operator that loads the inputs and the targets, and returns the
  // targets. Loss computes the mean loss of the output into `loss`, and returns the gradient of the output:
  // that of the mean loss times `gradient_scale`.
  virtual Slice MakeInputs(ProgramBuilder& builder, int64_t micro_batches) const = 0;
  virtual Slice Load(ProgramBuilder& builder, int micro_batch, int64_t micro_batches, Slice inputs) const = 0;
  virtual Slice Loss(ProgramBuilder& builder, int64_t micro_batches, Slice output, Slice targets, Slice loss,
                     double gradient_scale) const = 0;

  // The elements of Forward's input and of what it returns for the next stage, and their type.
  virtual int64_t InputElements() const = 0;
  virtual int64_t OutputElements() const = 0;
  virtual DType BoundaryType() const = 0;
  // The number of losses of a micro-batch, in fp32.
  virtual int64_t LossElements() const { return 1; }

  // The statistics of the whole model, which has `parameters` parameters, `frozen` of which are frozen.
  virtual ModelStatistics Statistics(int64_t parameters, int64_t frozen) const = 0;

 protected:
  // Implements Backward. `deferred` as in LayerContext (plan/layers.h). With `delays`, the layers say where
  // deferred operators are added.
  virtual Slice AddBackward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                            DeferredOps* deferred, bool delays) = 0;
  // Adds a module; parents before children, in forward order. -1 outside the stage.
  ModuleId AddModule(std::string name, ModuleId parent);
  // Adds a parameter of a module to the role and returns its index. Outside the stage it only counts it and
  // returns -1. `shape` is that of the whole tensor; the role gets the tensor rank's part, as `split` says.
  int AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                   ParameterInit init, const ParameterSplit& split = {});

  // Adds a parameter that is tied to that of another stage with number `ordinal`. If the role holds that
  // stage, too, this is the same parameter; else it is a copy.
  int AddTied(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape, ParameterInit init,
              int64_t ordinal, const ParameterSplit& split = {});

  TensorParallel tensor_;
  ExpertParallel expert_;
  std::vector<Module> modules_;
  std::vector<int> parameters_;
  std::vector<BufferId> kept_buffers_;
  bool is_in_stage_ = true;  // whether modules and parameters that are added next belong to the stage
  bool freezes_ = false;     // whether parameters that are added next are frozen
  bool of_adapter_ = false;  // whether they belong to an adapter
  int layer_ = -1;           // the layer that they belong to; -1: none
  bool is_hidden_ = false;   // whether weights that are added next are of hidden layers
  bool has_muon_ = false;    // which updates those (Parameter::matrices)
  int64_t next_ordinal_ = 0;
  // Of all parameters that AddParameter has seen so far, of every stage, each whole.
  int64_t registered_elements_ = 0;

 private:
  std::map<int, DeferredOps> deferred_;  // by micro-batch
  int64_t of_adapters_ = 0;              // parameters so far that belong to adapters
};

// The types that the model's operators work in. A factor is an operand of a GEMM in fp8 or fp4 (plan/fp8.h).
struct ModelTypes {
  DType storage = DType::kFloat32;  // parameters as gathered, their gradients
  // Inputs and outputs of GEMMs, and what is between them: the same as `storage`, or 16 bits with parameters
  // of 32 (autocast, docs/decisions/0021).
  DType activations = DType::kFloat32;
  // Embeddings, the residual stream, norms: the same as `activations`; fp32 under autocast.
  DType stream = DType::kFloat32;
  DType gemm = DType::kFloat32;      // of GEMMs: that of `activations`, or tf32
  Fp8Recipe fp8 = Fp8Recipe::kNone;  // of the GEMMs of blocks
  // Transformer Engine's fp8: each tensor rank scales its part of a weight by itself. A conversion is shared
  // by this many micro-batches and kept, unless weights are gathered anew. 0: weights are converted wherever
  // they are needed, with a scale on which the ranks agree.
  int64_t fp8_weights_shared_by = 0;
  bool keeps_weights_in_fp8 = false;
  // Weights of fp8 products are stored and gathered in fp8 (Parameter::is_factor).
  bool stores_weights_in_fp8 = false;
  // A 16-bit RMS norm keeps its input in fp32, too (eager PyTorch, whose norm consists of several operators).
  bool norms_keep_fp32 = false;
  // The inputs of forward that backward's GEMMs need are kept in fp8 (Transformer Engine), not in 16 bits.
  bool keeps_inputs_in_fp8 = false;

  bool autocasts() const { return activations != storage; }
  // A tensor has one scale in fp8, so it can be gathered and transposed in fp8.
  bool scales_whole_tensors() const { return fp8 == Fp8Recipe::kTensorwise || fp8 == Fp8Recipe::kDelayed; }
  // Scales go along the dimension that the GEMM sums over. So both forms of a factor, as it lies and
  // transposed, are made together, and each is gathered (Transformer Engine).
  bool makes_both_forms() const { return fp8_weights_shared_by > 0 && scales_blocks(); }
  bool scales_blocks() const {
    return fp8 == Fp8Recipe::kBlock || fp8 == Fp8Recipe::kMxfp8 || fp8 == Fp8Recipe::kNvfp4;
  }
  bool gathers_factors() const { return scales_whole_tensors() || makes_both_forms(); }
  DType factor() const { return FactorType(fp8); }
  // Makes `product`, a Gemm or a GroupedGemm, one of factors.
  template <typename Product>
  void TakesFactors(Product& product) const {
    product.dtype = factor();
    product.of_blocks = fp8 == Fp8Recipe::kBlock;
  }
};
ModelTypes TypesOf(const PrecisionSpec& precision);
DType TypeOf(Precision precision);

// The streams in `parallel` outlive the model. REQUIRES: CheckSplits.
std::unique_ptr<Model> MakeModel(const Scenario& scenario, const StageRange& stage,
                                 const ModelParallel& parallel = {});
std::unique_ptr<Model> MakeTransformer(const Scenario& scenario, const StageRange& stage,
                                       const ModelParallel& parallel);
std::unique_ptr<Model> MakeMlp(const Scenario& scenario, const StageRange& stage,
                               const ModelParallel& parallel);

}  // namespace windtunnel
