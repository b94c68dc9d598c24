// |z| of the units whose modulus cannot be had from the state: where is_cancelled(h, b), it is computed anew from
// z_t = W h_{t-1} + V x_t, and left in the real part of dz for the backward kernels. Such units are few, and there are
// none with b <= 0; a warp looks through a row of the batch at one step, and works on each together.
//
// N, M, REAL_INPUTS, HARD are macros. M = 0: x are the pre-activations themselves.
#include "modrelu.cuh"

constexpr unsigned ALL = ~0u;

__device__ __forceinline__ float2 sum_over_warp(float2 v) {
#pragma unroll
  for (int bit = 16; bit >= 1; bit /= 2)
    v = add(v, make_float2(__shfl_xor_sync(ALL, v.x, bit), __shfl_xor_sync(ALL, v.y, bit)));
  return v;
}

extern "C" __global__ void __launch_bounds__(256)
    moduli(const float2* __restrict__ h, const float* __restrict__ x, const float2* __restrict__ V,
           const float2* __restrict__ W, const float* __restrict__ b, const float2* __restrict__ h_0,
           const long long* __restrict__ lengths, float2* __restrict__ dz, int T, int E, int B, int reverse) {
  const int lane = threadIdx.x % 32;
  const long long warps = (long long)gridDim.x * 8, rows = (long long)E * B;
  for (long long at = blockIdx.x * 8ll + threadIdx.x / 32; at < T * rows; at += warps) {
    const long long row = at % rows;
    const int t = (int)(at / rows), member = (int)(row / B), length = lengths ? (int)lengths[row] : T;
    if (t >= length) continue;
    const int before = reverse ? t + 1 : t - 1;
    const float2* previous = before < 0 || before >= length ? h_0 + row * N : h + (before * rows + row) * N;
    for (int first = 0; first < N; first += 32) {
      const int own = first + lane;
      const float bias = own < N ? b[member * N + own] : 0.0f;
      unsigned left = __ballot_sync(ALL, bias > 0.0f && is_cancelled(h[at * N + own], bias));
      for (; left; left &= left - 1) {
        const int unit = first + __ffs(left) - 1;
        float2 z = make_float2(0.0f, 0.0f);
        const float2* w = W + ((long long)member * N + unit) * N;
        for (int k = lane; k < N; k += 32) z = multiply_add(w[k], previous[k], z);
        if (M == 0) {
          if (lane == 0) z = add(z, reinterpret_cast<const float2*>(x)[at * N + unit]);
        } else {
          const float2* v = V + ((long long)member * N + unit) * M;
          for (int k = lane; k < M; k += 32)
            z = multiply_add(v[k],
                             REAL_INPUTS ? make_float2(x[at * M + k], 0.0f)
                                         : reinterpret_cast<const float2*>(x)[at * M + k],
                             z);
        }
        z = sum_over_warp(z);
        float2 e;
        const float r = polar(z, e);
        if (lane == 0) dz[at * N + unit].x = r;
      }
    }
  }
}
