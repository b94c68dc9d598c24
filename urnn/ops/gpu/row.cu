// The recurrence with one block for each row of the batch: W lies in its registers, the state in its shared memory.
//
// Sequences are (T, E, B, N), complex. A block serves row `blockIdx.x` of the E B rows. Thread (p, q), q < LANES, works
// on the units ROWS p .. ROWS p + ROWS - 1, and on every LANES-th pair of columns, so that the reads of a warp lie side
// by side. The partial sums meet by shuffles; afterwards a thread holds one complete unit, the same in LANES / ROWS
// threads.
//
// Note [Parts instead of a barrier]
// The units fall into PARTS parts, each the work of its own warps. When a warp has stored its units it says so at the
// part's mbarrier; who needs the state waits for one part after the other, and has work while the later ones are still
// being finished. There are two states and two mbarriers for each part, in turn: a state is written over only after all
// parts of the next one are there, for which every warp had to read it.
//
// Compiled for each N. N, ROWS, LANES, PARTS, HARD are macros.
#include "modrelu.cuh"

constexpr int UNITS = (N + PARTS * ROWS - 1) / (PARTS * ROWS) * ROWS;               // of a part
constexpr int WARPS = (UNITS / ROWS * LANES + 31) / 32;                             // of a part
constexpr int THREADS = 32 * WARPS * PARTS;
constexpr int CHUNKS = (UNITS + 2 * LANES - 1) / (2 * LANES);                       // pairs of columns of a thread and part
constexpr int PITCH = 2 * LANES * CHUNKS;                                           // of a part of the state
constexpr int COLUMNS = 2 * CHUNKS * PARTS;                                         // of a thread
constexpr int AHEAD = 8;                                                            // steps by which inputs are asked for

__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

__device__ __forceinline__ float2 exchange(float2 v, int lane_mask) {
  return make_float2(__shfl_xor_sync(~0u, v.x, lane_mask), __shfl_xor_sync(~0u, v.y, lane_mask));
}

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// The two states and what tells of them.
struct Exchange {
  float2 state[2][PARTS][PITCH];
  unsigned long long done[2][PARTS];
};

// Who a thread is.
struct Seat {
  int part, q, first, unit, lane;  // unit: the one that ends here; first: of those it works on; within the part
  bool owner;

  __device__ __forceinline__ Seat() {
    part = threadIdx.x / (32 * WARPS);
    const int within = threadIdx.x % (32 * WARPS);
    q = within % LANES;
    first = within / LANES * ROWS;
    unit = first;
#pragma unroll
    for (int half = ROWS / 2, bit = 1; half >= 1; half /= 2, bit *= 2) unit += (q & bit) ? half : 0;
    lane = threadIdx.x % 32;
    owner = q / ROWS == 0 && unit < UNITS && part * UNITS + unit < N;
  }

  __device__ __forceinline__ int index() const { return part * UNITS + unit; }
};

__device__ __forceinline__ void arrive(unsigned barrier) {
  asm volatile("{\n.reg .b64 t;\nmbarrier.arrive.release.cta.shared::cta.b64 t, [%0];\n}" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
      ::"r"(barrier), "r"(parity)
      : "memory");
}

// entry(i, k): of the matrix. The columns of the own part come first: they are there first.
struct Matrix {
  float2 w[ROWS][COLUMNS];

