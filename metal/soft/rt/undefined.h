// The handlers of -fsanitize-minimal-runtime: undefined behaviour becomes a kernel's error.
#pragma once
#include "fault.h"

static void undefined_behaviour(const char *what, uintptr_t pc) {
  Context *c = here;
  if (!c || c->failed) return;
  char thread_name[96];
  fail(c, pc, "undefined behaviour: %s in %s", what, who(c, thread_name, sizeof thread_name));
  abandon(c);
}

#define MSL_UNDEFINED(name, what)                                                                       \
  extern "C" __attribute__((visibility("default"))) void __ubsan_handle_##name##_minimal(void) {        \
    undefined_behaviour(what, (uintptr_t)__builtin_return_address(0) - 1);                              \
  }
MSL_UNDEFINED(out_of_bounds, "index out of an array's bounds")
MSL_UNDEFINED(type_mismatch, "a misaligned or null pointer")
MSL_UNDEFINED(alignment_assumption, "a misaligned pointer")
MSL_UNDEFINED(shift_out_of_bounds, "a shift by its type's width or more")
MSL_UNDEFINED(divrem_overflow, "a division by zero or an overflowing one")
MSL_UNDEFINED(float_cast_overflow, "a float that its integer type cannot hold")
MSL_UNDEFINED(load_invalid_value, "a bool that is neither 0 nor 1")
MSL_UNDEFINED(builtin_unreachable, "an unreachable place")
MSL_UNDEFINED(missing_return, "a missing return")
MSL_UNDEFINED(vla_bound_not_positive, "an array without a size")
MSL_UNDEFINED(pointer_overflow, "an overflowing pointer")
MSL_UNDEFINED(add_overflow, "an overflowing signed sum")
MSL_UNDEFINED(sub_overflow, "an overflowing signed difference")
MSL_UNDEFINED(mul_overflow, "an overflowing signed product")
MSL_UNDEFINED(negate_overflow, "an overflowing negation")
