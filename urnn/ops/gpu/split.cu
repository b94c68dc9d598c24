// The recurrence with W split over the multiprocessors: GROUP blocks hold it together, in registers, and serve the same
// rows of the batch. The products run on tensor cores.
//
// Sequences are (T, E, B, N), complex. A block holds UNITS = 8 TILES rows of W (of W^H in the backward pass). Its 8
// warps split the columns; the rows of the batch come in packs of 8, one after another, so that the way of one pack
// from block to block is hidden behind the work on the others.
//
// Note [The result is its own mailbox]
// Step t needs the whole state t - 1, of which every block of the group makes a part. It is passed on through the
// output tensor itself. The caller fills that with the bit pattern EMPTY (a NaN that arithmetic here never leaves); a
// block reads the state until nothing is empty. One store of 8 bytes carries a number, so its imaginary part tells
// for both: no flag, no fence, no barrier over the grid. All blocks must be resident: the launch is cooperative.
//
// Note [Layout of a product]
// One mma multiplies 16 x 8 by 8 x 8 reals. Eight complex rows of W make the 16: their real parts on top, the imaginary
// ones below. Eight rows of the batch make the columns, once with the real and once with the imaginary parts of the
// state. A thread then holds all four products of a unit; and what it needs of W and of the state for one mma lies in
// 16 consecutive bytes, as the order of the columns of W is free: it takes columns 2 q, 2 q + 1 where the instruction
// says q, q + 4.
//
// Note [Single precision on tensor cores]
// TF32 = 0 splits each factor into a rounded one of 11 bits and the rest, and sums the three products that matter. The
// unit truncates its sums. Over hundreds of steps that would wear the state away, where rounding errors average out; so
// each sum is started at zero and added up by ordinary additions, and 5 of 14 are raised by one unit in the last place:
// what truncation takes on the average (0.72 / 2 units; the mantissas of sums are spread as 1/m).
//
// Compiled for each N. N, TILES, TF32, HARD are macros.
#include "modrelu.cuh"

constexpr int WARPS = 8, THREADS = 32 * WARPS, PACK = 8;
constexpr int UNITS = 8 * TILES, GROUP = (N + UNITS - 1) / UNITS;
constexpr int DEPTH = (N + 8 * WARPS - 1) / (8 * WARPS);  // mma steps of a warp, of 8 complex columns
constexpr int ROW_PITCH = UNITS + 2;                      // free of bank conflicts
constexpr unsigned EMPTY = 0xffffffffu;
constexpr int PATIENCE = 1 << 24;  // reads of a mailbox before the kernel gives up

// The block's shared memory: this, then Incoming::place, then Matrix::low.
struct Sums {
  float2 part[2][WARPS][PACK][ROW_PITCH];
  float2 inputs[2][THREADS];  // what each thread needs at its desk, copied one pack ahead
  float moduli[THREADS];
};

__device__ __forceinline__ float rounded(float x) {  // to 11 bits
  return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}

__device__ __forceinline__ void multiply(float (&d)[4], const float (&a)[4], float b0, float b1, const float (&c)[4]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, "
      "%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// Two neighbouring numbers; 0 for the second where there is none.
__device__ __forceinline__ float4 read_pair(const float2* address, bool second) {
  unsigned long long a, c = 0;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(a) : "l"(address) : "memory");
  if (second) asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(c) : "l"(address + 1) : "memory");
  return make_float4(__uint_as_float((unsigned)a), __uint_as_float((unsigned)(a >> 32)), __uint_as_float((unsigned)c),
                     __uint_as_float((unsigned)(c >> 32)));
}

__device__ __forceinline__ void send(float2* address, float2 v) {
  unsigned im = __float_as_uint(v.y);
  if (im == EMPTY) im = 0x7fc00000u;
  const unsigned long long word = (unsigned long long)im << 32 | __float_as_uint(v.x);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}

