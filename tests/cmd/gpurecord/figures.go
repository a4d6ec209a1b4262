package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"lector/metal"
	"lector/metal/metaltest"
	"lector/metal/ptx"
	"lector/shaders"
)

//go:embed figures.metal
var figureKernels string

func figureSource() metal.Source { return metal.Source{Name: "figures.metal", Text: figureKernels} }

func linearSource() (metal.Source, error) {
	text, err := shaders.Source("linear")
	return metal.Source{Name: "linear", Text: text}, err
}

// translate fills the folder of kernels for a machine without a compiler.
func translate(folder string) error {
	all := []metal.Source{figureSource(), metaltest.Source()}
	for _, name := range shaders.Libraries() {
		text, err := shaders.Source(name)
		if err != nil {
			return err
		}
		all = append(all, metal.Source{Name: name, Text: text})
		if faulty := withoutBarrier(text); faulty != text {
			all = append(all, metal.Source{Name: name, Text: faulty})
		}
	}
	return ptx.Translate(folder, all...)
}

// copyFigure is the limit that rates of memory are held against.
const copyFigure = "copy within device memory"

// hostCopyFigure is the limit of experts that are streamed from the host's memory.
const hostCopyFigure = "copy of host memory to the device"

// figure is one measurement.
type figure struct {
	name  string
	value float64
	unit  string
	note  string
}

