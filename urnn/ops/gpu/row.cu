// The recurrence for hidden sizes whose W fits into registers: CLUSTER blocks hold it together and work on one row of
// the batch.
//
// Sequences are (T, E, B, N), complex. Thread (p, q), q < LANES, holds the entries of W in rows ROWS p .. ROWS p + ROWS
// - 1 of the block's UNITS and columns 2 (q + LANES j), 2 (q + LANES j) + 1, so that the LANES distinct reads of the
// state in a warp lie side by side. The partial sums meet by shuffles; afterwards a thread holds one complete unit, the
// same in COPIES threads.
//
// A step is a chain of latencies with the products in its middle. What is not on the chain comes early: inputs are
// copied to shared memory AHEAD steps before their use, each by the thread that needs it.
//
// Note [Passing the state on]
// Each block keeps the whole state, twice in turn. In a cluster a finished unit is sent into the memory of every block,
// and the hardware counts the bytes at that block's mbarrier: a warp goes on when all of the state has come. A state is
// written over only after all of the next one is there, for which every warp had to read it.
//
// Compiled for each N. N, ROWS, LANES, CLUSTER, HARD are macros.
#include "modrelu.cuh"

constexpr int UNITS = (N + CLUSTER * ROWS - 1) / (CLUSTER * ROWS) * ROWS;  // of a block
constexpr int THREADS = (UNITS / ROWS * LANES + 31) / 32 * 32;
constexpr int COPIES = LANES / ROWS;
constexpr int CHUNKS = (N + 2 * LANES - 1) / (2 * LANES);  // pairs of columns of a thread
constexpr int PADDED = 2 * LANES * CHUNKS;
constexpr int AHEAD = 8;

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ float2 exchange(float2 v, int lane_mask) {
  return make_float2(__shfl_xor_sync(~0u, v.x, lane_mask), __shfl_xor_sync(~0u, v.y, lane_mask));
}

// The numbers that one thread needs of a sequence, one for each step: a ring of copies in shared memory.
template <typename Number>
struct Stream {
  const char* source;
  long long move;
  unsigned first, asked, taken;  // shared addresses
  static constexpr int BYTES = sizeof(Number), PITCH = BYTES * THREADS;

  __device__ __forceinline__ Stream(const void* from, long long move_bytes, Number* ring)
      : source(static_cast<const char*>(from)), move(move_bytes) {
    first = asked = taken = shared_address(ring + threadIdx.x);
  }
  __device__ __forceinline__ unsigned after(unsigned place) const {
    return place == first + (AHEAD - 1) * PITCH ? first : place + PITCH;
  }
  __device__ __forceinline__ void ask(bool wanted) {
    if (wanted)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(asked), "l"(source), "n"(BYTES) : "memory");
    source += move;
    asked = after(asked);
  }
  __device__ __forceinline__ void take(float2& v) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(taken) : "memory");
    taken = after(taken);
  }
  __device__ __forceinline__ void take(float& v) {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(taken) : "memory");
    taken = after(taken);
  }
};

__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void await_group() { asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory"); }

__device__ __forceinline__ unsigned rank_in_cluster() {
  unsigned rank = 0;
  if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_barrier() {
  if (CLUSTER > 1)
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  else
    __syncthreads();
}

// Who a thread is.
struct Seat {
  int q, first, unit, copy;  // first of the units that it works on; the one that ends here; which of its copies
  int member, row;           // of all E, of all E B
  bool exists, owner;        // whether there is such a unit; whether this thread writes it to the output

  __device__ __forceinline__ Seat(int B) {
    q = threadIdx.x % LANES;
    const int within = threadIdx.x / LANES * ROWS, before = rank_in_cluster() * UNITS;
    int slot = within;
#pragma unroll
    for (int half = ROWS / 2, bit = 1; half >= 1; half /= 2, bit *= 2) slot += (q & bit) ? half : 0;
    first = before + within;
    unit = before + slot;
    copy = q / ROWS;
    row = blockIdx.x / CLUSTER;
    member = row / B;
    exists = slot < UNITS && unit < N;
    owner = exists && copy == 0;
    if (!exists) unit = 0;
  }
};

struct Shared {
  float2 state[2][PADDED];
  unsigned long long come[2];
};

__device__ __forceinline__ unsigned in_block(unsigned address, unsigned rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// The state as one thread uses it. `turn`, 0 or 1, says which of the two.
struct State {
  unsigned read[2], own[2], come[2];  // shared addresses: first pair to read; the unit; the mbarrier
  unsigned there[2], there_come[2];   // the unit and the mbarrier in the block that this thread sends to
  unsigned parity;

  __device__ __forceinline__ State(Shared& shared, const Seat& seat) : parity(0) {
#pragma unroll
    for (int turn = 0; turn < 2; ++turn) {
      read[turn] = shared_address(&shared.state[turn][2 * seat.q]);
      own[turn] = shared_address(&shared.state[turn][seat.unit]);
      come[turn] = shared_address(&shared.come[turn]);
      if (CLUSTER > 1) {
        there[turn] = in_block(own[turn], seat.copy % CLUSTER);
        there_come[turn] = in_block(come[turn], seat.copy % CLUSTER);
      }
    }
  }

  __device__ __forceinline__ void expect(int turn) const {
    if (CLUSTER > 1 && threadIdx.x == 0)
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(come[turn]), "n"(8 * N) : "memory");
  }

  // Until the state is complete.
  __device__ __forceinline__ void wait(int turn) const {
    if (CLUSTER == 1) return;
    asm volatile(
        "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(
            come[turn]),
        "r"(parity)
        : "memory");
    expect(turn);  // the state after the next
  }

  __device__ __forceinline__ void send(const Seat& seat, int turn, float2 v) const {
    if (CLUSTER == 1) {
      if (seat.owner)
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(own[turn]), "f"(v.x), "f"(v.y) : "memory");
      __syncthreads();
      return;
    }
    static_assert(CLUSTER == 1 || COPIES == CLUSTER, "each copy of a unit goes to one block");
    if (seat.exists)
      asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                       there[turn]),
                   "f"(v.x), "f"(v.y), "r"(there_come[turn])
                   : "memory");
  }
};