template <typename Number>
__device__ __forceinline__ void copy_ahead(Number& place, const Number* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((unsigned)__cvta_generic_to_shared(&place)), "l"(from),
               "n"(sizeof(Number))
               : "memory");
}

// One thread's part of a pack of states: DEPTH pairs of complex numbers, which it copies to its own places in shared
// memory and nobody else reads. Odd N has no aligned pairs: there the copies are made while waiting.
struct Incoming {
  float4* place;  // [DEPTH][THREADS]

  __device__ __forceinline__ Incoming(float4* shared) : place(shared + threadIdx.x) {
#pragma unroll
    for (int j = 0; j < DEPTH; ++j) place[j * THREADS] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }

  __device__ __forceinline__ static int column(int j) {
    return (threadIdx.x / 32 * DEPTH + j) * 8 + 2 * (threadIdx.x % 4);
  }

  __device__ __forceinline__ static bool has(int j) { return N % (8 * WARPS) == 0 || column(j) < N; }

  __device__ __forceinline__ void ask(const float2* row, int j) {
    if (N % 2 == 0 && has(j))
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(place + j * THREADS)),
                   "l"(row + column(j))
                   : "memory");
  }

  __device__ __forceinline__ float4 take(int j) const { return place[j * THREADS]; }

  // Until all of what was asked for has come from `row`; is_mail: whether it may still be on its way to there.
  __device__ __forceinline__ void wait(const float2* row, bool is_mail) {
    for (int patience = PATIENCE;;) {
      asm volatile("cp.async.wait_all;" ::: "memory");
      if (N % 2 != 0) {
#pragma unroll
        for (int j = 0; j < DEPTH; ++j)
          if (has(j)) place[j * THREADS] = read_pair(row + column(j), column(j) + 1 < N);
      }
      unsigned missing = 0;
#pragma unroll
      for (int j = 0; j < DEPTH; ++j) {
        const float4 v = take(j);
        missing |= (__float_as_uint(v.y) == EMPTY || __float_as_uint(v.w) == EMPTY ? 1u : 0u) << j;
      }
      if (!missing || !is_mail) return;
#pragma unroll
      for (int j = 0; j < DEPTH; ++j)
        if (missing >> j & 1) ask(row, j);
      if (--patience < 0) __trap();
    }
  }
};

// The block's part of a matrix, and its products with packs of states.
struct Matrix {
  float high[DEPTH][TILES][4];
  float4* low;  // [DEPTH][TILES][THREADS]; for TF32 = 0