  template <typename Entry>
  __device__ __forceinline__ Matrix(const Seat& seat, Entry entry) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const int part = (seat.part + c / (2 * CHUNKS)) % PARTS, j = c % (2 * CHUNKS) / 2;
      const int k = 2 * (seat.q + LANES * j) + c % 2;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int i = seat.part * UNITS + seat.first + r;
        const bool in = seat.first + r < UNITS && i < N && k < UNITS && part * UNITS + k < N;
        w[r][c] = in ? entry(i, part * UNITS + k) : make_float2(0.0f, 0.0f);
      }
    }
  }

  // The unit of this thread in the product with the state at shared address `state`; `done`: of its mbarriers.
  __device__ __forceinline__ float2 apply(const Seat& seat, unsigned state, unsigned done, unsigned parity,
                                          bool ready) const {
    float2 acc[ROWS], turned[ROWS];  // products with the real and with the imaginary parts
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = turned[r] = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int n = 0; n < PARTS; ++n) {
      const int part = PARTS == 1 ? 0 : (seat.part + n) % PARTS;
      if (!ready) wait(done + 8 * part, parity);
      const unsigned from = state + 8 * PITCH * part + 16 * seat.q;
#pragma unroll
      for (int j = 0; j < CHUNKS; ++j) {
        float4 v;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(from + 16 * LANES * j)
                     : "memory");
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float re = half ? v.z : v.x, im = half ? v.w : v.y;
#pragma unroll
          for (int r = 0; r < ROWS; ++r) {
            const float2 a = w[r][2 * (CHUNKS * n + j) + half];
            acc[r] = make_float2(fmaf(a.x, re, acc[r].x), fmaf(a.y, re, acc[r].y));
            turned[r] = make_float2(fmaf(-a.y, im, turned[r].x), fmaf(a.x, im, turned[r].y));
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = add(acc[r], turned[r]);
#pragma unroll
    for (int half = ROWS / 2, bit = 1; half >= 1; half /= 2, bit *= 2) {
      const bool upper = seat.q & bit;
#pragma unroll
      for (int r = 0; r < half; ++r) {
        const float2 give = upper ? acc[r] : acc[r + half];
        acc[r] = add(upper ? acc[r + half] : acc[r], exchange(give, bit));
      }
    }
#pragma unroll
    for (int bit = ROWS; bit < LANES; bit *= 2) acc[0] = add(acc[0], exchange(acc[0], bit));
    return acc[0];
  }
};

// The shared memory as one thread uses it: where it reads and writes now, and in turn.
struct Turn {
  unsigned state, target, wait_done, tell_done, parity;  // shared addresses
  unsigned both_state, both_target, both_wait, both_tell;

  __device__ __forceinline__ Turn(Exchange& x, const Seat& seat) {
    state = shared_address(x.state[0]);
    both_state = state + shared_address(x.state[1]);
    target = shared_address(&x.state[1][seat.part][seat.unit % PITCH]);
    both_target = target + shared_address(&x.state[0][seat.part][seat.unit % PITCH]);
    wait_done = shared_address(x.done[0]);
    both_wait = wait_done + shared_address(x.done[1]);
    tell_done = shared_address(&x.done[1][seat.part]);
    both_tell = tell_done + shared_address(&x.done[0][seat.part]);
    parity = 1;  // of what is waited for: 0 in steps 1 and 2, 1 in 3 and 4, ...
  }

  __device__ __forceinline__ void store(const Seat& seat, float2 v) {
    if (seat.owner)
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(target), "f"(v.x), "f"(v.y) : "memory");
    __syncwarp();
    if (seat.lane == 0) arrive(tell_done);
  }

  __device__ __forceinline__ void swap(int step) {
    state = both_state - state;
    target = both_target - target;
    wait_done = both_wait - wait_done;
    tell_done = both_tell - tell_done;
    parity ^= ~step & 1;
  }
};

// Clear the states, fill the first with `h_0` (null: zero), set up the mbarriers.
__device__ __forceinline__ void set_up(Exchange& x, const float2* h_0) {
  for (int k = threadIdx.x; k < 2 * PARTS * PITCH; k += THREADS) x.state[0][0][k] = make_float2(0.0f, 0.0f);
  if (threadIdx.x < 2 * PARTS)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&x.done[0][threadIdx.x])), "r"(WARPS));
  __syncthreads();
  if (h_0)
    for (int k = threadIdx.x; k < N; k += THREADS) x.state[0][k / UNITS][k % UNITS] = h_0[k];
  __syncthreads();
}