// measure takes all figures; those before an error are returned with it.
func measure(d metal.Device) (figures []figure, err error) {
	q, err := d.NewQueue("figures")
	if err != nil {
		return nil, err
	}
	l := &lease{device: d, queue: q}
	defer func() { err = errors.Join(err, l.close(), q.Close()) }()
	for _, part := range []func(*lease) ([]figure, error){memoryFigures, dispatchFigures, productFigures, vectorFigures} {
		found, err := part(l)
		figures = append(figures, found...)
		if err := errors.Join(err, l.close()); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// pipeline makes a kernel ready.
func (l *lease) pipeline(s metal.Source, kernel string, constants ...metal.Constant) (metal.Pipeline, error) {
	library, err := l.device.Compile(s)
	if err != nil {
		return nil, err
	}
	p, err := library.Pipeline(kernel, constants)
	if err != nil {
		return nil, errors.Join(err, library.Close())
	}
	l.held = append(l.held, library, p)
	return p, nil
}

// resident is memory of the device.
func (l *lease) resident(size int) (metal.Buffer, error) {
	b, err := l.device.(metal.LocalMemory).NewLocalBuffer(size)
	if err == nil {
		l.held = append(l.held, b)
	}
	return b, err
}

// shared is memory of the host.
func (l *lease) shared(size int) (metal.Buffer, error) {
	b, err := l.device.NewBuffer(size)
	if err == nil {
		l.held = append(l.held, b)
	}
	return b, err
}

// time runs what encode encodes, once to warm up and five times, and returns the median of the device's times.
func (l *lease) time(encode func(metal.Encoder)) (time.Duration, error) {
	var times []time.Duration
	for i := range 6 {
		c, err := l.queue.NewCommandBuffer("figure")
		if err != nil {
			return 0, err
		}
		e, err := c.Encoder("figure")
		if err != nil {
			return 0, err
		}
		encode(e)
		e.End()
		if err := errors.Join(c.Commit(), c.Wait(context.Background())); err != nil {
			return 0, err
		}
		if i > 0 {
			times = append(times, c.DeviceTime())
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func perSecond(amount float64, d time.Duration) float64 { return amount / d.Seconds() }

func row(groups int) metal.Size { return metal.Size{X: groups, Y: 1, Z: 1} }

// memoryFigures are the rates of the device's memory and of the bus.
func memoryFigures(l *lease) ([]figure, error) {
	const size = 1 << 30
	p, err := l.pipeline(figureSource(), "figure_copy")
	if err != nil {
		return nil, err
	}
	one, err1 := l.resident(size)
	two, err2 := l.resident(size)
	host, err3 := l.shared(size / 4)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var figures []figure
	for _, m := range []struct {
		name     string
		from, to metal.Buffer
		size     int
		moved    float64
	}{
		{copyFigure, one, two, size, 2},
		{"kernel reads host memory", host, two, size / 4, 1},
		{"kernel writes host memory", one, host, size / 4, 1},
	} {
		took, err := l.time(func(e metal.Encoder) {
			e.SetPipeline(p)
			e.SetBuffer(0, m.from, 0)
			e.SetBuffer(1, m.to, 0)
			e.Dispatch(row(m.size/16/256), row(256))
		})
		if err != nil {
			return figures, err
		}
		figures = append(figures, figure{m.name, perSecond(m.moved*float64(m.size), took) / 1e9, "GB/s", fmt.Sprintf("%d MiB in %v", m.size>>20, took)})
	}
	began := time.Now()
	if err := two.(metal.LocalBuffer).Write(0, host.Bytes()); err != nil {
		return figures, err
	}
	took := time.Since(began)
	figures = append(figures, figure{hostCopyFigure, perSecond(size/4, took) / 1e9, "GB/s", fmt.Sprintf("%d MiB in %v", size>>22, took)})
	two.Bytes() // takes and locks the copy's memory
	if _, err := l.time(func(e metal.Encoder) {
		e.SetPipeline(p)
		e.SetBuffer(0, one, 0)
		e.SetBuffer(1, two, 0)
		e.Dispatch(row(size/16/256), row(256))
	}); err != nil {
		return figures, err
	}
	began = time.Now()
	two.Bytes()
	took = time.Since(began)
	return append(figures, figure{"copy of device memory to the host", perSecond(size, took) / 1e9, "GB/s", fmt.Sprintf("%d MiB in %v", size>>20, took)}), nil
}

// dispatchFigures are what a dispatch and a wait cost.
func dispatchFigures(l *lease) ([]figure, error) {
	p, err := l.pipeline(figureSource(), "figure_nothing")
	if err != nil {
		return nil, err
	}
	x, err := l.resident(4096)
	if err != nil {
		return nil, err
	}
	const many = 1000
	began := time.Now()
	took, err := l.time(func(e metal.Encoder) {
		e.SetPipeline(p)
		e.SetBuffer(0, x, 0)
		for range many {
			e.SetBytes(1, []byte{1, 2, 3, 4})
			e.Dispatch(row(1), row(32))
		}
	})
	wall := time.Since(began) / 6
	if err != nil {
		return nil, err
	}
	began = time.Now()
	const rounds = 200
	for range rounds {
		c, err := l.queue.NewCommandBuffer("round trip")
		if err != nil {
			return nil, err
		}
		e, err := c.Encoder("round trip")
		if err != nil {
			return nil, err
		}
		e.SetPipeline(p)
		e.SetBuffer(0, x, 0)
		e.Dispatch(row(1), row(32))
		e.End()
		if err := errors.Join(c.Commit(), c.Wait(context.Background())); err != nil {
			return nil, err
		}
	}
	return []figure{
		{"a dispatch, on the device", took.Seconds() * 1e6 / many, "us", "of 1000 that do nothing, one after the other"},
		{"a dispatch, with the host", wall.Seconds() * 1e6 / many, "us", "encoding, handing over and waiting for the last"},
		{"commit to the end of Wait", time.Since(began).Seconds() * 1e6 / rounds, "us", "of one small dispatch"},
	}, nil
}

// operands are the buffers of a product y = x Wᵀ.
type operands struct {
	y, x, w, scales, biases metal.Buffer
	params                  shaders.LinearParams
	constants               []metal.Constant
	value                   func(output, input int) float64 // of W
}

// formats are how figures store W.
const (
	halves = "halves"
	codes  = "4-bit codes"
	group  = 64 // codes that share a scale
)

func (l *lease) operands(format string, rows, inputs, outputs int) (*operands, error) {
	o := &operands{params: shaders.LinearParams{Rows: uint32(rows), Inputs: uint32(inputs), Outputs: uint32(outputs)}}
	var errs [5]error
	o.y, errs[0] = l.resident(4 * rows * outputs)
	o.x, errs[1] = l.resident(4 * rows * inputs)
	bytes := 2 * inputs * outputs
	if format == codes {
		bytes = inputs * outputs / 2
	}
	o.w, errs[2] = l.resident(bytes)
	o.scales, errs[3] = l.resident(2 * inputs * outputs / group)
	o.biases, errs[4] = l.resident(2 * inputs * outputs / group)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(uint64(rows), 7))
	x := view[float32](o.x)
	for i := range x {
		x[i] = float32(random.IntN(257)-128) / 64 // exact in half
	}
	w, scales, biases := view[uint16](o.w), view[uint16](o.scales), view[uint16](o.biases)
	for i := range w {
		w[i] = uint16(random.Uint32())
		if format == halves {
			w[i] = w[i]&0x83ff | 0x3800 // 0.5 to 1, either sign
		}
	}
	for i := range scales {
		scales[i], biases[i] = uint16(random.IntN(64))|0x2c00, 0xb800 // about 1/16, and -1/2
	}
	side, stored := uint32(shaders.FormatF16), uint32(shaders.FormatF16)
	if format == codes {
		stored = shaders.FormatAffine
	}
	o.constants = []metal.Constant{
		{Index: shaders.ConstantFormat, Value: stored}, {Index: shaders.ConstantBits, Value: uint32(4)},
		{Index: shaders.ConstantGroup, Value: uint32(group)}, {Index: shaders.ConstantSide, Value: side},
	}
	o.value = func(output, input int) float64 {
		at := output*inputs + input
		if format == halves {
			return half(w[at])
		}
		return half(scales[at/group])*float64(w[at/4]>>(at%4*4)&15) + half(biases[at/group])
	}
	return o, nil
}

// half is the value of a normal half.
func half(bits uint16) float64 {
	return float64(math.Float32frombits(uint32(bits)&0x8000<<16 | (uint32(bits)&0x7fff+112<<10)<<13))
}

// encodeFew binds the operands of linear_matvec_one: this matrix, and no others.
func (o *operands) encodeFew(e metal.Encoder, p metal.Pipeline) {
	o.encode(e, p)
	const all = math.MaxUint32 // tiles are the first matrix's
	params := shaders.MatvecParams{Rows: o.params.Rows, Inputs: o.params.Inputs, Outputs: [4]uint32{o.params.Outputs}, Ends: [3]uint32{all, all, all}}
	e.SetBytes(shaders.Params, unsafe.Slice((*byte)(unsafe.Pointer(&params)), unsafe.Sizeof(params)))
	for i := range 3 {
		e.SetBuffer(shaders.MatvecY1+i, o.y, 0)
		e.SetBuffer(shaders.MatvecData1+i, o.w, 0)
		e.SetBuffer(shaders.MatvecScales1+i, o.scales, 0)
		e.SetBuffer(shaders.MatvecBiases1+i, o.biases, 0)
	}
}

func (o *operands) encode(e metal.Encoder, p metal.Pipeline) {
	e.SetPipeline(p)
	e.SetBytes(shaders.Params, unsafe.Slice((*byte)(unsafe.Pointer(&o.params)), unsafe.Sizeof(o.params)))
	for index, b := range map[int]metal.Buffer{shaders.LinearY: o.y, shaders.LinearX: o.x, shaders.LinearData: o.w, shaders.LinearScales: o.scales, shaders.LinearBiases: o.biases} {
		e.SetBuffer(index, b, 0)
	}
}

// check compares some elements with sums in float64; tolerance is what staging in half may make of a sum's terms.
func (o *operands) check(tolerance float64) error {
	x, y := view[float32](o.x), view[float32](o.y)
	in, out := int(o.params.Inputs), int(o.params.Outputs)
	for i := range 200 {
		r, c := i*7919%int(o.params.Rows), i*104729%out
		sum, size := 0.0, 0.0
		for k := range in {
			term := float64(x[r*in+k]) * o.value(c, k)
			sum += term
			size += math.Abs(term)
		}
		if d := math.Abs(float64(y[r*out+c]) - sum); !(d <= tolerance*size) {
			return fmt.Errorf("element %d,%d of the product is %v, want %v", r, c, y[r*out+c], sum)
		}
	}
	return nil
}

func view[T any](b metal.Buffer) []T {
	var one T
	data := b.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(one)))
}

// productFigures are the rates of tiles on tensor cores.
func productFigures(l *lease) ([]figure, error) {
	s, err := linearSource()
	if err != nil {
		return nil, err
	}
	const n = 4096
	var figures []figure
	for _, format := range []string{halves, codes} {
		o, err := l.operands(format, n, n, n)
		if err != nil {
			return figures, err
		}
		began := time.Now()
		p, err := l.pipeline(s, "linear_gemm_half", o.constants...)
		if err != nil {
			return figures, err
		}
		figures = append(figures, figure{"the driver compiles linear_gemm_half for " + format, time.Since(began).Seconds() * 1e3, "ms", "less where it has kept it"})
		took, err := l.time(func(e metal.Encoder) {
			o.encode(e, p)
			e.Dispatch(metal.Size{X: n / shaders.TileOutputs, Y: n / shaders.TileRows, Z: 1}, row(shaders.TileThreads))
		})
		if err := errors.Join(err, o.check(1e-3)); err != nil {
			return figures, err
		}
		figures = append(figures, figure{"product with " + format + ", 4096 cubed", perSecond(2*n*n*n, took) / 1e12, "TFLOP/s", took.String()})
	}
	return figures, nil
}

// vectorFigures are the rates of products with one row, which are bound by memory.
func vectorFigures(l *lease) ([]figure, error) {
	s, err := linearSource()
	if err != nil {
		return nil, err
	}
	const n = 16384
	var figures []figure
	perWeight := map[string]float64{halves: 2, codes: 0.5 + 4.0/group} // bytes, scales included
	for _, format := range []string{halves, codes} {
		o, err := l.operands(format, 1, n, n)
		if err != nil {
			return figures, err
		}
		p, err := l.pipeline(s, "linear_matvec_one", o.constants...)
		if err != nil {
			return figures, err
		}
		took, err := l.time(func(e metal.Encoder) {
			o.encodeFew(e, p)
			e.Dispatch(metal.Size{X: n / shaders.VectorMost, Y: 1, Z: 1}, row(shaders.VectorThreads))
		})
		if err := errors.Join(err, o.check(1e-5)); err != nil {
			return figures, err
		}
		figures = append(figures, figure{"product of one row with " + format + ", 16384 squared", perSecond(perWeight[format]*n*n, took) / 1e9, "GB/s", took.String()})
	}
	return figures, nil
}
