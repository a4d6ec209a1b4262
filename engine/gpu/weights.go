package gpu

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"lector/engine/ops"
	"lector/metal"
)

// weights knows by their address the bytes that the device has already: wrapped in place, or copied. It holds on to
// the host's slices, so that an address stays what it was.
type weights struct {
	mapped  [][]byte
	known   map[weightKey]region
	held    [][]byte       // keeps copied slices from being collected, and their addresses from being used again
	wrapped []metal.Buffer // over mapped memory
	copies  arena          // of small ones
	large   []*memory
	rates   map[*float32][]float32 // exp of vectors, by where they lie
}

type weightKey struct {
	data *byte
	n    int
}

func newWeights(mapped [][]byte) weights {
	return weights{mapped: mapped, known: map[weightKey]region{}, rates: map[*float32][]float32{}}
}

// storedAlign is what the kernels ask of codes, scales and biases: they load words.
const storedAlign = 4

// stored is a matrix on the device.
type stored struct {
	data, scales, biases region
	constants            constants // how to read it
}

// matrix puts a matrix on the device. The regions are unbound after a failure.
func (e *encoding) matrix(m *ops.Matrix) stored {
	s := stored{data: e.weight(m.Data), constants: formatOf(m)}
	s.scales, s.biases = s.data, s.data // plain formats have none, but every buffer is bound
	if m.Format == ops.Affine {
		s.scales, s.biases = e.weight(m.Scales), e.weight(m.Biases)
	}
	return s
}

// formatOf are the function constants that say how a matrix is stored.
func formatOf(m *ops.Matrix) constants {
	var bits, group uint32
	var side ops.Format
	if m.Format == ops.Affine {
		bits, group, side = uint32(m.Bits), uint32(m.Group), m.Side
	}
	return constants{stored: true, format: uint32(m.Format), bits: bits, group: group, side: uint32(side)}
}

// weight puts stored bytes on the device.
func (e *encoding) weight(data []byte) region {
	if e.failed() {
		return region{}
	}
	if len(data) == 0 {
		e.b.fail(errors.New("put weights on the device: a matrix without bytes"))
		return region{}
	}
	w := &e.b.weights
	key := weightKey{unsafe.SliceData(data), len(data)}
	if r, ok := w.known[key]; ok {
		return r
	}
	r, err := w.put(e.b, data)
	if err != nil {
		e.b.fail(fmt.Errorf("put %d bytes of weights on the device: %w", len(data), err))
		return region{}
	}
	w.known[key] = r
	return r
}

// vector puts a short weight on the device.
func (e *encoding) vector(v []float32) region { return e.weight(bytesOf(v)) }

// rate puts exp of a short weight on the device.
func (e *encoding) rate(v []float32) region {
	known := e.b.weights.rates
	rate := known[unsafe.SliceData(v)]
	if len(rate) != len(v) {
		rate = make([]float32, len(v))
		for i, x := range v {
			rate[i] = float32(math.Exp(float64(x)))
		}
		known[unsafe.SliceData(v)] = rate
	}
	return e.vector(rate)
}

// put wraps data where it lies in mapped memory at an address that the kernels can load words from, else copies it, as
// always to a device whose memory lies apart: over the bus every product would be slow.
func (w *weights) put(b *Backend, data []byte) (region, error) {
	if whole, from := w.around(data); whole != nil && from%storedAlign == 0 && b.apart == nil {
		start := from / b.page * b.page
		buf, err := b.device.WrapBuffer(whole[start : from+len(data)])
		if err != nil {
			return region{}, err
		}
		w.wrapped = append(w.wrapped, buf)
		return region{buf, from - start}, nil
	}
	r, err := w.room(b, len(data))
	if err != nil {
		return region{}, err
	}
	w.held = append(w.held, data)
	return r, r.write(data)
}

// room is place for a copy: a buffer of its own for a large one, so that small ones don't leave chunks half empty.
func (w *weights) room(b *Backend, n int) (region, error) {
	if n < chunkBytes/4 {
		return w.copies.take(b, n)
	}
	m, err := b.allocate(n, near)
	if err != nil {
		return region{}, err
	}
	w.large = append(w.large, m)
	return m.whole(), nil
}

// around finds the mapped memory that holds data, and where in it data begins.
func (w *weights) around(data []byte) (whole []byte, from int) {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for _, m := range w.mapped {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(m)))
		if first >= base && first+uintptr(len(data)) <= base+uintptr(len(m)) {
			return m, int(first - base)
		}
	}
	return nil, 0
}

func (w *weights) close(b *Backend) error {
	var errs []error
	for _, buf := range w.wrapped {
		errs = append(errs, buf.Close())
	}
	w.copies.release(b)
	for _, m := range w.large {
		b.release(m)
	}
	*w = newWeights(w.mapped)
	return errors.Join(errs...)
}