  // entry(i, k): row i of the block's matrix, column k.
  template <typename Entry>
  __device__ __forceinline__ void load(float4* shared, Entry entry) {
    low = shared + threadIdx.x;
    const int first = blockIdx.x % GROUP * UNITS + threadIdx.x % 32 / 4;
#pragma unroll
    for (int j = 0; j < DEPTH; ++j)
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
        const int i = first + 8 * m, k = Incoming::column(j);
        const float2 a = i < N && k < N ? entry(i, k) : make_float2(0.0f, 0.0f);
        const float2 c = i < N && k + 1 < N ? entry(i, k + 1) : make_float2(0.0f, 0.0f);
        const float whole[4] = {a.x, a.y, c.x, c.y};
#pragma unroll
        for (int n = 0; n < 4; ++n) high[j][m][n] = rounded(whole[n]);
        if (!TF32)
          low[(j * TILES + m) * THREADS] = make_float4(whole[0] - high[j][m][0], whole[1] - high[j][m][1],
                                                       whole[2] - high[j][m][2], whole[3] - high[j][m][3]);
      }
  }

  // The warp's part of the product with a pack, into `part`. Then asks for the pack after it, in row `next` (null: none).
  __device__ __forceinline__ void apply(Incoming& in, const float2* next, float2 (&part)[PACK][ROW_PITCH]) const {
    const float zero[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float re[TILES][4] = {}, im[TILES][4] = {};  // products with the real and with the imaginary parts of the states
#pragma unroll
    for (int j = 0; j < DEPTH; ++j) {
      const float4 v = in.take(j);
      const float b[4] = {rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w)};
      const float rest[4] = {v.x - b[0], v.y - b[1], v.z - b[2], v.w - b[3]};
      if (TF32) {
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          multiply(re[m], high[j][m], b[0], b[2], re[m]);
          multiply(im[m], high[j][m], b[1], b[3], im[m]);
        }
        continue;
      }
      const float raise = (threadIdx.x / 32 * DEPTH + j) * 5 % 14 < 5 ? 1.0f + 0x1p-23f : 1.0f;
      constexpr int SIDE = TILES < 2 ? TILES : 2;  // tiles side by side: four products in flight hide the latency of one
#pragma unroll
      for (int side = 0; side < TILES; side += SIDE) {
        float p[SIDE][4], q[SIDE][4];
#pragma unroll
        for (int m = 0; m < SIDE; ++m) {
          const float4 l = low[(j * TILES + side + m) * THREADS];
          const float a[4] = {l.x, l.y, l.z, l.w};
          multiply(p[m], a, b[0], b[2], zero);
          multiply(q[m], a, b[1], b[3], zero);
        }
#pragma unroll
        for (int m = 0; m < SIDE; ++m) {
          multiply(p[m], high[j][side + m], rest[0], rest[2], p[m]);
          multiply(q[m], high[j][side + m], rest[1], rest[3], q[m]);
        }
#pragma unroll
        for (int m = 0; m < SIDE; ++m) {
          multiply(p[m], high[j][side + m], b[0], b[2], p[m]);
          multiply(q[m], high[j][side + m], b[1], b[3], q[m]);
        }
#pragma unroll
        for (int m = 0; m < SIDE; ++m)
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            re[side + m][n] = fmaf(p[m][n], raise, re[side + m][n]);
            im[side + m][n] = fmaf(q[m][n], raise, im[side + m][n]);
          }
      }
    }
    if (next) {
#pragma unroll
      for (int j = 0; j < DEPTH; ++j) in.ask(next, j);
    }
    const int row = 2 * (threadIdx.x % 4), unit = threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n)
        part[row + n][8 * m + unit] = make_float2(re[m][n] - im[m][2 + n], im[m][n] + re[m][2 + n]);
  }
};

// What one thread finishes: a unit of a row of the pack. With TILES < 4 some threads have none.
struct Desk {
  int unit, slot;  // in the matrix, and row in the pack
  bool taken;

  __device__ __forceinline__ Desk() {
    unit = blockIdx.x % GROUP * UNITS + threadIdx.x % UNITS;
    slot = threadIdx.x / UNITS;
    taken = slot < PACK && unit < N;
  }

  __device__ __forceinline__ float2 total(const Sums& sums, int buffer) const {
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum = add(sum, sums.part[buffer][w][slot][threadIdx.x % UNITS]);
    return sum;
  }
};
static_assert(UNITS * PACK <= THREADS, "a thread finishes one unit at most");

// The rows of a group: `packs` packs from `first` on, of member `member`.
struct Rows {
  int member, first, packs;

  __device__ __forceinline__ Rows(int B, int groups, int packs_each) {
    const int group = blockIdx.x / GROUP, all = (B + PACK - 1) / PACK;
    member = group / groups;
    first = group % groups * packs_each;
    packs = min(packs_each, all - first);
  }
};

