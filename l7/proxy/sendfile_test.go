package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/files"
)

// fileRig serves a folder with one file instead of a backend.
func fileRig(t *testing.T, content []byte) (r *rig, name string) {
	root := t.TempDir()
	name = filepath.Join(root, "f")
	must(t, os.WriteFile(name, content, 0o600))
	site, err := files.Open(files.Options{Root: root})
	must(t, err)
	return newRig(t, "127.0.0.1:1", func(r *rig) { r.rule.Files, r.rule.Backends = site, nil }), name
}

func fileContent(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// fetch returns the content of a response.
func fetch(t *testing.T, c *http.Client, url string) []byte {
	t.Helper()
	resp, err := c.Get(url)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return b
}

// parts returns how many buffers for files there are.
func (r *rig) parts() (n int) {
	r.settled()
	r.do(func() { n = len(r.worker.parts) })
	return n
}

// TestFilesGoPastTheProcess: the kernel sends what is in its cache to a plain connection, so that no buffer is used, and nothing else.
func TestFilesGoPastTheProcess(t *testing.T) {
	content := fileContent(3 << 20)
	r, name := fileRig(t, content)
	for range 2 {
		if b := fetch(t, r.client(false), "http://"+r.addr+"/f"); !bytes.Equal(b, content) {
			t.Fatalf("%d of %d bytes", len(b), len(content))
		}
	}
	if n := r.parts(); n != 0 {
		t.Errorf("%d buffers were used", n)
	}
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	must(t, f.Sync())
	must(t, unix.Fadvise(int(f.Fd()), 1<<20, 1<<20, unix.FADV_DONTNEED)) // a part comes from the disk
	if b := fetch(t, r.client(false), "http://"+r.addr+"/f"); !bytes.Equal(b, content) {
		t.Fatalf("%d of %d bytes", len(b), len(content))
	}
	for i, h2 := range []bool{false, true} {
		if b := fetch(t, r.client(h2), "https://"+r.secure+"/f"); !bytes.Equal(b, content) {
			t.Fatalf("TLS: %d of %d bytes", len(b), len(content))
		}
		if n := r.parts(); n == 0 {
			t.Errorf("%d: no buffer was used with TLS", i)
		}
	}
}

// TestShorterFile: a file that loses its end while it is sent is a response that is cut, and the time of a client that takes nothing ends.
func TestShorterFile(t *testing.T) {
	r, name := fileRig(t, fileContent(32<<20))
	resp, err := r.client(false).Get("http://" + r.addr + "/f")
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	must(t, os.Truncate(name, 1<<20))
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes more, and no error", n)
	}
	r.settled()
	if n := r.parts(); n > 1 {
		t.Errorf("%d buffers", n)
	}
}

// TestStoppedClientOfAFile: a client that takes nothing of a file is cut once the time for it has passed.
func TestStoppedClientOfAFile(t *testing.T) {
	r, _ := fileRig(t, fileContent(32<<20))
	tree := *r.tree
	plain := *tree.Listeners[0]
	plain.Timeouts.Write = 50e6
	tree.Listeners = append([]*Listener{&plain}, tree.Listeners[1:]...)
	must(t, r.apply(&tree))
	resp, err := r.client(false).Get("http://" + r.addr + "/f")
	must(t, err)
	defer resp.Body.Close()
	r.settled() // without a byte that is read
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes, and no error", n)
	}
}
