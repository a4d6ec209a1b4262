// Faults of kernels become errors: a signal while a kernel runs jumps back to run_groups, and any other goes
// to the handler that was there before, which is Go's.
#pragma once
#include "memory.h"

static struct sigaction previous_segv, previous_bus, previous_fpe;

static void on_fault(int signal_number, siginfo_t *info, void *raw) {
  ucontext_t *u = (ucontext_t *)raw;
  Context *c = here;
  if (c && c->fault.armed) {
    c->fault.armed = false;
    c->fault.address = (uintptr_t)info->si_addr;
#if defined __x86_64__
    c->fault.pc = (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#else
    c->fault.pc = (uintptr_t)u->uc_mcontext.pc;
#endif
    c->fault.mask = u->uc_sigmask;
    siglongjmp(c->fault.back, signal_number);
  }
  struct sigaction *before = signal_number == SIGSEGV ? &previous_segv : signal_number == SIGBUS ? &previous_bus : &previous_fpe;
  if (before->sa_flags & SA_SIGINFO) {
    before->sa_sigaction(signal_number, info, raw);
  } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
    before->sa_handler(signal_number);
  } else {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
}

extern "C" __attribute__((visibility("default"))) void msl_install_handlers(void) {
  static int installed;
  if (__atomic_exchange_n(&installed, 1, __ATOMIC_SEQ_CST)) return;
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = on_fault;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&a.sa_mask);
  sigaction(SIGSEGV, &a, &previous_segv);
  sigaction(SIGBUS, &a, &previous_bus);
  sigaction(SIGFPE, &a, &previous_fpe);
}

// What lies at or near an address, for a message.
static void describe_address(Context *c, uintptr_t at, char *buffer, size_t bytes) {
  const uintptr_t near = 64 << 10;
  snprintf(buffer, bytes, "address 0x%lx, which is no memory of the kernel", (unsigned long)at);
  if (at < near) snprintf(buffer, bytes, "a buffer that is not bound, or a null pointer, at offset %lu", (unsigned long)at);
  uintptr_t best = near;
  for (int i = 0; i < MSL_BINDINGS; i++) {
    uintptr_t p = (uintptr_t)c->args.buffer[i], n = c->args.length[i];
    if (!p) continue;
    uintptr_t distance = at < p ? p - at : at >= p + n ? at - p - n : 0;
    if (distance >= best) continue;
    best = distance;
    snprintf(buffer, bytes, "offset %ld of buffer %d (%lu bytes)", (long)(at - p), i, (unsigned long)n);
  }
  for (int i = 0; i < ARRAYS; i++) {
    Array &a = c->array[i];
    if (!a.p || at - (uintptr_t)(c->array_base + i * array_stride()) >= array_stride()) continue;
    snprintf(buffer, bytes, "offset %ld of threadgroup array %s (%zu bytes)", (long)(at - (uintptr_t)a.p), a.name, a.bytes);
  }
  if (at - (uintptr_t)c->stack_base < MAX_THREADS * stack_stride()) snprintf(buffer, bytes, "its stack, of which %zu bytes are used up", STACK_BYTES);
}

// Back in run_groups after a fault in the running thread.
static void report_fault(Context *c, int signal_number) {
  pthread_sigmask(SIG_SETMASK, &c->fault.mask, nullptr);
  char thread_name[96], what[160];
  who(c, thread_name, sizeof thread_name);
  if (signal_number == SIGFPE) {
    fail(c, c->fault.pc, "%s divides an integer by zero", thread_name);
    return;
  }
  describe_address(c, c->fault.address, what, sizeof what);
  fail(c, c->fault.pc, "out of bounds: %s faults at %s", thread_name, what);
}
