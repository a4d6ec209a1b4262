// Objects, selectors, autorelease pools and Foundation.
#include "fake.h"

static atomic_long live, unpooled;

void die(const char *format, ...) {
  va_list a;
  va_start(a, format);
  fputs("fake Objective-C: ", stderr);
  vfprintf(stderr, format, a);
  fputc('\n', stderr);
  va_end(a);
  abort();
}

// The tests ask for these.
long fake_live(void) { return live; }
long fake_unpooled(void) { return unpooled; }

id make(const char *class) {
  id o = calloc(1, sizeof *o);
  o->class = class;
  o->retains = 1;
  pthread_mutex_init(&o->lock, NULL);
  pthread_cond_init(&o->changed, NULL);
  live++;
  return o;
}

id keep(id o) {
  if (o->retains <= 0) die("retain of a dead %s", o->class);
  o->retains++;
  return o;
}

void drop(id o) {
  if (!o || o->class[0] == '+') return;
  long left = --o->retains;
  if (left < 0) die("over-release of %s", o->class);
  if (left > 0) return;
  dispose(o);
  live--; // the object itself is left, so that an over-release is seen and not undefined
}

void expect_class(id o, const char *class, const char *where) {
  if (!o) die("%s: nil where a %s belongs", where, class);
  if (strcmp(o->class, class)) die("%s: a %s where a %s belongs", where, o->class, class);
  if (o->retains <= 0) die("%s: a dead %s", where, class);
}

// ---- pools: each OS thread has its own -------------------------------------------
static __thread id *pooled;
static __thread size_t pooled_count, pooled_room, depth;

id autoreleased(id o) {
  if (!depth) {
    unpooled++;
    return o;
  }
  if (pooled_count == pooled_room) pooled = realloc(pooled, (pooled_room = pooled_room * 2 + 64) * sizeof *pooled);
  pooled[pooled_count++] = o;
  return o;
}

void *objc_autoreleasePoolPush(void) {
  depth++;
  return (void *)(uintptr_t)(pooled_count + 1);
}

void objc_autoreleasePoolPop(void *token) {
  size_t to = (size_t)(uintptr_t)token - 1;
  if (!token || to > pooled_count || !depth) die("a pool is popped on a thread that did not push it");
  depth--;
  while (pooled_count > to) drop(pooled[--pooled_count]);
}

// ---- selectors and classes ---------------------------------------------------------
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

SEL sel_registerName(const char *name) {
  static char *names[256];
  static int count;
  pthread_mutex_lock(&names_lock);
  int i = 0;
  while (i < count && strcmp(names[i], name)) i++;
  if (i == count) names[count++] = strdup(name);
  pthread_mutex_unlock(&names_lock);
  return names[i];
}

id objc_getClass(const char *name) {
  static struct object classes[] = {{.class = "+NSString", .retains = 1}, {.class = "+MTLCompileOptions", .retains = 1},
                                    {.class = "+MTLFunctionConstantValues", .retains = 1}, {.class = "+MTLCommandBufferDescriptor", .retains = 1},
                                    {.class = "+MTLResidencySetDescriptor", .retains = 1}};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (!strcmp(classes[i].class + 1, name)) return &classes[i];
  die("no class %s", name);
}

// ---- Foundation --------------------------------------------------------------------
id string(const char *s) {
  id o = make("NSString");
  o->text = strdup(s);
  return autoreleased(o);
}

static id retain(id o, SEL s) { return keep(o); }
static void release(id o, SEL s) { drop(o); }
static bool responds(id o, SEL s, SEL to) { return find_method(o, to) != NULL; }
static id new_object(id class, SEL s) { return make(class->class + 1); }
static id string_with(id class, SEL s, const char *text) { return string(text); }
static const char *utf8(id o, SEL s) { return o->text; }
static id error_text(id o, SEL s) { return string(o->text); }
static id error_domain(id o, SEL s) { return string(o->label); }
static NSInteger error_code(id o, SEL s) { return (NSInteger)o->count; }
static id user_info(id o, SEL s) { return o->parent; }
static NSUInteger count(id o, SEL s) { return o->count; }
static id at(id o, SEL s, NSUInteger i) {
  if (i >= o->count) die("objectAtIndex: %lu of %lu", (unsigned long)i, (unsigned long)o->count);
  return o->items[i];
}
static id for_key(id o, SEL s, id key) {
  expect_class(key, "NSString", "objectForKey:");
  return strcmp(key->text, "encoders") ? NULL : o->items[0];
}

static const struct method methods[] = {
    {"*", "retain", retain}, {"*", "release", release}, {"*", "respondsToSelector:", responds},
    {"+NSString", "stringWithUTF8String:", string_with}, {"NSString", "UTF8String", utf8},
    {"+MTLCompileOptions", "new", new_object}, {"+MTLFunctionConstantValues", "new", new_object},
    {"+MTLCommandBufferDescriptor", "new", new_object}, {"+MTLResidencySetDescriptor", "new", new_object},
    {"NSError", "localizedDescription", error_text}, {"NSError", "domain", error_domain}, {"NSError", "code", error_code},
    {"NSError", "userInfo", user_info}, {"NSArray", "count", count}, {"NSArray", "objectAtIndex:", at},
    {"NSDictionary", "objectForKey:", for_key}, {NULL, NULL, NULL}};

static void *search(const struct method *m, id o, SEL s) {
  for (; m->class; m++)
    if ((m->class[0] == '*' || !strcmp(m->class, o->class)) && !strcmp(m->selector, s)) return m->code;
  return NULL;
}

void *find_method(id o, SEL s) {
  void *code = search(methods, o, s);
  return code ? code : search(metal_methods, o, s);
}

static uintptr_t nothing(void) { return 0; }

// What objc_msgSend jumps to.
__attribute__((visibility("default"), used)) void *fake_lookup(id o, SEL s) {
  if (!o) return nothing; // a message to nil
  if (o->retains <= 0) die("-[%s %s] of a dead object", o->class, s);
  void *code = find_method(o, s);
  if (!code) die("-[%s %s]: unrecognized selector", o->class, s);
  return code;
}

#if defined __x86_64__
__asm__(".globl objc_msgSend\n.type objc_msgSend,@function\nobjc_msgSend:\n push %rbp\n mov %rsp,%rbp\n push %rdi\n push %rsi\n push %rdx\n"
        " push %rcx\n push %r8\n push %r9\n call fake_lookup@PLT\n mov %rax,%r11\n pop %r9\n pop %r8\n pop %rcx\n"
        " pop %rdx\n pop %rsi\n pop %rdi\n pop %rbp\n jmp *%r11\n");
#elif defined __aarch64__
__asm__(".globl objc_msgSend\n.type objc_msgSend,%function\nobjc_msgSend:\n stp x29,x30,[sp,#-96]!\n mov x29,sp\n stp x0,x1,[sp,#16]\n"
        " stp x2,x3,[sp,#32]\n stp x4,x5,[sp,#48]\n stp x6,x7,[sp,#64]\n str x8,[sp,#80]\n bl fake_lookup\n"
        " mov x16,x0\n ldp x0,x1,[sp,#16]\n ldp x2,x3,[sp,#32]\n ldp x4,x5,[sp,#48]\n ldp x6,x7,[sp,#64]\n"
        " ldr x8,[sp,#80]\n ldp x29,x30,[sp],#96\n br x16\n");
#endif
