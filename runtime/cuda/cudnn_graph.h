// A graph of cuDNN's operations and the plan that computes it: as much of cuDNN's backend API as attention needs. cuDNN recognises whole
// graphs, so which tensors and operations there are, and in which order, decides whether there is a kernel.
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

// A descriptor of the backend API: attributes are set, then it is finalized, then it may be used.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnApi& api, cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  // What goes wrong with any of these is kept for Finalize.
  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  void SetInteger(cudnnBackendAttributeName_t name, int64_t value);
  void SetFlag(cudnnBackendAttributeName_t name, bool value);
  void SetDataType(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  // Errors: the first thing that went wrong, as CheckCudnn says it.
  Status Finalize();

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  void Note(cudnnStatus_t status, const char* call);

  const CudnnApi* api_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  Status status_;
};

// Four dimensions and the distances of their elements.
struct GraphShape {
  std::array<int64_t, 4> dims{}, strides{};
};

// The device that a plan is for: that of a handle, or one that is only described (a device's properties as cuDNN writes them), for
// which plans can be made but not executed.
struct GraphTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

using GraphTensor = int64_t;

struct GraphOperand {
  GraphTensor tensor;
  const void* data;  // on the host for a tensor by value
};

class GraphPlan {
 public:
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // `operands`: every tensor that is not virtual. On the handle's stream.
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

  // In memory, 16 bytes aligned.
  GraphTensor Tensor(cudnnDataType_t type, const GraphShape& shape);
  // Between operations, in no memory that the caller knows.
  GraphTensor Virtual(const GraphShape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  // One fp32 value that Execute reads on the host.
  GraphTensor Value();

  // c = a b, batch by batch.
  void Multiply(GraphTensor a, GraphTensor b, GraphTensor c);
  // y = f(x), y = f(x, b); b may be broadcast. Of comparisons CMP_GE only.
  void Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor y);
  void Apply(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b, GraphTensor y);
  // y = mask ? x : otherwise.
  void Select(GraphTensor mask, GraphTensor x, GraphTensor otherwise, GraphTensor y);
  // y = the index along `axis`, of the shape of x.
  void Index(int64_t axis, GraphTensor x, GraphTensor y);
  // y = x, added up or the largest along the dimensions in which y has one element.
  void Reduce(cudnnReduceTensorOp_t reduction, GraphTensor x, GraphTensor y);
  // y = x, read with y's dims and strides.
  void Reshape(GraphTensor x, GraphTensor y);

  // The first plan that cuDNN's heuristics suggest and that can be had. Errors: Unsupported (there is none), Failed (there would be).
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
  Status status_;  // of the first descriptor that could not be had
  std::vector<CudnnDescriptor> tensors_, operations_;
};

}  // namespace windtunnel::cuda
