// Kernels as fibers: one OS thread runs one threadgroup at a time, and every thread of the group is a fiber
// that gives up the processor only at a barrier or a simdgroup function. Nothing here is shared between
// OS threads but the pool of contexts.
#pragma once
#include "msl_abi.h"
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define STATIC_TLS __thread __attribute__((tls_model("initial-exec")))

enum { LANES = 32, MAX_THREADS = 1024, MAX_SIMDGROUPS = MAX_THREADS / LANES };
enum { DECLARED_ARRAYS = 32, ARRAYS = DECLARED_ARRAYS + MSL_BINDINGS }; // declared in a kernel, then bound by the host
enum { FLAG_LENIENT = 1 };
enum : uint64_t { SEED_FORWARD = 0, SEED_REVERSE = 1 }; // every other seed is random
static const size_t STACK_BYTES = 128 << 10, ARRAY_BYTES = 64 << 10, THREADGROUP_LIMIT = 32 << 10;

struct Cell; // race.h

extern "C" {
typedef void (*msl_kernel)(const msl_args *, const msl_thread *);

// One dispatch, the same for every OS thread that works on it. Mirrored in launch.go.
struct msl_launch {
  msl_kernel kernel;
  msl_args args;
  const msl_constants *constants;
  Cell *shadow[MSL_BINDINGS];   // of the bytes that a binding begins with, race mode only
  const uint32_t *visible;      // for each queue, the last launch that this one comes after
  uint32_t queue, launch;       // who this is to later launches
  uint32_t groups[3], threads[3];
  uint32_t threadgroup_bytes[MSL_BINDINGS];
  uint32_t flags;
  uint64_t seed;
};

// What came of it.
struct msl_report {
  char text[480];
  uint64_t place; // of the instruction within the kernel's object, 0 if there is none to name
  uint64_t switches;
  uint32_t threadgroup_bytes;
};
}

struct Simdgroup {
  uint32_t live, ready, at_simd, at_barrier; // one bit a lane
  uint32_t epoch[2];                         // simdgroup barriers so far: on device memory, on threadgroup memory
  void *payload[LANES];
  msl_collective op[LANES];
  const char *file[LANES];
  int line[LANES];
};

struct Fiber {
  char *stack;
  msl_thread id;
};

struct Array {
  char *p;
  size_t bytes;
  const char *name;
};

// Where a signal in a kernel jumps back to, and what it was.
struct Fault {
  sigjmp_buf back;
  volatile bool armed;
  uintptr_t address, pc;
  sigset_t mask;
};

// The state of one OS thread that runs groups.
struct Context {
  const msl_launch *launch;
  msl_report *report;
  msl_args args; // the launch's, with this context's threadgroup memory
  int threads, simdgroups;
  int current, live, waiting; // the running fiber; fibers left; fibers at the barrier
  uint32_t ready;             // one bit a simdgroup with a ready lane
  int barrier_flags;
  bool failed;
  int collective; // depth of collectives: their memory accesses are nobody's
  uint64_t random, switches;
  Simdgroup simd[MAX_SIMDGROUPS];
  Fiber *fiber;
  void *stack_pointer[MAX_THREADS]; // of fibers, null before the first step; apart, since switching needs little else
  msl_pending pending[MAX_THREADS];
  msl_product *products; // MSL_PRODUCTS a simdgroup
  void *scheduler; // stack pointer of run_groups
  char *free_stack[MAX_THREADS];
  int free_stacks, stacks;
  char *stack_base, *array_base;
  Array array[ARRAYS];
  size_t threadgroup_bytes;
  uint32_t epoch[2]; // barriers so far: on device memory, on threadgroup memory
  uint32_t group;
  Cell *array_shadow;
  int last_buffer; // the binding that was accessed last; only where to look first
  uintptr_t object_first, object_last; // where the kernel's object lies; 0 until asked for
  Fault fault;
};

// The loader has room for little thread-local storage of this kind: this pointer and msl_now are all.
static STATIC_TLS Context *here;
extern "C" {
STATIC_TLS msl_here msl_now;
}

// Asked for once: what is computed from it, the race detector needs at every access.
static const size_t PAGE_BYTES = (size_t)sysconf(_SC_PAGESIZE);

// The place of an instruction within the kernel's object.
static uint64_t place_of(Context *c, uintptr_t pc) {
  Dl_info code, kernel;
  if (!dladdr((void *)pc, &code) || !dladdr((void *)c->launch->kernel, &kernel) || code.dli_fbase != kernel.dli_fbase) return 0;
  return pc - (uintptr_t)code.dli_fbase;
}

// Keeps the first error. pc is an instruction to name, or 0.
__attribute__((format(printf, 3, 4))) static void fail(Context *c, uintptr_t pc, const char *format, ...) {
  if (c->failed) return;
  c->failed = true;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->report->text, sizeof c->report->text, format, arguments);
  va_end(arguments);
  if (pc) c->report->place = place_of(c, pc);
}

// Who the running thread is, for messages. The buffer is the caller's.
static const char *who(Context *c, char *buffer, size_t bytes) {
  const msl_thread &t = c->fiber[c->current].id;
  snprintf(buffer, bytes, "thread %u of threadgroup (%u,%u,%u)", t.index[0], t.group_position[0], t.group_position[1], t.group_position[2]);
  return buffer;
}