// W: (E', N, N) of the E' members of this launch. b: (E', N). u, h: offset to the first of them; lengths, h_0 likewise.
// E: members of the whole ensemble, which the sequences hold side by side. lengths: null for T everywhere.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    split_forward(const float2* __restrict__ u, const float2* __restrict__ W, const float* __restrict__ b,
                  const float2* __restrict__ h_0, const long long* __restrict__ lengths, float2* h, int T, int B,
                  int E, int groups, int packs_each, int reverse) {
  extern __shared__ __align__(16) unsigned char memory[];
  Sums& sums = *reinterpret_cast<Sums*>(memory);
  const long long step = (long long)E * B * N;
  const Rows rows(B, groups, packs_each);
  const Desk desk;
  const size_t base = (size_t)rows.member * B;  // rows before those of the member
  Matrix matrix;
  const float2* mine = W + (size_t)rows.member * N * N;
  matrix.load(reinterpret_cast<float4*>(memory + sizeof(Sums)) + DEPTH * THREADS,
              [&](int i, int k) { return mine[(size_t)i * N + k]; });
  const float bias = desk.taken ? b[rows.member * N + desk.unit] : 0.0f;
  const int reader = threadIdx.x % 32 / 4;  // row of the pack that this thread reads for the product

  const int phases = T * rows.packs;
  auto time_of = [&](int s) { return reverse ? T - 1 - s : s; };
  // The state before step s of the row that this thread reads; h_0 is no mail: it may hold anything.
  auto previous = [&](int s, int pack, bool& is_mail) {
    const size_t row = base + min((rows.first + pack) * PACK + reader, B - 1);
    const int before = time_of(s - 1);
    is_mail = s > 0 && !(lengths && before >= (int)lengths[row]);
    return is_mail ? h + before * step + row * N : h_0 + row * N;
  };
  auto input = [&](int s, int pack) -> const float2* {
    const int row = (rows.first + pack) * PACK + desk.slot;
    return desk.taken && row < B ? u + time_of(s) * step + (base + row) * N + desk.unit : nullptr;
  };

  Incoming in(reinterpret_cast<float4*>(memory + sizeof(Sums)));
  bool is_mail;
  const float2* source = previous(0, 0, is_mail);
#pragma unroll
  for (int j = 0; j < DEPTH; ++j) in.ask(source, j);
  float2& input_now = sums.inputs[0][threadIdx.x];
  const float2* address = input(0, 0);
  if (address) copy_ahead(input_now, address);
  int s = 0, pack = 0;
  for (int phase = 0; phase < phases; ++phase) {
    const int buffer = phase & 1;
    in.wait(source, is_mail);
    int s_next = s, pack_next = pack + 1;
    if (pack_next == rows.packs) s_next = s + 1, pack_next = 0;
    source = phase + 1 < phases ? previous(s_next, pack_next, is_mail) : nullptr;
    matrix.apply(in, source, sums.part[buffer][threadIdx.x / 32]);
    __syncthreads();
    if (address) {
      const int row = (rows.first + pack) * PACK + desk.slot;
      float2 h_t = sigma(add(desk.total(sums, buffer), input_now), bias);
      if (lengths && time_of(s) >= (int)lengths[base + row]) h_t = make_float2(0.0f, 0.0f);
      send(h + time_of(s) * step + (base + row) * N + desk.unit, h_t);
    }
    if (phase + 1 < phases) {
      address = input(s_next, pack_next);
      if (address) {
        copy_ahead(input_now, address);
        if (s_next + 4 < T) asm volatile("prefetch.global.L2 [%0];" ::"l"(address + (reverse ? -4ll : 4ll) * step));
      }
    }
    s = s_next, pack = pack_next;
  }
}

