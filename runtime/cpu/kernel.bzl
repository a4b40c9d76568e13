"""How files with vectorised loops are compiled (runtime/cpu/isa.h)."""

# -O3: GCC 12 vectorises loops of unknown length only there. The other flags let it: sqrt sets no errno, a comparison
# may be computed on both sides, and "#pragma omp simd reduction" says which sums may be reordered. Not -ffast-math:
# NaN stays NaN, so a diverged run shows.
# (The precompiled header was compiled with errno, and is read as it is.)
KERNEL_COPTS = [
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-Wno-invalid-pch",
]
