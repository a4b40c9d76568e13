#!/bin/bash
# Packs all that bench/gpu_campaign.sh needs on a machine with an NVIDIA driver and CUDA's libraries, but
# nothing of Windtunnel:
#
#   ./bazelw build //:windtunnel //bench:gpu_bench //tests/runtime/cuda:device_operator_test
#   bench/pack_gpu_binaries.sh /tmp/windtunnel-gpu.tar.xz          # at most 64 MiB, about 30
#
# and there: mkdir wt && tar -C wt -xf windtunnel-gpu.tar.xz && wt/bench/gpu_campaign.sh OUT_DIR. This
# machine's libraries are packed, too, except those of C and C++: the other machine's must not be older
# (Debian 12's work on Ubuntu 24.04).
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
archive=${1:?pack_gpu_binaries.sh ARCHIVE.tar.xz}
bin=${2:-$root/bazel-bin}
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT
mkdir "$pack/bin" "$pack/lib" "$pack/bench" "$pack/scenarios"
for binary in windtunnel bench/gpu_bench tests/runtime/cuda/device_operator_test; do
  [ -x "$bin/$binary" ] || { echo "pack_gpu_binaries: $bin/$binary is not built" >&2; exit 1; }
  cp -L "$bin/$binary" "$pack/bin/$(basename $binary)"
  chmod u+w "$pack/bin/$(basename $binary)"
  strip --strip-debug "$pack/bin/$(basename $binary)"
done
blas=$(/sbin/ldconfig -p | sed -n 's/.*libopenblas\.so\.0 .*=> //p' | head -n 1)  # opened when it is needed
[ -n "$blas" ] || { echo "pack_gpu_binaries: libopenblas.so.0 is not installed" >&2; exit 1; }
{ ldd "$pack"/bin/* "$blas"; echo "=> $blas ()"; } | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
  grep -v -E '/(libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$pack/lib/"; done
cp "$root"/bench/gpu_campaign.sh "$root"/bench/compare_losses.py "$root"/bench/peer_pytorch.py "$root"/bench/torch_rates.py \
  "$pack/bench/"
cp "$root"/scenarios/*.yaml "$pack/scenarios/"
tar -C "$pack" -cJf "$archive" .
size=$(stat -c %s "$archive")
[ "$size" -le $((64 << 20)) ] || { echo "pack_gpu_binaries: $archive has $size bytes, more than 64 MiB" >&2; exit 1; }
echo "$archive: $((size >> 20)) MiB"
