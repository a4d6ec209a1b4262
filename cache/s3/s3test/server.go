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
	ports, err := FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
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
	for range 2400 { // a minute
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

// FreePorts are n ports of the loopback interface that nobody listens at. They are below those that a system gives to
// connections and to listeners that name none, so that nobody takes one by chance before it is used.
func FreePorts(n int) (ports []int, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a place to begin at that the system gives nobody else soon
	if err != nil {
		return nil, fmt.Errorf("look for free ports: %w", err)
	}
	defer l.Close()
	const first, count = 20_000, 12_000
	begin := l.Addr().(*net.TCPAddr).Port
	for i := 0; i < count && len(ports) < n; i++ {
		port := first + (begin+i)%count
		if one, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			ports = append(ports, port)
			one.Close()
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("%d of %d ports from %d on are free, %d are wanted", len(ports), count, first, n)
	}
	return ports, nil
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
