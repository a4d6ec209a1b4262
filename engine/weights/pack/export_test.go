package pack

import "lector/engine/weights"

// Disk and File open what the packer does to the file system to tests.
type (
	Disk = disk
	File = file
)

// System is the real disk.
func System() Disk { return system{} }

// OpenOn opens a file on a disk.
func OpenOn(d Disk, path string) (File, error) { return d.open(path) }

// Faulty is a disk of the tests.
type Faulty interface {
	Open(path string) (File, error)
	Step() error         // before each change of a folder
	Free() (int64, bool) // instead of the real room
}

// wrapped sends the steps of a run through a Faulty.
type wrapped struct {
	system
	faulty Faulty
}

// Wrap makes a disk of one.
func Wrap(f Faulty) Disk { return wrapped{faulty: f} }

func (w wrapped) open(path string) (file, error) { return w.faulty.Open(path) }

func (w wrapped) mkdir(path string) error {
	if err := w.faulty.Step(); err != nil {
		return err
	}
	return w.system.mkdir(path)
}

func (w wrapped) rename(from, to string) error {
	if err := w.faulty.Step(); err != nil {
		return err
	}
	return w.system.rename(from, to)
}

func (w wrapped) remove(path string) error {
	if err := w.faulty.Step(); err != nil {
		return err
	}
	return w.system.remove(path)
}

func (w wrapped) syncDir(string) error { return w.faulty.Step() }

func (w wrapped) free(path string) (int64, error) {
	if n, ok := w.faulty.Free(); ok {
		return n, nil
	}
	return w.system.free(path)
}

// On makes a run use another disk.
func (o Options) On(d Disk) Options {
	o.disk = d
	return o
}

// QuantiseRow opens the quantiser to tests.
func QuantiseRow(values []float32, m weights.PackedMatrix, codes, scales, biases []byte) error {
	return quantiseRow(values, m, codes, scales, biases)
}

// ToHalf opens the rounding to IEEE halves.
func ToHalf(v float32) uint16 { return toHalf(v) }

// ChunkBytes is the bound of a piece.
const ChunkBytes = chunkBytes
