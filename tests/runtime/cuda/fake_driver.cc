// A driver without a device: it loads every module and launches nothing. With it, cuDNN compiles kernels for
// a device of which it has only a description. (NVIDIA's own stub of the driver refuses modules.)
namespace {

constexpr int kStubLibrary = 34;  // CUDA_ERROR_STUB_LIBRARY

int Give(void** object) {
  static int anything;
  *object = &anything;
  return 0;
}

}  // namespace

extern "C" {

#define GIVES(name) \
  int name(void** object) { return Give(object); }
#define SUCCEEDS(name) \
  int name() { return 0; }
#define REFUSES(name) \
  int name() { return kStubLibrary; }

GIVES(cuLibraryLoadData)
GIVES(cuLibraryLoadFromFile)
GIVES(cuLibraryGetKernel)
GIVES(cuModuleLoadData)
GIVES(cuModuleLoadDataEx)
GIVES(cuModuleGetFunction)
GIVES(cuKernelGetFunction)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuFuncSetAttribute)
REFUSES(cuInit)
REFUSES(cuDriverGetVersion)
REFUSES(cuGetErrorName)
REFUSES(cuGetErrorString)
REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPushCurrent)
REFUSES(cuStreamGetCtx)
REFUSES(cuLinkCreate)
REFUSES(cuLinkAddData)
REFUSES(cuLinkComplete)
REFUSES(cuLinkDestroy)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuDeviceGetCount)
REFUSES(cuDeviceGet)
REFUSES(cuKernelGetAttribute)
REFUSES(cuOccupancyMaxPotentialClusterSize)

}  // extern "C"
