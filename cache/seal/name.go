package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"lector/cache"
)

// A name a/b/c/d lies in the store beneath as a/sealed/<key id>/b/<c>/<d>: the tenant and the kind stay, every element
// behind them, and the last one in any case, is sealed by itself. <c> is base32 of tag || cipher, where
//
//	tag    = the first 24 bytes of HMAC-SHA-256( name MAC key, "a/b" || 0 || "c" )
//	cipher = "c" xor AES-256-CTR( name key, the first 16 bytes of tag )
//
// so that equal names are equal, a listing reads no object, and an element opens only where it was sealed. A name of one
// element lies in sealed/<key id>/.
const (
	sealedFolder = "sealed"
	nameTag      = 24
	plainDepth   = 2 // elements that stay plain, unless last
)

func nameEncoding() *base32.Encoding {
	return base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
}

// tag binds an element to the plain names above it.
func (k Key) tag(folder, element string) []byte {
	h := hmac.New(sha256.New, k.nameMAC)
	h.Write([]byte(folder))
	h.Write([]byte{0})
	h.Write([]byte(element))
	return h.Sum(nil)[:nameTag]
}

// mask encrypts an element, and opens it again.
func (k Key) mask(tag, element []byte) []byte {
	out := make([]byte, len(element))
	block, err := aes.NewCipher(k.name)
	if err != nil {
		return out // not reached: the key has 32 bytes
	}
	cipher.NewCTR(block, tag[:aes.BlockSize]).XORKeyStream(out, element)
	return out
}

// sealElement is the sealed form of an element in a folder.
func (k Key) sealElement(folder, element string) string {
	tag := k.tag(folder, element)
	return nameEncoding().EncodeToString(append(tag, k.mask(tag, []byte(element))...))
}

// openElement is the element that a sealed form in a folder stands for.
func (k Key) openElement(folder, sealed string) (string, bool) {
	raw, err := nameEncoding().DecodeString(sealed)
	if err != nil || len(raw) <= nameTag {
		return "", false
	}
	element := string(k.mask(raw[:nameTag], raw[nameTag:]))
	return element, k.sealElement(folder, element) == sealed // of one spelling, and of this key and folder
}

// join puts an element behind a folder, which may be empty.
func join(folder, element string) string {
	if folder == "" {
		return element
	}
	return folder + "/" + element
}

// sealName is where an object lies in the store beneath. Errors: cache.ErrName.
func (k Key) sealName(name string) (string, error) {
	if err := cache.CheckName(name); err != nil {
		return "", err
	}
	elements := strings.Split(name, "/")
	out, folder := "", ""
	for i, e := range elements {
		last := i == len(elements)-1
		if i == 1 || last && i == 0 {
			out = join(join(out, sealedFolder), k.id)
		}
		if i < plainDepth && !last {
			out = join(out, e)
		} else {
			out = join(out, k.sealElement(folder, e))
		}
		folder = join(folder, e)
	}
	if err := cache.CheckName(out); err != nil {
		return "", fmt.Errorf("object name %q is too long to be sealed: %w", name, err)
	}
	return out, nil
}

// sealPrefix is a prefix in the store beneath that everything has whose plain name has the prefix.
func (k Key) sealPrefix(prefix string) string {
	elements := strings.Split(prefix, "/")
	elements = elements[:len(elements)-1] // the last may be the beginning of a name
	if len(elements) == 0 {
		return "" // of any tenant; a name of one element too
	}
	out, folder := "", ""
	for i, e := range elements {
		if i < plainDepth {
			out = join(out, e)
		} else {
			out = join(out, k.sealElement(folder, e))
		}
		if i == 0 {
			out = join(join(out, sealedFolder), k.id)
		}
		folder = join(folder, e)
	}
	return out + "/"
}

// openName is the plain name of what lies in the store beneath; false for what this key did not seal.
func (k Key) openName(inner string) (string, bool) {
	elements := strings.Split(inner, "/")
	tenants := 1
	if len(elements) == 3 && elements[0] == sealedFolder && elements[1] == k.id {
		tenants = 0
	}
	if len(elements) < tenants+3 || elements[tenants] != sealedFolder || elements[tenants+1] != k.id {
		return "", false
	}
	name := strings.Join(elements[:tenants], "/")
	rest := elements[tenants+2:]
	for i, e := range rest {
		if depth := tenants + i; depth < plainDepth && i < len(rest)-1 {
			name = join(name, e)
			continue
		}
		plain, ok := k.openElement(name, e)
		if !ok {
			return "", false
		}
		name = join(name, plain)
	}
	return name, cache.CheckName(name) == nil
}
