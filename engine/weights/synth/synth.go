package synth

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

const (
	// shardBytes is the most data of one file: a larger model becomes several, as converters write them.
	shardBytes = int64(4) << 30
	// chunkBytes is what one goroutine draws at once.
	chunkBytes = 1 << 20
)

// Options say what to write.
type Options struct {
	Preset    string // one of Presets
	Layers    int    // instead of the preset's; 0 keeps it
	Experts   int    // the same
	Seed      uint64
	Tokenizer []byte                  // text of a tokenizer.json to put beside it; nil for none
	Progress  func(done, total int64) // bytes; may be nil

	shardBytes int64 // 0: the usual
}

// Shape says what a call of Write with the same options writes: values of all tensors, and the vocabulary that a
// tokenizer has to fit into.
func (o Options) Shape() (parameters int64, vocabulary int, err error) {
	_, cfg, err := o.config()
	if err != nil {
		return 0, 0, fmt.Errorf("shape of %s: %w", o.Preset, err)
	}
	list, err := tensors(cfg, o.Seed)
	for _, t := range list {
		parameters += t.bytes() * 8 / int64(t.dtype().Bits())
	}
	return parameters, cfg.Vocab, err
}

// Write writes a checkpoint into a new or empty folder.
func Write(ctx context.Context, dir string, o Options) error {
	if o.Preset == Released {
		return fmt.Errorf("write a random %s model: it is too large, choose one of %s", o.Preset, strings.Join(Presets(), ", "))
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.shardBytes == 0 {
		o.shardBytes = shardBytes
	}
	if err := o.write(ctx, dir); err != nil {
		return fmt.Errorf("write a random %s model into %s: %w", o.Preset, dir, err)
	}
	return nil
}

func (o Options) write(ctx context.Context, dir string) error {
	config, cfg, err := o.config()
	if err != nil {
		return err
	}
	list, err := tensors(cfg, o.Seed)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		return errors.Join(err, errors.New("the folder is not empty: choose another"))
	}
	w := &writer{ctx: ctx, options: o, dir: dir}
	for _, t := range list {
		w.total += t.bytes()
	}
	if err := w.shards(cut(list, o.shardBytes)); err != nil {
		return err
	}
	if o.Tokenizer != nil {
		if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), o.Tokenizer, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)
}

// cut divides tensors into files of at most limit bytes; a tensor above it has a file of its own.
func cut(list []*tensor, limit int64) (shards [][]*tensor) {
	size := limit
	for _, t := range list {
		if size+t.bytes() > limit {
			shards, size = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		size += t.bytes()
	}
	return shards
}

// writer writes safetensors files.
type writer struct {
	ctx         context.Context
	options     Options
	dir         string
	done, total int64
	buffers     [][]byte
}

func (w *writer) shards(shards [][]*tensor) error {
	if len(shards) == 1 {
		return w.file("model.safetensors", shards[0])
	}
	index := map[string]string{}
	for i, list := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		for _, t := range list {
			index[t.name] = name
		}
		if err := w.file(name, list); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": w.total}, "weight_map": index}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, "model.safetensors.index.json"), text, 0o644)
}

// file writes one file: header, then tensors behind one another.
func (w *writer) file(name string, list []*tensor) error {
	f, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<16)
	err = w.header(out, list)
	for _, t := range list {
		if err == nil {
			err = w.tensor(out, t)
		}
	}
	return errors.Join(err, out.Flush(), f.Close())
}

func (w *writer) header(out *bufio.Writer, list []*tensor) error {
	text, err := header(list)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// header is what a safetensors file begins with.
func header(list []*tensor) ([]byte, error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	entries, at := map[string]entry{}, int64(0)
	for _, t := range list {
		entries[t.name] = entry{string(t.dtype()), t.shape, [2]int64{at, at + t.bytes()}}
		at += t.bytes()
	}
	text, err := json.Marshal(entries)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// tensor draws chunks on all cores and writes them in order.
func (w *writer) tensor(out *bufio.Writer, t *tensor) error {
	for offset := int64(0); offset < t.bytes(); {
		var wg sync.WaitGroup
		var chunks [][]byte
		for i := range runtime.GOMAXPROCS(0) {
			n := min(chunkBytes, t.bytes()-offset)
			if n == 0 {
				break
			}
			if i == len(w.buffers) {
				w.buffers = append(w.buffers, make([]byte, chunkBytes))
			}
			chunk, from := w.buffers[i][:n], offset
			chunks = append(chunks, chunk)
			wg.Go(func() { t.fill(chunk, from) })
			offset += n
		}
		wg.Wait()
		for _, chunk := range chunks {
			if _, err := out.Write(chunk); err != nil {
				return err
			}
			w.done += int64(len(chunk))
		}
		w.options.Progress(w.done, w.total)
		if err := w.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
