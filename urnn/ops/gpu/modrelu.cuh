// Eq. 2 and its gradient for one unit. Notation as in urnn/ops/nonlinearity.py: e = z/|z|, r = |z|.
// HARD: 1 for hard thresholding, 0 for modReLU.
#pragma once

__device__ __forceinline__ float2 add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }

// acc + a b
__device__ __forceinline__ float2 multiply_add(float2 a, float2 b, float2 acc) {
  acc.x = fmaf(a.x, b.x, acc.x);
  acc.y = fmaf(a.x, b.y, acc.y);
  acc.x = fmaf(-a.y, b.y, acc.x);
  acc.y = fmaf(a.y, b.x, acc.y);
  return acc;
}

// Whether plain arithmetic with a square s is exact to working precision.
__device__ __forceinline__ bool is_plain(float s) { return s > 1e-30f && s < 1e30f; }

// The hardware's approximation (2 units in the last place) and one Newton step. For plain s.
__device__ __forceinline__ float inverse_root(float s) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(s));
  return fmaf(0.5f * y, fmaf(-s * y, y, 1.0f), y);
}

// Returns r; e = 0 at z = 0. Entries whose square s leaves the range of the type are scaled by a power of two first.
__device__ __forceinline__ float polar(float2 z, float2& e) {
  float s = fmaf(z.x, z.x, z.y * z.y);
  if (is_plain(s)) {
    const float y = inverse_root(s);
    e = make_float2(z.x * y, z.y * y);
    return s * y;
  }
  const float size = fmaxf(fabsf(z.x), fabsf(z.y));
  if (size == 0.0f && s == 0.0f) {
    e = make_float2(0.0f, 0.0f);
    return 0.0f;
  }
  const float up = size < 1.0f ? 0x1p100f : 0x1p-100f;  // NaN goes through either way
  const float2 w = make_float2(z.x * up, z.y * up);
  s = sqrtf(fmaf(w.x, w.x, w.y * w.y));
  e = make_float2(w.x / s, w.y / s);
  return s / up;
}

// Written so that NaN, which is on no side of a comparison, goes through.
__device__ __forceinline__ float2 sigma(float2 z, float b) {
  const float s = fmaf(z.x, z.x, z.y * z.y), y = inverse_root(s);
  const float factor = fmaf(s, y, b) <= 0.0f ? -1.0f : (HARD ? 0.0f : b * y);  // z - z = 0
  float2 out = make_float2(fmaf(factor, z.x, z.x), fmaf(factor, z.y, z.y));
  if (!is_plain(s)) {
    float2 e;
    const float r = polar(z, e);
    out = HARD ? z : make_float2(fmaf(b, e.x, z.x), fmaf(b, e.y, z.y));
    if (r + b <= 0.0f || r == 0.0f) out = make_float2(0.0f, 0.0f);
  }
  return out;
}

// What the gradient needs of one unit before the gradient itself is there.
struct Slope {
  float2 e;
  float ratio;  // b / |z|, or 0 where the phase counts as constant
  bool active;
};

// Whether r = |h| - b has lost digits, so that it is computed anew (moduli.cu).
__device__ __forceinline__ bool is_cancelled(float2 h, float b) {
  return !HARD && b > 0.0f && fmaf(h.x, h.x, h.y * h.y) < 4.0f * b * b;
}

// h: the state; recomputed: |z|, read only where is_cancelled(h, b).
__device__ __forceinline__ Slope slope(float2 h, float b, float recomputed) {
  Slope s;
  s.active = !(h.x == 0.0f && h.y == 0.0f);
  const float m = polar(h, s.e);
  const float r = is_cancelled(h, b) ? recomputed : m - b;
  s.ratio = HARD || r < 1.0842022e-19f ? 0.0f : __fdividef(b, r);
  return s;
}

// Gradient with respect to z; adds the one with respect to b to db.
__device__ __forceinline__ float2 pull_back(float2 g, const Slope& s, float& db) {
  if (!HARD) {
    const float along = fmaf(g.x, s.e.x, g.y * s.e.y), across = s.ratio * fmaf(g.y, s.e.x, -g.x * s.e.y);
    db += s.active ? along : 0.0f;
    g = make_float2(fmaf(-across, s.e.y, g.x), fmaf(across, s.e.x, g.y));
  }
  return s.active ? g : make_float2(0.0f, 0.0f);
}
