// What launchers and the runtime agree on. Kernels are compiled without any system header, so only built-in
// types appear here. The Go mirror of these structs is launch.go.
#pragma once
extern "C" {
enum { MSL_BINDINGS = 31, MSL_CONSTANTS = 64 };

// The identity of one thread; positions are x, y, z.
struct msl_thread {
  unsigned position_in_grid[3], position_in_group[3], group_position[3], groups[3], threads[3], grid[3];
  unsigned index[3], simdgroup[3], lane[3], simdgroups[3]; // the first counts, the others are 0
};

// The bindings of a dispatch.
struct msl_args {
  void *buffer[MSL_BINDINGS];
  unsigned long length[MSL_BINDINGS]; // bytes from the bound offset to the end
  void *threadgroup_memory[MSL_BINDINGS];
};

// The function constants of a pipeline.
struct msl_constants {
  unsigned value[MSL_CONSTANTS];
  unsigned long defined; // one bit a constant
};

// Runs for all lanes of a simdgroup at once; active has one bit a lane that called.
typedef void (*msl_collective)(void **payloads, unsigned active);


void msl_rt_barrier(int flags, const char *file, int line);
void msl_rt_simd_barrier(int flags, const char *file, int line);
void msl_rt_simd(msl_collective op, void *payload, const char *file, int line);
void *msl_rt_array(int slot, const char *name, unsigned long bytes, unsigned long align);
void msl_rt_short_binding(int index, unsigned long have, unsigned long need);
void msl_rt_missing_constant(const char *name, int index);

enum { MSL_PRODUCTS = 64 };

// One product of simdgroup matrices that waits to be computed, with the operands of all lanes: two elements
// each, in the low bytes.
struct msl_product {
  void *result[32];
  unsigned long a[32], b[32], start[32];
  void (*run[32])(msl_product *);
  int line[32];
  const char *file;
};

// What a lane has waiting. The rows are shared by its simdgroup, and row i is the i-th product of each lane.
struct msl_pending {
  unsigned count;
  unsigned epoch; // of a matrix that waits for its value; grows when the products are computed
  msl_product *rows;
};
void msl_rt_settle(const char *file, int line);

// What the running lane needs at hand.
struct msl_here {
  int lane;
  const msl_constants *constants;
  msl_pending *pending;
};
extern __thread __attribute__((tls_model("initial-exec"), visibility("default"))) msl_here msl_now;
}