// dz: EMPTY on entry, but for |z| in the real part wherever is_cancelled(h, b). db: (E', B, N), zero on entry.
// grad_h, grad_h_n: null for zero.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    split_backward(const float2* __restrict__ grad_h, const float2* __restrict__ grad_h_n, const float2* __restrict__ h,
                   const float2* __restrict__ W, const float* __restrict__ b, const long long* __restrict__ lengths,
                   float2* dz, float* __restrict__ db, int T, int B, int E, int groups, int packs_each,
                   int reverse) {
  extern __shared__ __align__(16) unsigned char memory[];
  Sums& sums = *reinterpret_cast<Sums*>(memory);
  const long long step = (long long)E * B * N;
  const Rows rows(B, groups, packs_each);
  const Desk desk;
  const float2 zero = make_float2(0.0f, 0.0f);
  const size_t base = (size_t)rows.member * B;
  Matrix matrix;
  const float2* mine = W + (size_t)rows.member * N * N;
  matrix.load(reinterpret_cast<float4*>(memory + sizeof(Sums)) + DEPTH * THREADS, [&](int i, int k) {
    const float2 v = mine[(size_t)k * N + i];
    return make_float2(v.x, -v.y);
  });
  const float bias = desk.taken ? b[rows.member * N + desk.unit] : 0.0f;
  const bool may_cancel = !HARD && bias > 0.0f;
  const int reader = threadIdx.x % 32 / 4;

  const int phases = T * rows.packs;
  auto time_of = [&](int s) { return reverse ? s : T - 1 - s; };
  auto later = [&](int s, int pack) {  // the gradient after step s, in the order of work, of this thread's row
    return dz + time_of(s - 1) * step + (base + min((rows.first + pack) * PACK + reader, B - 1)) * N;
  };
  auto place = [&](int s, int pack) -> ptrdiff_t {  // of this thread's number; -1 for none
    const int row = (rows.first + pack) * PACK + desk.slot;
    return desk.taken && row < B ? time_of(s) * step + (long long)(base + row) * N + desk.unit : -1;
  };

  Incoming in(reinterpret_cast<float4*>(memory + sizeof(Sums)));
  const float2* source = nullptr;
  ptrdiff_t at = place(0, 0);
  float2 &state_now = sums.inputs[0][threadIdx.x], &grad_now = sums.inputs[1][threadIdx.x];
  float& modulus_now = sums.moduli[threadIdx.x];
  state_now = grad_now = zero, modulus_now = 0.0f;
  auto fetch = [&]() {
    if (at < 0) return;
    copy_ahead(state_now, h + at);
    if (grad_h) copy_ahead(grad_now, grad_h + at);
    if (may_cancel) copy_ahead(modulus_now, &dz[at].x);
  };
  fetch();
  int s = 0, pack = 0;
  for (int phase = 0; phase < phases; ++phase) {
    const int buffer = phase & 1;
    int s_next = s, pack_next = pack + 1;
    if (pack_next == rows.packs) s_next = s + 1, pack_next = 0;
    const float2* follows = phase + 1 < phases && s_next > 0 ? later(s_next, pack_next) : nullptr;
    if (s > 0) {
      in.wait(source, true);
      matrix.apply(in, follows, sums.part[buffer][threadIdx.x / 32]);
    } else if (follows) {
#pragma unroll
      for (int j = 0; j < DEPTH; ++j) in.ask(follows, j);
    }
    source = follows;
    if (s == 0) asm volatile("cp.async.wait_all;" ::: "memory");  // later steps have waited for their packs
    const Slope now = slope(state_now, bias, modulus_now);
    const float2 grad = grad_now;
    __syncthreads();
    if (at >= 0) {
      const size_t row = base + (rows.first + pack) * PACK + desk.slot;
      const int length = lengths ? (int)lengths[row] : T;
      float2 carry = zero;
      if (s > 0 && time_of(s - 1) < length)
        carry = desk.total(sums, buffer);
      else if (grad_h_n)
        carry = grad_h_n[row * N + desk.unit];
      float along = 0.0f;
      float2 d = pull_back(add(carry, grad), now, along);
      if (time_of(s) >= length) d = zero, along = 0.0f;
      send(dz + at, d);
      atomicAdd(db + row * N + desk.unit, along);  // of this thread alone: atomic so that nothing waits for it
    }
    if (phase + 1 < phases) {
      at = place(s_next, pack_next);
      fetch();
    }
    s = s_next, pack = pack_next;
  }
}
