package seal_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"filippo.io/age"

	"lector/cache/seal"
)

// A ring's lines give back their keys in order, plain or wrapped, and every other line is refused by its number.
func TestRing(t *testing.T) {
	one, two := key(t, 1), key(t, 2)
	keys, err := seal.ParseRing(t.Context(), "# ours\n\n"+one.Line()+"\n  "+two.Line()+"\n", nil)
	if err != nil || len(keys) != 2 || keys[0].ID() != one.ID() || keys[1].ID() != two.ID() {
		t.Fatalf("%v, %v", keys, err)
	}
	line := one.Line()
	for what, text := range map[string]string{
		"nothing":   "# none\n",
		"short":     line[:len(line)-2],
		"long":      line + "00",
		"capitals":  strings.ToUpper(line),
		"other":     "lector-secret-1 " + strings.Repeat("0", 64),
		"twice":     line + "\n" + line,
		"no base64": "lector-wrapped-1 0123456789abcdef !!",
		"no id":     "lector-wrapped-1 AAAA",
		"large":     strings.Repeat("#", 1<<17),
	} {
		_, err := seal.ParseRing(t.Context(), text, nil)
		if err == nil || strings.Contains(err.Error(), line[len(line)-20:]) || !strings.Contains(err.Error(), "seal keys") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Keys print as their ids.
func TestKeyDoesNotPrint(t *testing.T) {
	k := key(t, 0xab)
	for _, text := range []string{fmt.Sprint(k), fmt.Sprintf("%+v", k), fmt.Sprintf("%#v", k), fmt.Sprintf("%v", []seal.Key{k})} {
		if strings.Contains(text, "abab") || strings.Contains(text, "171") || !strings.Contains(text, k.ID()) {
			t.Errorf("%q", text)
		}
	}
}

// Two salts are equal only for the same key and the same tenant's salt.
func TestSalt(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range []seal.Key{key(t, 1), key(t, 2)} {
		for _, salt := range [][]byte{nil, {1}, bytes.Repeat([]byte{1}, 32)} {
			if !bytes.Equal(k.Salt(salt), k.Salt(salt)) || len(k.Salt(salt)) != 32 {
				t.Error("the salt is no function")
			}
			seen[string(k.Salt(salt))] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("%d salts of 6", len(seen))
	}
}

// wrappers are those that come along.
func wrappers(t testing.TB) map[string][2]seal.Wrapper {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to, err := seal.AgeRecipients("# fleet\n" + id.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	from, err := seal.ParseWrapper("# created: today\n" + id.String() + "\n")
	if err != nil {
		t.Fatal(err)
	}
	master, err := seal.ParseWrapper(seal.MasterLine(bytes.Repeat([]byte{7}, 32)) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][2]seal.Wrapper{"age": {to, from}, "master": {master, master}}
}

// A wrapped key opens with what belongs to it, with nothing else, and not after a change.
func TestWrappedKeys(t *testing.T) {
	k := key(t, 1)
	all := wrappers(t)
	for name, w := range all {
		line, err := seal.WrappedLine(t.Context(), k, w[0])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		keys, err := seal.ParseRing(t.Context(), line+"\n"+key(t, 2).Line(), w[1])
		if err != nil || len(keys) != 2 || keys[0].Line() != k.Line() {
			t.Errorf("%s: %v, %v", name, keys, err)
		}
		if _, err := seal.ParseRing(t.Context(), line, nil); err == nil || !strings.Contains(err.Error(), k.ID()) {
			t.Errorf("%s without a wrapper: %v", name, err)
		}
		for other, o := range all {
			if other != name {
				if _, err := seal.ParseRing(t.Context(), line, o[1]); err == nil || !strings.Contains(err.Error(), k.ID()) {
					t.Errorf("%s opens with %s: %v", name, other, err)
				}
			}
		}
		body, err := base64.StdEncoding.DecodeString(line[strings.LastIndex(line, " ")+1:])
		if err != nil {
			t.Fatal(err)
		}
		body[len(body)-3] ^= 1
		changed := line[:strings.LastIndex(line, " ")+1] + base64.StdEncoding.EncodeToString(body)
		if _, err := seal.ParseRing(t.Context(), changed, w[1]); err == nil {
			t.Errorf("%s: a changed line opens", name)
		}
		renamed := strings.Replace(line, k.ID(), key(t, 2).ID(), 1)
		if _, err := seal.ParseRing(t.Context(), renamed, w[1]); err == nil || !strings.Contains(err.Error(), "changed") {
			t.Errorf("%s: a line with another id: %v", name, err)
		}
	}
}

// What opens wrapped keys is read strictly, and errors hold no secret.
func TestParseWrapper(t *testing.T) {
	master := seal.MasterLine(bytes.Repeat([]byte{7}, 32))
	for _, text := range []string{"", "x", master + "0", strings.ToUpper(master), "AGE-SECRET-KEY-1QQQQ", master[:40]} {
		if _, err := seal.ParseWrapper(text); err == nil || strings.Contains(err.Error(), "0707") || strings.Contains(err.Error(), "QQQQ") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := seal.AgeRecipients("age1x"); err == nil {
		t.Error("a recipient that is none")
	}
	if _, err := seal.NewKey(make([]byte, 31)); err == nil {
		t.Error("a short key")
	}
}
