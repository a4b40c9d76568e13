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

// Operators to be added later, each with the layer that they are labelled with.
struct DeferredOp {
  int layer = -1;
  std::function<void()> add;
};
using DeferredOps = std::vector<DeferredOp>;

// Whether a backward makes the gradients of weights along with those of inputs, behind each part of a layer and the exchange that follows it
// (Megatron's delay_wgrad_compute), or leaves them for later (zero-bubble pipelines).
enum class WeightGradients : uint8_t { kWithInput, kDelayed, kDeferred };

// Tensor parallelism (Megatron's): every rank of the stream's axis has a part of the weights and works on all tokens with it. With
// `sequence`, what is between the parts of layers (norms, residual stream) is split as well, by tokens: rank r has the r-th of equal
// parts of the rows [sequence, token] of the micro-batch.
struct TensorParallel {
  CollectiveStream* stream = nullptr;  // null: one rank
  bool sequence = false;
  // Tokens that are gathered for a product, or summed from one, go around the ranks in parts, each beside the product of another.
  bool overlap = false;
  bool by_copy_engine = false;  // as Collective's
  int streams = 1;              // on which products of parts run at once, in what is modelled
  // PyTorch splits each sequence, and those of a batch follow each other: tokens are put in order after they were gathered, and out of it
  // before they are scattered (torch/distributed/_functional_collectives.py). Its compiler lets an elementwise kernel beside do that.
  enum class Reorder : uint8_t { kNothing, kByCopy, kByCopyOrNeighbor } reorder = Reorder::kNothing;

  int ranks() const { return stream == nullptr ? 1 : stream->ranks(); }
  bool splits() const { return ranks() > 1; }
  bool splits_tokens() const { return splits() && sequence; }
  bool overlaps() const { return splits_tokens() && overlap; }
  // Of equal parts of a tensor's rows, that of the rank that is `turn` ahead around the ring.
  Slice PartOf(Slice whole, int turn) const;
  // The product of one part of the rows.
  Gemm OfPart(Gemm whole) const;
  // Whether a copy is there for it. `by_neighbor`: an elementwise kernel is beside the collective.
  bool copies_tokens(bool by_neighbor) const {
    return reorder == Reorder::kByCopy || (reorder == Reorder::kByCopyOrNeighbor && !by_neighbor);
  }
};
// As `scenario` has it and its framework does it, on the stream of the tensor axis.
TensorParallel TensorParallelOf(const Scenario& scenario, CollectiveStream* stream);

// Context parallelism: every rank of the stream's axis has some tokens of each sequence (TokenSplit), and attention brings together what
// it needs (plan/context_attention.h).
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
  // Tensor ranks are on the axis, too, next to each other, and have experts of their own (parallel.expert.tensor: 1).
  bool with_tensor_ranks = false;
  ExpertDispatcher dispatcher = ExpertDispatcher::kAllToAll;
  int ranks_per_node = 1;  // of the axis
  StreamId host = -1;      // where the host waits for the counts of tokens; -1: it does not

  int ranks() const { return stream == nullptr ? 1 : stream->ranks(); }
  bool splits() const { return ranks() > 1; }
};
// As `scenario` has it, on the stream of the expert axis; without `host`.
ExpertParallel ExpertParallelOf(const Scenario& scenario, CollectiveStream* stream);
// Whether the host must know how many tokens go to each expert before it issues what follows the router: where there is no capacity, for the
// sizes of the exchange (Megatron's cuda_sync_point, DeepEP's dispatch, torchtitan's input_splits), and in Megatron for those of products.
bool HostCountsTokens(const Scenario& scenario);

// How ranks share the model.
struct ModelParallel {
  TensorParallel tensor = {};
  ContextParallel context = {};
  ExpertParallel expert = {};
};

// How tensor ranks share a parameter: in equal parts of each of some blocks of rows, or of the columns.
struct ParameterSplit {
  enum class By : uint8_t { kNothing, kRows, kColumns } by = By::kNothing;
  std::vector<int64_t> blocks = {};  // rows of each: of queries, keys and values; of gate and up
  bool is_partial_gradient = false;  // not split, but each rank's gradient comes from its own tokens only
  bool sees_partial_sums = false;  // not split, but each rank's gradient comes from its part of the sums only
  int experts = 0;                 // that follow each other in the rows, each of which is split as said
};

class Model {
 public:
  explicit Model(const ModelParallel& parallel = {}) : tensor_(parallel.tensor), expert_(parallel.expert) {}
  virtual ~Model() = default;
  // Adds the stage's parameters to the role, in registration order. Once.
  virtual void Register(Role& role) = 0;
  // The module tree; module 0 is the root.
  const std::vector<Module>& modules() const { return modules_; }

  // Those that the stage uses, by their index in the role.
  const std::vector<int>& parameters() const { return parameters_; }
  // Buffers beside them that last as long as the role.
  const std::vector<BufferId>& kept_buffers() const { return kept_buffers_; }