// Clear the states, fill the first with row `row` of `h_0` (null: zero), set up the mbarriers.
__device__ __forceinline__ void set_up(Shared& shared, const Seat& seat, const State& state, const float2* h_0) {
  for (int k = threadIdx.x; k < PADDED; k += THREADS) {
    shared.state[0][k] = h_0 && k < N ? h_0[(size_t)seat.row * N + k] : make_float2(0.0f, 0.0f);
    shared.state[1][k] = make_float2(0.0f, 0.0f);
  }
  if (CLUSTER > 1 && threadIdx.x == 0) {
    for (int turn = 0; turn < 2; ++turn)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(state.come[turn]) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    state.expect(0), state.expect(1);
  }
  cluster_barrier();
}

struct Matrix {
  float2 w[ROWS][2 * CHUNKS];

  template <typename Entry>
  __device__ __forceinline__ Matrix(const Seat& seat, Entry entry) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
      for (int c = 0; c < 2 * CHUNKS; ++c) {
        const int i = seat.first + r, k = 2 * (seat.q + LANES * (c / 2)) + c % 2;
        w[r][c] = i < N && k < N ? entry(i, k) : make_float2(0.0f, 0.0f);
      }
  }

  // The unit of this thread in the product with the state whose first pair for this thread is at `state`.
  __device__ __forceinline__ float2 apply(const Seat& seat, unsigned state) const {
    float2 acc[ROWS], turned[ROWS];  // products with the real and with the imaginary parts
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = turned[r] = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int j = 0; j < CHUNKS; ++j) {
      float4 v;
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                   : "r"(state + 16 * LANES * j)
                   : "memory");
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float re = n ? v.z : v.x, im = n ? v.w : v.y;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const float2 a = w[r][2 * j + n];
          acc[r] = make_float2(fmaf(a.x, re, acc[r].x), fmaf(a.y, re, acc[r].y));
          turned[r] = make_float2(fmaf(-a.y, im, turned[r].x), fmaf(a.x, im, turned[r].y));
        }
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) acc[r] = add(acc[r], turned[r]);
#pragma unroll
    for (int size = ROWS / 2, bit = 1; size >= 1; size /= 2, bit *= 2) {
      const bool upper = seat.q & bit;
#pragma unroll
      for (int r = 0; r < size; ++r) {
        const float2 give = upper ? acc[r] : acc[r + size];
        acc[r] = add(upper ? acc[r + size] : acc[r], exchange(give, bit));
      }
    }
#pragma unroll
    for (int bit = ROWS; bit < LANES; bit *= 2) acc[0] = add(acc[0], exchange(acc[0], bit));
    return acc[0];
  }
};

