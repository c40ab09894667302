package programs

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/testkit/testcert"
)

// content makes a file of random bytes in a folder that every user can read, and returns its path and hash.
func content(t *testing.T, dir string, size int64) (path, sum string) {
	t.Helper()
	path = filepath.Join(dir, fmt.Sprintf("content-%d", size))
	f, err := os.Create(path)
	must(t, err)
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(rand.NewChaCha8([32]byte{byte(size)}), size))
	must(t, err, f.Close())
	return path, hex.EncodeToString(h.Sum(nil))
}

// sumOf returns the hash of a file.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	must(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// equal fails the test unless a file has the hash.
func equal(t *testing.T, what, path, sum string) {
	t.Helper()
	if got := sumOf(t, path); got != sum {
		info, _ := os.Stat(path)
		t.Errorf("%s: %d bytes with hash %s, want %s", what, info.Size(), got, sum)
	}
}

// webServer is a HTTP server of the standard library in the namespace peer: it serves a folder, and answers a PUT or POST
// with the hash of what it got.
func (b *bed) webServer(t *testing.T, dir string) (plain, secure string) {
	t.Helper()
	files := http.FileServer(http.Dir(dir))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			files.ServeHTTP(w, r)
			return
		}
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x", h.Sum(nil)) //nolint:errcheck // the client may have gone
	})
	cert, _ := testcert.SelfSigned("peer", net.ParseIP(peerAddr), net.ParseIP(peerAddr6))
	serve := func(s *http.Server, f func() error) {
		t.Cleanup(func() { _ = s.Close() })
		go func() {
			if err := f(); !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("the web server of the peer: %v", err)
			}
		}()
	}
	must(t, b.peer.ns.Do(func() error {
		l, err := net.Listen("tcp", "[::]:0")
		if err != nil {
			return err
		}
		s, err := net.Listen("tcp", "[::]:0")
		if err != nil {
			return err
		}
		_, plain, _ = net.SplitHostPort(l.Addr().String())
		_, secure, _ = net.SplitHostPort(s.Addr().String())
		http1, http2 := &http.Server{Handler: handler}, &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
		serve(http1, func() error { return http1.Serve(l) })
		serve(http2, func() error { return http2.ServeTLS(s, "", "") })
		return nil
	}))
	return plain, secure
}
