//go:build (darwin && arm64) || (linux && (amd64 || arm64))

package apple

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

type (
	id  uintptr // an object or a class
	sel uintptr // a selector
)

// images are the paths of the libraries to load.
type images struct {
	objc    string
	preload []string
	metal   string
}

// objc is the Objective-C runtime.
type objc struct {
	msgSend, register, class, push, pop uintptr
	double                              func(object id, selector sel) float64 // a message that returns a double
	sel                                 selectors
}

// loadObjc loads the runtime and the libraries before Metal.
func loadObjc(from images) (*objc, error) {
	r := &objc{}
	handle, err := purego.Dlopen(from.objc, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("load the Objective-C runtime: %w", err)
	}
	for name, f := range map[string]*uintptr{"objc_msgSend": &r.msgSend, "sel_registerName": &r.register, "objc_getClass": &r.class,
		"objc_autoreleasePoolPush": &r.push, "objc_autoreleasePoolPop": &r.pop} {
		if *f, err = purego.Dlsym(handle, name); err != nil {
			return nil, fmt.Errorf("load the Objective-C runtime: %w", err)
		}
	}
	for _, path := range from.preload {
		if _, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return nil, fmt.Errorf("load a framework: %w", err)
		}
	}
	purego.RegisterFunc(&r.double, r.msgSend)
	r.sel.register(r)
	return r, nil
}

// cString is s with a zero byte after it.
func cString(s string) *byte { return unsafe.StringData(strings.ReplaceAll(s, "\x00", "") + "\x00") }

func (r *objc) selector(name string) sel {
	v, _, _ := purego.SyscallN(r.register, uintptr(unsafe.Pointer(cString(name))))
	return sel(v)
}

func (r *objc) classNamed(name string) id {
	v, _, _ := purego.SyscallN(r.class, uintptr(unsafe.Pointer(cString(name))))
	return id(v)
}

// The sends have fixed numbers of arguments, so that the hot ones allocate little. Pointers are passed as
// uintptr(unsafe.Pointer(p)) in the call itself: uintptrescapes keeps what they point to alive and in place.

//go:uintptrescapes
func (r *objc) send(object id, s sel) uintptr {
	v, _, _ := purego.SyscallN(r.msgSend, uintptr(object), uintptr(s))
	return v
}

//go:uintptrescapes
func (r *objc) send1(object id, s sel, a uintptr) uintptr {
	v, _, _ := purego.SyscallN(r.msgSend, uintptr(object), uintptr(s), a)
	return v
}

//go:uintptrescapes
func (r *objc) send2(object id, s sel, a, b uintptr) uintptr {
	v, _, _ := purego.SyscallN(r.msgSend, uintptr(object), uintptr(s), a, b)
	return v
}

//go:uintptrescapes
func (r *objc) send3(object id, s sel, a, b, c uintptr) uintptr {
	v, _, _ := purego.SyscallN(r.msgSend, uintptr(object), uintptr(s), a, b, c)
	return v
}

// wrapArguments are those of newBufferWithBytesNoCopy:length:options:deallocator:.
type wrapArguments struct {
	bytes           unsafe.Pointer
	length, options uintptr
}

func (r *objc) sendWrap(object id, s sel, a wrapArguments) uintptr {
	v, _, _ := purego.SyscallN(r.msgSend, uintptr(object), uintptr(s), uintptr(a.bytes), a.length, a.options, 0)
	return v
}

// size is MTLSize: three NSUIntegers, passed by value in C.
type size struct{ width, height, depth uint64 }

// sendSizes sends a message with two sizes. On arm64, a composite of more than 16 bytes that holds no
// floats is copied to memory by the caller, and its address goes in the next register; the callee may write
// its copy, so each call has fresh ones. On amd64 such a composite goes on the stack: the four registers that
// are left are filled with zeros, and its words follow.
func (r *objc) sendSizes(object id, s sel, a, b size) {
	if runtime.GOARCH == "arm64" {
		copies := &[2]size{a, b}
		r.send2(object, s, uintptr(unsafe.Pointer(&copies[0])), uintptr(unsafe.Pointer(&copies[1])))
		runtime.KeepAlive(copies)
		return
	}
	purego.SyscallN(r.msgSend, uintptr(object), uintptr(s), 0, 0, 0, 0,
		uintptr(a.width), uintptr(a.height), uintptr(a.depth), uintptr(b.width), uintptr(b.height), uintptr(b.depth))
}

// pool runs f inside an autorelease pool. Pools belong to an OS thread, so the goroutine stays on its own.
func (r *objc) pool(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, _, _ := purego.SyscallN(r.push)
	defer purego.SyscallN(r.pop, p)
	f()
}

func (r *objc) retain(object id) id { return id(r.send(object, r.sel.retain)) }

func (r *objc) release(object id) {
	if object != 0 {
		r.send(object, r.sel.release)
	}
}

// responds says whether an object has a method: newer systems have more.
func (r *objc) responds(object id, s sel) bool {
	return byte(r.send1(object, r.sel.respondsToSelector, uintptr(s))) != 0
}

// nsString makes an autoreleased NSString.
func (r *objc) nsString(s string) id {
	return id(r.send1(r.classNamed("NSString"), r.sel.stringWithUTF8String, uintptr(unsafe.Pointer(cString(s)))))
}

// goString copies an NSString.
func (r *objc) goString(object id) string {
	if object == 0 {
		return ""
	}
	p := pointer(r.send(object, r.sel.utf8String))
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// pointer is an address that Objective-C returned: memory outside of Go's heap.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// Error is a copied NSError.
type Error struct {
	Domain string
	Code   int
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s %d)", e.Text, e.Domain, e.Code) }

// nsError copies an error inside of the pool of the call that failed. Only a result of nil means failure: a
// library that compiles with warnings sets the error too.
func (r *objc) nsError(object id) error {
	if object == 0 {
		return &Error{Domain: "none", Text: "Metal gave no reason"}
	}
	return &Error{
		Domain: r.goString(id(r.send(object, r.sel.domain))),
		Code:   int(int64(r.send(object, r.sel.code))),
		Text:   r.goString(id(r.send(object, r.sel.localizedDescription))),
	}
}
