// A graph of cuDNN's operations and the plan that computes it: the part of cuDNN's backend API that attention
// needs. cuDNN recognises whole graphs, so the tensors and operations and their order decide whether there is
// a kernel.
//
//   GraphBuilder graph(api);
//   const auto x = graph.Tensor(CUDNN_DATA_BFLOAT16, shape), y = graph.Tensor(CUDNN_DATA_BFLOAT16, shape);
//   const auto half = graph.Virtual(shape);
//   graph.Apply(CUDNN_POINTWISE_EXP, x, half);
//   …
//   WT_ASSIGN_OR_RETURN(const GraphPlan plan, graph.Plan(GraphTarget{.handle = handle}));
//   WT_RETURN_IF_ERROR(plan.Execute(handle, {{x, in}, {y, out}}, workspace));
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/cuda/cudnn_api.h"

namespace windtunnel::cuda {

// A descriptor of the backend API: set its attributes, finalize it, then use it.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  // Finalize returns the errors of these calls.
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  void SetInteger(cudnnBackendAttributeName_t name, int64_t value);
  void SetFlag(cudnnBackendAttributeName_t name, bool value);
  void SetDataType(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  // Errors: the first error of any call, as from CheckCudnn.
  Status Finalize();

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  void Note(cudnnStatus_t status, const char* call);

  const CudnnApi* api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  Status status_;
};

// Four dimensions and their strides, in elements.
struct GraphShape {
  std::array<int64_t, 4> dims{}, strides{};
};

// The device that a plan is for: the one of a handle, or one that is only described (by a device's properties
// in cuDNN's format). For the latter, plans can be made but not executed.
struct GraphTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

using GraphTensor = int64_t;

struct GraphOperand {
  GraphTensor tensor;
  const void* data;  // on the host for tensors passed by value
};

class GraphPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Runs on the handle's stream. `operands`: every tensor that is not virtual.
  Status Execute(cudnnHandle_t handle, std::span<const GraphOperand> operands, void* workspace) const;

 private:
  friend class GraphBuilder;
  GraphPlan(const CudnnApi& api, CudnnDescriptor plan, int64_t workspace_bytes)
      : api_(&api), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  const CudnnApi* api_;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const CudnnApi& api) : api_(api) {}

  // A tensor in memory, aligned to 16 bytes.
  GraphTensor Tensor(cudnnDataType_t type, const GraphShape& shape);
  // A tensor between operations, which has no memory that the caller knows.
  GraphTensor Virtual(const GraphShape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  // One fp32 value, which Execute reads on the host.
  GraphTensor Value();

  // c = a b, batch by batch.
  void Multiply(GraphTensor a, GraphTensor b, GraphTensor c);
  // y = f(x), y = f(x, b); b may be broadcast. CMP_GE is the only comparison supported.
  void Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor y);
  void Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b, GraphTensor y);
  // y = mask ? x : otherwise.
  void Select(GraphTensor mask, GraphTensor x, GraphTensor otherwise, GraphTensor y);
  // y = each element's index along `axis`; y has the shape of x.
  void Index(int64_t axis, GraphTensor x, GraphTensor y);
  // y = the sum or maximum of x along the dimensions in which y has one element.
  void Reduce(cudnnReduceTensorOp_t reduction, GraphTensor x, GraphTensor y);
  // y = x, read with y's dims and strides.
  void Reshape(GraphTensor x, GraphTensor y);

  // The first of the plans that cuDNN's heuristics suggest that can be made. Errors: Unsupported (cuDNN has
  // none), Failed (it has one, but making it failed).
  Result<GraphPlan> Plan(const GraphTarget& target);

 private:
  Result<GraphPlan> PlanBy(cudnnBackendHeurMode_t mode, const CudnnDescriptor& graph,
                           const GraphTarget& target);
  struct Attribute {
    cudnnBackendAttributeName_t name;
    GraphTensor tensor;
  };
  GraphTensor Add(cudnnDataType_t type, const GraphShape& shape, bool is_virtual, bool by_value);
  void AddOperation(cudnnBackendDescriptorType_t type, std::initializer_list<Attribute> tensors,
                    const CudnnDescriptor* how = nullptr, cudnnBackendAttributeName_t how_name = {});
  void AddPointwise(cudnnPointwiseMode_t mode, std::initializer_list<Attribute> tensors, int64_t axis = 0);
  void Note(Status status);
  Result<CudnnDescriptor> OperationGraph(const GraphTarget& target);

  const CudnnApi& api_;
  Status status_;  // the first error in making a descriptor
  std::vector<CudnnDescriptor> tensors_, operations_;
};

}  // namespace windtunnel::cuda
