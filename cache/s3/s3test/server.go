// Package s3test starts a real object storage server for tests: versitygw over a temporary folder. Tests skip where
// its program is not there.
//
// The program is lector/tools/versitygw-v1.8.0/versitygw in the user's cache folder; tests/run installs it there. One
// Server may serve many tests. Start reading at Start.
package s3test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// Server is a running server that takes one pair of credentials.
type Server struct {
	Endpoint             string
	AccessKey, SecretKey string

	folder  string
	buckets atomic.Int32
}

// Program is the path of versitygw, or an error that says how to get it.
func Program() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lector", "tools", "versitygw-v1.8.0", "versitygw")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no S3 server to test against (%w): tests/run installs it, or GOBIN=%s go install github.com/versity/versitygw/cmd/versitygw@v1.8.0",
			err, filepath.Dir(path))
	}
	return path, nil
}

// Start runs a server until the test ends, or skips the test where there is no program.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := Program()
	if err != nil {
		t.Skip(err)
	}
	address := freeAddress(t)
	s := &Server{Endpoint: "http://" + address, AccessKey: "test", SecretKey: "testsecret", folder: t.TempDir()}
	var said bytes.Buffer
	cmd := exec.Command(program, "--quiet", "--access", s.AccessKey, "--secret", s.SecretKey, "--port", address, "--keep-alive", "posix", s.folder)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	for range 200 {
		if answers(s.Endpoint) {
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("versitygw ended (%v): %s", err, said.Bytes())
		case <-time.After(25 * time.Millisecond):
		}
	}
	t.Fatalf("versitygw does not answer at %s", s.Endpoint)
	return nil
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func answers(endpoint string) bool {
	r, err := http.Get(endpoint + "/none")
	if err != nil {
		return false
	}
	r.Body.Close()
	return true
}

// Bucket makes an empty bucket and returns its name.
func (s *Server) Bucket(t testing.TB) string {
	t.Helper()
	name := "bucket-" + strconv.Itoa(int(s.buckets.Add(1)))
	if err := os.Mkdir(filepath.Join(s.folder, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// Folder is where a bucket's objects lie as files, for tests that damage them.
func (s *Server) Folder(bucket string) string { return filepath.Join(s.folder, bucket) }
