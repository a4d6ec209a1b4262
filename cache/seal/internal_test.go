package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"lector/cache"
)

// vectors were made by testdata/make_sealed.py from format.md.
type vectors struct {
	Secret     string `json:"secret"`
	ID         string `json:"id"`
	TenantSalt string `json:"tenant_salt"`
	Salt       string `json:"salt"`
	Objects    []struct {
		Name         string `json:"name"`
		SealedName   string `json:"sealed_name"`
		Size         int    `json:"size"`
		PlainSHA256  string `json:"plain_sha256"`
		SealedSHA256 string `json:"sealed_sha256"`
		Sealed       []byte `json:"sealed"`
	} `json:"objects"`
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What another program seals from the description, this one makes and opens, to the byte.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/sealed.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	k, err := NewKey(unhex(t, v.Secret))
	if err != nil || k.id != v.ID || hex.EncodeToString(k.Salt(unhex(t, v.TenantSalt))) != v.Salt {
		t.Fatalf("id %s, salt %x, %v", k.id, k.Salt(unhex(t, v.TenantSalt)), err)
	}
	for i, o := range v.Objects {
		if got, err := k.sealName(o.Name); err != nil || got != o.SealedName {
			t.Errorf("%s lies at %s, %v", o.Name, got, err)
		}
		if got, ok := k.openName(o.SealedName); !ok || got != o.Name {
			t.Errorf("%s is %s", o.SealedName, got)
		}
		plain := make([]byte, o.Size)
		for j := range plain {
			plain[j] = byte(j*7 + i)
		}
		s := newSealer(k, o.Name, bytes.NewReader(plain), int64(len(plain)))
		salt := bytes.Repeat([]byte{byte(i + 1)}, saltSize)
		copy(s.header[len(magic)+idBytes:], salt)
		if s.aead, err = k.aead(salt, o.Name); err != nil {
			t.Fatal(err)
		}
		sealed, err := io.ReadAll(s)
		if sum := sha256.Sum256(sealed); err != nil || hex.EncodeToString(sum[:]) != o.SealedSHA256 || int64(len(sealed)) != s.size {
			t.Errorf("%s: %d sealed bytes of another digest, %v", o.Name, len(sealed), err)
		}
		if len(o.Sealed) > 0 && !bytes.Equal(sealed, o.Sealed) {
			t.Errorf("%s: sealed to %s", o.Name, base64.StdEncoding.EncodeToString(sealed))
		}
		got, err := io.ReadAll(newOpener(k, o.Name, io.NopCloser(bytes.NewReader(sealed))))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s opens to %d bytes, %v", o.Name, len(got), err)
		}
	}
}