// lengths: null for T everywhere.
extern "C" __global__ void __launch_bounds__(THREADS)
    row_forward(const float2* __restrict__ u, const float2* __restrict__ W, const float* __restrict__ b,
                const float2* __restrict__ h_0, const long long* __restrict__ lengths, float2* __restrict__ h, int T,
                int E, int B, int reverse) {
  __shared__ __align__(16) Shared shared;
  __shared__ float2 ring[AHEAD * THREADS];
  const Seat seat(B);
  State state(shared, seat);
  const int length = lengths ? (int)lengths[seat.row] : T;
  W += (size_t)seat.member * N * N;
  const Matrix matrix(seat, [&](int i, int k) { return W[(size_t)i * N + k]; });
  set_up(shared, seat, state, h_0);
  const long long step = (long long)E * B * N, move = reverse ? -step : step;
  const long long first = (long long)seat.row * N + seat.unit, at = first + (reverse ? (length - 1) * step : 0);
  if (seat.owner)
    for (int t = length; t < T; ++t) h[first + t * step] = make_float2(0.0f, 0.0f);
  const float bias = b[seat.member * N + seat.unit];
  Stream<float2> inputs(u + at, 8 * move, ring);
  float2* target = h + at;
  for (int s = 0; s < AHEAD; ++s) {
    inputs.ask(s < length);
    close_group();
  }
  int left = length;
  auto advance = [&](int turn, bool first_step) {
    float2 z;
    await_group();
    inputs.take(z);
    if (!first_step) state.wait(turn);
    z = add(matrix.apply(seat, state.read[turn]), z);
    const float2 h_t = sigma(z, bias);
    state.send(seat, 1 - turn, h_t);
    if (seat.owner) *target = h_t;
    target += move;
    inputs.ask(left > AHEAD);
    close_group();
    --left;
  };
  if (left > 0) advance(0, true);
  while (left > 0) {
    advance(1, false);
    if (left > 0) advance(0, false);
    state.parity ^= 1;
  }
  cluster_barrier();
}

// grad_h, grad_h_n: null for zero. dz holds on entry |z| in its real part wherever is_cancelled(h, b); db is (E B, N).
extern "C" __global__ void __launch_bounds__(THREADS)
    row_backward(const float2* __restrict__ grad_h, const float2* __restrict__ grad_h_n, const float2* __restrict__ h,
                 const float2* __restrict__ W, const float* __restrict__ b, const long long* __restrict__ lengths,
                 float2* dz, float* __restrict__ db, int T, int E, int B, int reverse) {
  __shared__ __align__(16) Shared shared;
  __shared__ float2 ring_h[AHEAD * THREADS], ring_grad[AHEAD * THREADS];
  __shared__ float ring_z[AHEAD * THREADS];
  const float2 zero = make_float2(0.0f, 0.0f);
  const Seat seat(B);
  State state(shared, seat);
  const int length = lengths ? (int)lengths[seat.row] : T;
  W += (size_t)seat.member * N * N;
  const Matrix matrix(seat, [&](int i, int k) {  // W^H
    const float2 v = W[(size_t)k * N + i];
    return make_float2(v.x, -v.y);
  });
  for (int k = threadIdx.x; k < AHEAD * THREADS; k += THREADS) ring_grad[k] = zero, ring_z[k] = 0.0f;
  set_up(shared, seat, state, nullptr);
  const long long step = (long long)E * B * N, move = reverse ? step : -step;
  const long long first = (long long)seat.row * N + seat.unit, at = first + (reverse ? 0 : (length - 1) * step);
  if (seat.owner)
    for (int t = length; t < T; ++t) dz[first + t * step] = zero;
  const float bias = b[seat.member * N + seat.unit];
  const bool has_grad = grad_h != nullptr, may_cancel = !HARD && bias > 0.0f;
  Stream<float2> states(h + at, 8 * move, ring_h), grads(has_grad ? grad_h + at : nullptr, 8 * move, ring_grad);
  Stream<float> moduli(dz + at, 8 * move, ring_z);
  auto ask = [&](bool wanted) {
    states.ask(wanted);
    grads.ask(wanted && has_grad);
    moduli.ask(wanted && may_cancel);
    close_group();
  };
  float2* target = dz + at;
  for (int s = 0; s < AHEAD; ++s) ask(s < length);
  int left = length;
  float sum = 0.0f;
  auto advance = [&](int turn, bool first_step) {
    float2 state_now, total;
    float modulus;
    await_group();
    states.take(state_now);
    grads.take(total);
    moduli.take(modulus);
    const Slope now = slope(state_now, bias, modulus);
    float2 carry;
    if (first_step) {
      carry = grad_h_n ? grad_h_n[first] : zero;
    } else {
      state.wait(turn);
      carry = matrix.apply(seat, state.read[turn]);
    }
    const float2 d = pull_back(add(total, carry), now, sum);
    state.send(seat, 1 - turn, d);
    if (seat.owner) *target = d;
    target += move;
    ask(left > AHEAD);
    --left;
  };
  if (left > 0) advance(0, true);
  while (left > 0) {
    advance(1, false);
    if (left > 0) advance(0, false);
    state.parity ^= 1;
  }
  if (seat.owner) db[first] = sum;
  cluster_barrier();
}