  // Operators of a micro-batch's forward. The first stage loads its data and ignores `input`; the others continue from what the
  // stage before returned. Returns what the next stage continues from; on the last, which adds the loss into `loss`, the
  // gradient that its own backward begins with: that of the mean loss times `gradient_scale`. `loss` has LossElements: behind the
  // model's own loss those of tokens further on (model.mtp), whose gradients Backward begins with by itself.
  virtual Slice Forward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice input, Slice loss,
                        double gradient_scale) = 0;
  // Of its backward, from the gradient of what Forward returned (on the last stage: what Forward returned). Returns the gradient
  // of `input`; nothing (buffer -1) on the first stage. REQUIRES: Forward of the micro-batch, in the same program.
  Slice Backward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                 WeightGradients weights = WeightGradients::kWithInput);
  // What a backward that deferred them left: the gradients of weights. (Those of norms came with their input's.) Once.
  void BackwardWeights(ProgramBuilder& builder, int micro_batch);

  // For replicas, of `micro_batches` micro-batches together: a temporary for their inputs (token ids, features); an operator that
  // loads the inputs, and the targets, which it returns; and the mean loss, from their output, into `loss`. That returns the
  // gradient of the output, of the mean loss times `gradient_scale`.
  virtual Slice MakeInputs(ProgramBuilder& builder, int64_t micro_batches) const = 0;
  virtual Slice Load(ProgramBuilder& builder, int micro_batch, int64_t micro_batches, Slice inputs) const = 0;
  virtual Slice Loss(ProgramBuilder& builder, int64_t micro_batches, Slice output, Slice targets, Slice loss,
                     double gradient_scale) const = 0;

  // Elements of what Forward continues from, and returns for the next stage, and their type.
  virtual int64_t InputElements() const = 0;
  virtual int64_t OutputElements() const = 0;
  virtual DType BoundaryType() const = 0;
  // Of a micro-batch, fp32.
  virtual int64_t LossElements() const { return 1; }

  // Of the whole model, which has `parameters` parameters.
  virtual ModelStatistics Statistics(int64_t parameters) const = 0;

 protected:
  // Backward; `deferred` as in LayerContext (plan/layers.h), and added where its layers say if `delays`.
  virtual Slice AddBackward(ProgramBuilder& builder, ModelHooks& hooks, int micro_batch, Slice doutput,
                            DeferredOps* deferred, bool delays) = 0;
  // Adds a module; parents before children, in forward order. -1 outside the stage.
  ModuleId AddModule(std::string name, ModuleId parent);
  // Adds a parameter of a module to the role; its index. Outside the stage it is only counted, and -1.
  // `shape` is the whole's; the role gets the tensor rank's part, as `split` says.
  int AddParameter(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape,
                   ParameterInit init, const ParameterSplit& split = {});

  // A parameter that another stage has too, as number `ordinal`: that stage's where the role has it, else a copy.
  int AddTied(Role& role, ModuleId module, std::string name, std::vector<int64_t> shape, ParameterInit init,
              int64_t ordinal, const ParameterSplit& split = {});

  TensorParallel tensor_;
  ExpertParallel expert_;
  std::vector<Module> modules_;
  std::vector<int> parameters_;
  std::vector<BufferId> kept_buffers_;
  bool is_in_stage_ = true;  // what is added next
  int layer_ = -1;           // and of which layer it is; -1: of none
  int64_t next_ordinal_ = 0;

 private:
  std::map<int, DeferredOps> deferred_;  // by micro-batch
};

// The types that the model's operators work in.
struct ModelTypes {
  DType storage = DType::kFloat32;  // parameters as gathered, their gradients
  // What products take and give, and what is between them: the same; or 16 bits with parameters of 32 (autocast, docs/decisions/0021).
  DType activations = DType::kFloat32;
  DType stream =
      DType::kFloat32;  // embeddings, the residual stream, norms: the activations', under autocast fp32
  DType gemm = DType::kFloat32;      // of products: the activations', or tf32
  Fp8Recipe fp8 = Fp8Recipe::kNone;  // of the products of blocks
  // Transformer Engine's fp8: weights at a scale of each tensor rank's own, converted for `fp8_weights_shared_by` micro-batches at a time
  // and kept, unless they are gathered anew. 0: converted wherever they are needed, at a scale for all ranks.
  int64_t fp8_weights_shared_by = 0;
  bool keeps_weights_in_fp8 = false;
  // An RMS norm of 16 bits keeps its input in fp32, too (eager PyTorch, whose norm is made of operators).
  bool norms_keep_fp32 = false;
  // What backward's products need of forward's inputs is kept in fp8 (Transformer Engine), not in 16 bits.
  bool keeps_inputs_in_fp8 = false;

  bool autocasts() const { return activations != storage; }
  // In fp8 a tensor is converted at one scale: it can be gathered and transposed in fp8.
  bool scales_whole_tensors() const { return fp8 == Fp8Recipe::kTensorwise || fp8 == Fp8Recipe::kDelayed; }
  // Scales go along what a product sums over: both forms of a factor are made together, and each is gathered (Transformer Engine).
  bool makes_both_forms() const { return fp8_weights_shared_by > 0 && scales_blocks(); }
  bool scales_blocks() const {
    return fp8 == Fp8Recipe::kBlock || fp8 == Fp8Recipe::kMxfp8 || fp8 == Fp8Recipe::kNvfp4;
  }
  bool gathers_factors() const { return scales_whole_tensors() || makes_both_forms(); }
  DType factor() const { return FactorType(fp8); }
  // `product`, a Gemm or a GroupedGemm, is of factors.
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
