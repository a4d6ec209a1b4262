//go:build linux && (amd64 || arm64)

package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// A run of dispatches that comes again with the same kernels is handed over as one graph of the driver's: a token of
// decode is hundreds of small dispatches, and launching them one by one takes the host longer than the device needs for
// them. What differs from the last time, arguments and grids, is told the graph before it is launched.

const (
	graphLeast = 3   // dispatches that a graph is worth
	graphMost  = 512 // graphs of a queue; runs beyond are launched one by one
)

// graphs are those of a queue, by the kernels of their runs. Only the goroutine that submits uses them.
type graphs struct {
	known map[string]*graph
}

// graph is a run that came before.
type graph struct {
	kernels []*pipeline // held, so that their addresses stay theirs
	graph   uintptr     // 0 until the run came a second time
	exec    uintptr
	nodes   []uintptr
	last    [][]uint64 // what each node was last told
	broken  bool       // the driver refused it
}

// kernelNode is the driver's description of a dispatch.
type kernelNode struct {
	function   uintptr
	groups     [3]uint32
	threads    [3]uint32
	shared     uint32
	_          uint32
	parameters *uintptr
	_          uintptr
}

// graphEdge is the driver's description of what one dispatch waits for before the next begins: here that all of its
// threadgroups have begun. Every kernel waits by itself for those before it to end (launchers), so that only its start is
// early.
type graphEdge struct {
	from, _, kind uint8
	_             [5]uint8
}

// The only edge that is used: from a kernel's word that it is under way.
const edgeUnderWay = 1

// run is how many of the steps from i on are dispatches.
func run(steps []step) int {
	n := 0
	for n < len(steps) && steps[n].dispatch != nil {
		n++
	}
	return n
}

// graphed launches a run as a graph; false where it is to be launched one by one.
func (q *queue) graphed(steps []step) (done bool, err error) {
	if len(steps) < graphLeast || q.device.options.Careful {
		return false, nil
	}
	g := q.graphs.find(steps)
	if g == nil || g.broken {
		return false, nil
	}
	for i := range steps {
		for j := range steps[i].dispatch.bindings {
			if b := &steps[i].dispatch.bindings[j]; b.buffer != nil {
				if err := b.buffer.bound(q.stream, b.written); err != nil {
					return true, err
				}
			}
		}
	}
	if err := q.tell(g, steps); err != nil {
		g.broken = true // launched one by one it may do, and says what is wrong
		if err = q.device.noted(err); errors.Is(err, ErrLost) {
			return true, err
		}
		return false, nil
	}
	return true, q.device.noted(q.device.driver.check("launch a graph", q.device.driver.graphLaunch(g.exec, q.stream)))
}

// find is the graph of a run that came before, else nil.
func (g *graphs) find(steps []step) *graph {
	key := make([]byte, 0, 8*len(steps))
	for i := range steps {
		key = binary.NativeEndian.AppendUint64(key, uint64(uintptr(unsafe.Pointer(steps[i].dispatch.pipeline))))
	}
	if known := g.known[string(key)]; known != nil {
		return known
	}
	if len(g.known) < graphMost {
		if g.known == nil {
			g.known = map[string]*graph{}
		}
		made := &graph{}
		for i := range steps {
			made.kernels = append(made.kernels, steps[i].dispatch.pipeline)
		}
		g.known[string(key)] = made
	}
	return nil
}

// tell brings a graph to a run's arguments, and makes it first where it is not there yet.
func (q *queue) tell(g *graph, steps []step) error {
	fresh := g.exec == 0
	if fresh {
		if err := q.device.driver.check("make a graph", q.device.driver.graphCreate(&g.graph, 0)); err != nil {
			return err
		}
		g.nodes, g.last = make([]uintptr, len(steps)), make([][]uint64, len(steps))
	}
	for i := range steps {
		x := steps[i].dispatch
		q.told = x.flat(q.told[:0])
		if slices.Equal(q.told, g.last[i]) {
			continue
		}
		g.last[i] = append(g.last[i][:0], q.told...)
		if err := q.node(g, i, x); err != nil {
			return fmt.Errorf("kernel %s: %w", x.pipeline.Kernel(), err)
		}
	}
	if !fresh {
		return nil
	}
	return q.device.driver.check("make a graph ready", q.device.driver.graphMake(&g.exec, g.graph, 0))
}

// node adds or changes one dispatch of a graph.
func (q *queue) node(g *graph, i int, x *dispatch) error {
	for j := range x.bindings {
		q.call.argument(j, &x.bindings[j])
	}
	q.call.node = kernelNode{
		function: x.pipeline.function,
		groups:   [3]uint32{uint32(x.groups.X), uint32(x.groups.Y), uint32(x.groups.Z)},
		threads:  [3]uint32{uint32(x.threads.X), uint32(x.threads.Y), uint32(x.threads.Z)},
		shared:   uint32(x.memory), parameters: &q.call.pointers[0],
	}
	defer runtime.KeepAlive(x)
	if g.exec != 0 {
		return q.device.driver.check("change a graph", q.device.driver.graphSetKernel(g.exec, g.nodes[i], &q.call.node))
	}
	err := q.device.driver.check("add to a graph", q.device.driver.graphAddKernel(&g.nodes[i], g.graph, nil, 0, &q.call.node))
	if err != nil || i == 0 {
		return err
	}
	edge := graphEdge{from: edgeUnderWay, kind: edgeUnderWay}
	return q.device.driver.check("order a graph", q.device.driver.graphAfter(g.graph, &g.nodes[i-1], &g.nodes[i], &edge, 1))
}

// flat is all that a launch is told, to compare it.
func (x *dispatch) flat(to []uint64) []uint64 {
	to = append(to, uint64(x.groups.X), uint64(x.groups.Y), uint64(x.groups.Z), uint64(x.threads.X), uint64(x.threads.Y), uint64(x.threads.Z), uint64(x.memory))
	for i := range x.bindings {
		b := &x.bindings[i]
		if b.carried() {
			for at := 0; at < len(b.block); at += 8 {
				to = append(to, binary.NativeEndian.Uint64(b.inside.bytes[at:]))
			}
			continue
		}
		to = append(to, b.at)
	}
	return to
}

// close gives the graphs back, with the stream at rest.
func (g *graphs) close(d *device) error {
	var errs []error
	for _, one := range g.known {
		if one.exec != 0 {
			errs = append(errs, d.driver.check("free a graph", d.driver.graphExecEnd(one.exec)))
		}
		if one.graph != 0 {
			errs = append(errs, d.driver.check("free a graph", d.driver.graphDestroy(one.graph)))
		}
	}
	g.known = nil
	return errors.Join(errs...)
}