// A sealed body gives the same bytes however it is read and sought, as clients of a service do.
func TestSealerSeeks(t *testing.T) {
	k, err := NewKey(make([]byte, keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	plain := bytes.Repeat([]byte("0123456789"), 20_000)
	s := newSealer(k, "t/x", bytes.NewReader(plain), int64(len(plain)))
	whole, err := io.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	if end, err := s.Seek(0, io.SeekEnd); err != nil || end != int64(len(whole)) {
		t.Errorf("the end is at %d of %d, %v", end, len(whole), err)
	}
	for _, at := range []int64{0, 5, 70, 100_000, 3, 130_000, int64(len(whole))} {
		if _, err := s.Seek(at, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.LimitReader(s, 50_000))
		if err != nil || !bytes.Equal(got, whole[at:min(int(at)+50_000, len(whole))]) {
			t.Errorf("from %d: %d bytes, %v", at, len(got), err)
		}
	}
	if _, err := s.Seek(-1, io.SeekStart); err == nil {
		t.Error("a seek before the beginning")
	}
}

// openedSize undoes sealedSize, and no cut object has the size of the whole one.
func TestSizes(t *testing.T) {
	for _, n := range []int64{0, 1, segmentSize - 1, segmentSize, segmentSize + 1, 2 * segmentSize, 3*segmentSize + 7, cache.MaxBlob} {
		whole := sealedSize(n)
		if openedSize(whole) != n {
			t.Errorf("%d became %d", n, openedSize(whole))
		}
		for cut := range int64(100) {
			if got := openedSize(whole - 1 - cut); n > 0 && got >= n || got < 0 {
				t.Errorf("%d cut by %d says %d", n, cut+1, got)
			}
		}
	}
}

// Whatever the bytes of an object, opening it gives an error of a kind or what was sealed, and takes no more than it says.
func FuzzOpen(f *testing.F) {
	k, err := NewKey(make([]byte, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	plain := bytes.Repeat([]byte("0123456789"), 7000)
	sealed, err := io.ReadAll(newSealer(k, "t/x", bytes.NewReader(plain), int64(len(plain))))
	if err != nil {
		f.Fatal(err)
	}
	small, err := io.ReadAll(newSealer(k, "t/x", strings.NewReader("small"), 5))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:len(sealed)/2])
	f.Add(small)
	f.Add(small[:headerSize])
	f.Add([]byte(magicFamily + "9\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := io.ReadAll(newOpener(k, "t/x", io.NopCloser(bytes.NewReader(b))))
		switch {
		case err == nil && !bytes.Equal(got, plain) && string(got) != "small":
			t.Fatalf("%d bytes open to %d others", len(b), len(got))
		case err != nil && !errors.Is(err, cache.ErrCorrupt) && !errors.Is(err, cache.ErrIncompatible):
			t.Fatalf("error of no kind: %v", err)
		}
		if n := openedSize(int64(len(b))); n < 0 || err == nil && n != int64(len(got)) {
			t.Fatalf("%d sealed bytes say %d and are %d", len(b), n, len(got))
		}
	})
}

// A name in the store beneath is one that this key sealed, or none; and what is sealed opens.
func FuzzNames(f *testing.F) {
	k, err := NewKey(make([]byte, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"a", "t/a", "t/blobs/x", "t/signatures/d/k", "sealed/x", "sealed/sealed/sealed/sealed"} {
		inner, err := k.sealName(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s)
		f.Add(inner)
		f.Add(strings.ToUpper(inner))
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, ok := k.openName(s); ok {
			if inner, err := k.sealName(name); err != nil || inner != s {
				t.Fatalf("%q opens to %q, which lies at %q, %v", s, name, inner, err)
			}
		}
		inner, err := k.sealName(s)
		if err != nil {
			return
		}
		if name, ok := k.openName(inner); !ok || name != s || cache.CheckName(inner) != nil {
			t.Fatalf("%q lies at %q, which opens to %q", s, inner, name)
		}
		for i := range len(s) + 1 {
			if !strings.HasPrefix(inner, k.sealPrefix(s[:i])) {
				t.Fatalf("%q is not among what is listed for %q", inner, s[:i])
			}
		}
	})
}

// A ring that is read has keys whose lines give them back, and errors are one line.
func FuzzParseRing(f *testing.F) {
	k, err := NewKey(make([]byte, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	m, err := NewMaster(make([]byte, keyBytes))
	if err != nil {
		f.Fatal(err)
	}
	line, err := WrappedLine(f.Context(), k, m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(k.Line())
	f.Add("# a\n" + line + "\n")
	f.Add(wrapped + k.id + " AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseRing(t.Context(), text, m)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		for _, k := range keys {
			if again, err := ParseRing(t.Context(), k.Line(), nil); err != nil || again[0].id != k.id {
				t.Fatalf("%v, %v", again, err)
			}
		}
	})
}

// What opens wrapped keys is a wrapper or an error of one line.
func FuzzParseWrapper(f *testing.F) {
	f.Add(MasterLine(make([]byte, keyBytes)))
	f.Add("# created\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ParseWrapper(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if _, err := w.Unwrap(t.Context(), []byte(text)); err == nil {
			t.Fatal("a text opened as a wrapped key")
		}
	})
}
