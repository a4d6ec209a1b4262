package main

import (
	"io"
	"net"
	"testing"
	"time"

	"lector/cache/s3/s3test"
)

// The short form: a fleet under trouble reads a few documents, and everything adds up.
func TestShortSoak(t *testing.T) {
	if _, err := s3test.Program(); err != nil {
		t.Skip(err)
	}
	if err := soak(t.Context(), options{seed: 2, documents: 16, limit: 4 * time.Minute}, t.Logf); err != nil {
		t.Fatal(err)
	}
}

// A wire that is cut ends what it carried and takes nothing new, until it is mended.
func TestWire(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	w, err := newWire(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	call := func() (net.Conn, bool) {
		c, err := net.Dial("tcp", w.address())
		if err != nil {
			t.Fatal(err)
		}
		return c, answers(c)
	}
	open, ok := call()
	if !ok {
		t.Fatal("a whole wire carries nothing")
	}
	defer open.Close()
	w.sever()
	if answers(open) {
		t.Error("what a cut wire carried goes on")
	}
	if c, ok := call(); ok {
		t.Error("a cut wire takes more")
	} else {
		c.Close()
	}
	w.mend()
	if c, ok := call(); !ok {
		t.Error("a mended wire carries nothing")
	} else {
		c.Close()
	}
}

// answers says whether the other end sends back what it gets.
func answers(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte{1}); err != nil {
		return false
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err == nil
}