// lengths: null for T everywhere.
extern "C" __global__ void __launch_bounds__(THREADS)
    row_forward(const float2* __restrict__ u, const float2* __restrict__ W, const float* __restrict__ b,
                const float2* __restrict__ h_0, const long long* __restrict__ lengths, float2* __restrict__ h, int T,
                int E, int B, int reverse) {
  __shared__ __align__(16) Exchange shared;
  const Seat seat;
  const int row = blockIdx.x, member = row / B, length = lengths ? (int)lengths[row] : T;
  W += (size_t)member * N * N;
  const Matrix matrix(seat, [&](int i, int k) { return W[(size_t)i * N + k]; });
  set_up(shared, h_0 + (size_t)row * N);
  const long long step = (long long)E * B * N, move = reverse ? -step : step, ahead = AHEAD * move;
  const int index = seat.owner ? seat.index() : 0;
  if (seat.owner)
    for (int t = length; t < T; ++t) h[(long long)row * N + index + t * step] = make_float2(0.0f, 0.0f);
  if (length <= 0) return;
  const float bias = b[member * N + index];
  const long long at = (long long)row * N + index + (reverse ? (length - 1) * step : 0);
  const float2* source = u + at;
  float2 *target = h + at, next = *source;
  Turn turn(shared, seat);
  for (int s = 0; s < length; ++s) {
    const float2 now = next;
    source += move;
    if (s + 1 < length) next = *source;
    if (s + 1 + AHEAD < length) prefetch(source + ahead);
    const float2 h_t = sigma(add(matrix.apply(seat, turn.state, turn.wait_done, turn.parity, s == 0), now), bias);
    turn.store(seat, h_t);
    if (seat.owner) *target = h_t;
    target += move;
    turn.swap(s);
  }
}

// grad_h, grad_h_n: null for zero. dz holds on entry |z| in its real part wherever is_cancelled(h, b); db is (E B, N).
extern "C" __global__ void __launch_bounds__(THREADS)
    row_backward(const float2* __restrict__ grad_h, const float2* __restrict__ grad_h_n, const float2* __restrict__ h,
                 const float2* __restrict__ W, const float* __restrict__ b, const long long* __restrict__ lengths,
                 float2* dz, float* __restrict__ db, int T, int E, int B, int reverse) {
  __shared__ __align__(16) Exchange shared;
  const Seat seat;
  const float2 zero = make_float2(0.0f, 0.0f);
  const int row = blockIdx.x, member = row / B, length = lengths ? (int)lengths[row] : T;
  W += (size_t)member * N * N;
  const Matrix matrix(seat, [&](int i, int k) {  // W^H
    const float2 v = W[(size_t)k * N + i];
    return make_float2(v.x, -v.y);
  });
  set_up(shared, nullptr);
  const long long step = (long long)E * B * N, move = reverse ? step : -step, ahead = AHEAD * move;
  const int index = seat.owner ? seat.index() : 0;
  const long long first = (long long)row * N + index, at = first + (reverse ? 0 : (length - 1) * step);
  if (seat.owner)
    for (int t = length; t < T; ++t) dz[first + t * step] = zero;
  if (length <= 0) {
    if (seat.owner) db[first] = 0.0f;
    return;
  }
  const float bias = b[member * N + index];
  const bool may_cancel = !HARD && bias > 0.0f, has_grad = grad_h != nullptr;
  const float2 *state_at = h + at, *grad_at = has_grad ? grad_h + at : h + at;
  float2 *target = dz + at, state_next = *state_at, grad_next = has_grad ? *grad_at : zero;
  float recomputed_next = may_cancel ? target->x : 0.0f, sum = 0.0f;
  float2 carry = grad_h_n ? grad_h_n[first] : zero;
  Turn turn(shared, seat);
  for (int s = 0; s < length; ++s) {
    const Slope now = slope(state_next, bias, recomputed_next);
    const float2 grad = grad_next;
    state_at += move, grad_at += move;
    if (s + 1 < length) {
      state_next = *state_at;
      if (has_grad) grad_next = *grad_at;
      if (may_cancel) recomputed_next = target[move].x;
    }
    if (s + 1 + AHEAD < length) {
      prefetch(state_at + ahead);
      prefetch(grad_at + ahead);
    }
    if (s > 0) carry = matrix.apply(seat, turn.state, turn.wait_done, turn.parity, false);
    const float2 d = pull_back(add(carry, grad), now, sum);
    turn.store(seat, d);
    if (seat.owner) *target = d;
    target += move;
    turn.swap(s);
  }
  if (seat.owner) db[first] = sum;
}
