#include "runtime/cuda/cudnn_graph.h"

#include <utility>

namespace windtunnel::cuda {
namespace {

constexpr int64_t kAlignment = 16;
constexpr int64_t kMostSuggestions = 8;

}  // namespace

CudnnDescriptor::CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type) : api_(&api) {
  Note(api.create_descriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : api_(other.api_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(std::move(other.status_)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(status_, other.status_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) api_->destroy_descriptor(descriptor_);
}

void CudnnDescriptor::Note(cudnnStatus_t status, const char* call) {
  if (status_) status_ = CheckCudnn(*api_, status, call);
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  if (!status_) return;
  Note(api_->set_attribute(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
}

void CudnnDescriptor::SetInteger(cudnnBackendAttributeName_t name, int64_t value) {
  Set(name, CUDNN_TYPE_INT64, 1, &value);
}

void CudnnDescriptor::SetFlag(cudnnBackendAttributeName_t name, bool value) {
  Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}

void CudnnDescriptor::SetDataType(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}

Status CudnnDescriptor::Finalize() {
  if (status_) Note(api_->finalize(descriptor_), "cudnnBackendFinalize");
  return status_;
}

Status GraphPlan::Execute(cudnnHandle_t handle, std::span<const GraphOperand> operands,
                          void* workspace) const {
  std::vector<int64_t> names;
  std::vector<void*> places;
  for (const GraphOperand& operand : operands) {
    names.push_back(operand.tensor);
    places.push_back(const_cast<void*>(operand.data));
  }
  const auto count = static_cast<int64_t>(operands.size());
  CudnnDescriptor pack(*api_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, places.data());
  pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  WT_RETURN_IF_ERROR(pack.Finalize());
  return CheckCudnn(*api_, api_->execute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
}

GraphTensor GraphBuilder::Tensor(cudnnDataType_t type, const GraphShape& shape) {
  return Add(type, shape, false, false);
}

GraphTensor GraphBuilder::Virtual(const GraphShape& shape, cudnnDataType_t type) {
  return Add(type, shape, true, false);
}

GraphTensor GraphBuilder::Value() { return Add(CUDNN_DATA_FLOAT, {{1, 1, 1, 1}, {1, 1, 1, 1}}, false, true); }

void GraphBuilder::Multiply(GraphTensor a, GraphTensor b, GraphTensor c) {
  CudnnDescriptor matmul(api_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  matmul.SetDataType(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  Note(matmul.Finalize());
  AddOperation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, a},
                {CUDNN_ATTR_OPERATION_MATMUL_BDESC, b},
                {CUDNN_ATTR_OPERATION_MATMUL_CDESC, c}},
               &matmul, CUDNN_ATTR_OPERATION_MATMUL_DESC);
}

void GraphBuilder::Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor y) {
  AddPointwise(mode, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void GraphBuilder::Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b, GraphTensor y) {
  AddPointwise(mode, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                      {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b},
                      {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void GraphBuilder::Select(GraphTensor mask, GraphTensor x, GraphTensor otherwise, GraphTensor y) {
  AddPointwise(CUDNN_POINTWISE_BINARY_SELECT, {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x},
                                               {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, otherwise},
                                               {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, mask},
                                               {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
}

void GraphBuilder::Index(int64_t axis, GraphTensor x, GraphTensor y) {
  AddPointwise(CUDNN_POINTWISE_GEN_INDEX,
               {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}}, axis);
}

void GraphBuilder::Reduce(cudnnReduceTensorOp_t reduction, GraphTensor x, GraphTensor y) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  how.Set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  how.SetDataType(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  Note(how.Finalize());
  AddOperation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y}}, &how,
               CUDNN_ATTR_OPERATION_REDUCTION_DESC);
}

void GraphBuilder::Reshape(GraphTensor x, GraphTensor y) {
  AddOperation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y}});
}

// Asks in the order of NVIDIA's frontend: first for the best plans, then for those that always work.
Result<GraphPlan> GraphBuilder::Plan(const GraphTarget& target) {
  WT_ASSIGN_OR_RETURN(const CudnnDescriptor graph, OperationGraph(target));
  auto plan = PlanBy(CUDNN_HEUR_MODE_A, graph, target);
  return plan ? std::move(plan) : PlanBy(CUDNN_HEUR_MODE_FALLBACK, graph, target);
}

Result<GraphPlan> GraphBuilder::PlanBy(cudnnBackendHeurMode_t mode, const CudnnDescriptor& graph,
                                       const GraphTarget& target) {
  CudnnDescriptor heuristics(api_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.properties != nullptr) heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  WT_RETURN_IF_ERROR(heuristics.Finalize());

  std::vector<CudnnDescriptor> suggestions;
  std::vector<cudnnBackendDescriptor_t> places;
  for (int64_t i = 0; i < kMostSuggestions; ++i) {
    suggestions.emplace_back(api_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    places.push_back(suggestions.back().get());
  }
  int64_t count = 0;
  WT_RETURN_IF_ERROR(
      CheckCudnn(api_,
                 api_.get_attribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostSuggestions, &count, places.data()),
                 "cudnnBackendGetAttribute"));
  Status last = Unsupported("its heuristics suggest nothing");
  for (int64_t i = 0; i < count; ++i) {
    CudnnDescriptor plan(api_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestions[i]);
    if (target.properties != nullptr) plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    else plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    last = plan.Finalize();
    if (!last) continue;
    int64_t bytes = 0, values = 0;
    WT_RETURN_IF_ERROR(CheckCudnn(api_,
                                  api_.get_attribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                     CUDNN_TYPE_INT64, 1, &values, &bytes),
                                  "cudnnBackendGetAttribute"));
    return GraphPlan(api_, std::move(plan), bytes);
  }
  if (last.error().kind != ErrorKind::kUnsupported) return tl::unexpected(last.error());
  return Unsupported("cuDNN {} has no kernel for this graph: {}", api_.version_text, last.error().message);
}

GraphTensor GraphBuilder::Add(cudnnDataType_t type, const GraphShape& shape, bool is_virtual, bool by_value) {
  const auto id = static_cast<GraphTensor>(tensors_.size());
  CudnnDescriptor tensor(api_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.SetInteger(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  tensor.SetDataType(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  tensor.SetInteger(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, shape.dims.size(), shape.dims.data());
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, shape.strides.size(), shape.strides.data());
  tensor.SetFlag(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual);
  tensor.SetFlag(CUDNN_ATTR_TENSOR_IS_BY_VALUE, by_value);
  Note(tensor.Finalize());
  tensors_.push_back(std::move(tensor));
  return id;
}

void GraphBuilder::AddOperation(cudnnBackendDescriptorType_t type, std::initializer_list<Attribute> tensors,
                                const CudnnDescriptor* how, cudnnBackendAttributeName_t how_name) {
  CudnnDescriptor operation(api_, type);
  if (how != nullptr) operation.Set(how_name, *how);
  for (const Attribute& attribute : tensors) operation.Set(attribute.name, tensors_[attribute.tensor]);
  Note(operation.Finalize());
  operations_.push_back(std::move(operation));
}

void GraphBuilder::AddPointwise(cudnnPointwiseMode_t mode, std::initializer_list<Attribute> tensors,
                                int64_t axis) {
  CudnnDescriptor how(api_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  how.SetDataType(CUDNN_ATTR_POINTWISE_MATH_PREC,
                  mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) how.SetInteger(CUDNN_ATTR_POINTWISE_AXIS, axis);
  Note(how.Finalize());
  AddOperation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, tensors, &how,
               CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
}

void GraphBuilder::Note(Status status) {
  if (status_) status_ = std::move(status);
}

Result<CudnnDescriptor> GraphBuilder::OperationGraph(const GraphTarget& target) {
  WT_RETURN_IF_ERROR(status_);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  CudnnDescriptor graph(api_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations.size()), operations.data());
  if (target.handle != nullptr)
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  WT_RETURN_IF_ERROR(graph.Finalize());
  return graph;
}

}  // namespace windtunnel::cuda
