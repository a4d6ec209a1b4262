package weights_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"lector/engine/weights"
)

// released is testdata/released-ngram.json; its provenance stands in it.
type released struct {
	Multipliers, Sizes, Offsets []int64
	Rows                        int64
	FromStart                   []struct {
		Token int32
		IDs   []int64
	} `json:"from_start"`
	WithHistory struct {
		History []int32
		Token   int32
		IDs     []int64
	} `json:"with_history"`
}

func releasedHash(t testing.TB) (released, weights.NgramHash, int32) {
	t.Helper()
	var r released
	text, err := os.ReadFile("testdata/released-ngram.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	c := releasedConfig(t)
	h, err := c.NgramHash(0)
	if err != nil {
		t.Fatal(err)
	}
	return r, h, c.EOS
}

func TestReleasedHash(t *testing.T) {
	r, h, eos := releasedHash(t)
	if diff := cmp.Diff(weights.NgramHash{Multipliers: r.Multipliers, Vocab: r.Sizes, Offsets: r.Offsets, Rows: r.Rows}, h); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
	var tokens []int32
	var want []int64
	for _, row := range r.FromStart {
		tokens, want = append(tokens, row.Token), append(want, row.IDs...)
	}
	got := make([]int64, len(want))
	h.RowIDs(got, tokens, 0, eos)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("row ids (-want +got):\n%s", diff)
	}
	got = make([]int64, 16)
	h.RowIDs(got, append(slices.Clone(r.WithHistory.History), r.WithHistory.Token), 2, eos)
	if diff := cmp.Diff(r.WithHistory.IDs, got); diff != "" {
		t.Errorf("row ids with a history (-want +got):\n%s", diff)
	}
}

// Row ids are those of the definition, written the other way round: the window of p starts after the last eos
// strictly before it. And they do not depend on where a chunk starts, given N-1 tokens before it.
func TestRowIDs(t *testing.T) {
	config, _ := fixture(t, "odd") // 4-grams: three orders of two heads
	c, err := weights.ParseConfig(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.NgramHash(0)
	if err != nil {
		t.Fatal(err)
	}
	const n, heads = 4, 2
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Int32Range(0, 5), 1, 24).Draw(t, "tokens") // eos, 1, is frequent
		want := make([]int64, 0, len(tokens)*6)
		for p := range tokens {
			start := 0
			for j := range p {
				if tokens[j] == c.EOS {
					start = j + 1
				}
			}
			at := func(q int) int64 {
				if q < start {
					return int64(c.EOS)
				}
				return int64(tokens[q])
			}
			for order := 2; order <= n; order++ {
				var x int64
				for back := range order {
					x ^= at(p-back) * h.Multipliers[back]
				}
				for i := range heads {
					head := (order-2)*heads + i
					want = append(want, x%h.Vocab[head]+h.Offsets[head])
				}
			}
		}
		from := rapid.IntRange(0, len(tokens)).Draw(t, "from")
		window := tokens[max(0, from-n+1):]
		got := make([]int64, 6*(len(tokens)-from))
		h.RowIDs(got, window, len(window)-(len(tokens)-from), c.EOS)
		if !slices.Equal(got, want[6*from:]) {
			t.Fatalf("from %d: %v, want %v", from, got, want[6*from:])
		}
		for _, id := range got {
			if id < 0 || id >= h.Rows {
				t.Fatalf("row %d of %d", id, h.Rows)
			}
		}
	})
}

func TestLaterLayersTakeLaterPrimes(t *testing.T) {
	config, _ := fixture(t, "tiny")
	c, err := weights.ParseConfig(edit(t, config, func(_, text map[string]any) { text["ple_layer_ids"] = []int{5, 2} }), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := c.NgramHash(0)
	b, errB := c.NgramHash(1)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if !slices.Equal(a.Vocab, []int64{503, 509, 521, 523}) || !slices.Equal(b.Vocab, []int64{541, 547, 557, 563}) || b.Offsets[0] != 0 {
		t.Errorf("%v then %v", a, b)
	}
	if slices.Equal(a.Multipliers, b.Multipliers) || c.PLEIndex(1) != 0 || c.PLEIndex(4) != 1 || c.PLEIndex(2) != -1 {
		t.Errorf("multipliers %v %v, indexes %d %d %d", a.Multipliers, b.Multipliers, c.PLEIndex(1), c.PLEIndex(4), c.PLEIndex(2))
	}
	if _, err := c.NgramHash(2); err == nil {
		t.Error("a third layer's hash was made")
	}
}

// Sixteen shards sort otherwise by name than by number; the table must come in numeric order.
func TestShardOrder(t *testing.T) {
	config, f := fixture(t, "tiny")
	prefix := layer1 + ".ple.ple_embedding.ngram_embedding."
	var table []byte
	for i := range 4 {
		name := fmt.Sprintf("%sshard_%d.weight", prefix, i)
		table = append(table, f[name].Data...)
		delete(f, name)
	}
	const shards = 16
	for i := range shards {
		f[fmt.Sprintf("%sshard_%d.weight", prefix, i)] = entry{"BF16", []int{136, 32}, table[i*136*64 : (i+1)*136*64]}
	}
	c := open(t, edit(t, config, func(_, text map[string]any) { text["split_ngram_parts"] = shards }), f)
	h, err := c.Ngram(layer1, 0)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.NgramTable(layer1, shards, int(h.Rows), 32)
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, shard := range list {
		got = append(got, shard.Data...)
	}
	if !bytes.Equal(got, table) {
		t.Error("the shards are not in order")
	}
	if _, err := c.NgramTable(layer1, shards, int(h.Rows)+1, 32); err == nil {
		t.Error("rows that do not divide were accepted")
	}
}

func TestNgramConstantsMayBeAbsent(t *testing.T) {
	config, f := fixture(t, "tiny")
	want, err := open(t, config, f).Ngram(layer1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name := range f {
		if f[name].DType == "I64" {
			delete(f, name)
		}
	}
	c := open(t, config, f)
	got, err := c.Ngram(layer1, 0)
	if err != nil || cmp.Diff(want, got) != "" || conventions(c)["n-gram constants"] != "computed, none stored" {
		t.Errorf("%v, %v, %s", got, err, conventions(c)["n-gram constants"])
	}
}

// The embedded model's stored multipliers are the formula's rounded to float32: the formula's count, and the
// findings say so. Any other difference is refused.
func TestRoundedMultipliers(t *testing.T) {
	c, err := weights.Open(filepath.Join("..", "nano"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h, err := c.Ngram(layer1, 0)
	if err != nil || h.Multipliers[0] != 2043359076095531 {
		t.Errorf("%v, %v", h.Multipliers, err)
	}
	if got := conventions(c)["n-gram constants"]; !strings.Contains(got, "float32") {
		t.Errorf("the rounding is not reported: %q", got)
	}
}

func TestOtherMultipliersAreRefused(t *testing.T) {
	config, f := fixture(t, "tiny")
	name := layer1 + ".ple.ple_embedding.layer_multipliers"
	for _, m := range []int64{0, -1, 1 << 55} {
		data := bytes.Clone(f[name].Data)
		binary.LittleEndian.PutUint64(data[8:], uint64(m))
		f[name] = entry{"I64", []int{3}, data}
		if _, err := weights.OpenBytes("test", config, f.encode()); err == nil || !strings.Contains(err.Error(), "layer_multipliers") {
			t.Errorf("%d: %v", m, err)
		}
	}
}
