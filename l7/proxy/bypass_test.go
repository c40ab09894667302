package proxy

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Large bodies pass past the machines in both directions, also to a receiver that reads slowly and from a sender that takes longer than
// the time without progress.
func TestLargeBodies(t *testing.T) {
	const size = 24 << 20
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(data)
	want := fmt.Sprintf("%x", sha256.Sum256(data))
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == "GET" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			w.Write(data)
			return
		}
		h := sha256.New()
		io.Copy(h, req.Body)
		fmt.Fprintf(w, "%x", h.Sum(nil))
	}))
	defer backend.Close()
	r := newRig(t, strings.TrimPrefix(backend.URL, "http://"), func(r *rig) {
		r.each(func(l *Listener) { l.Timeouts.Body, l.Timeouts.Write = 1500*time.Millisecond, 5*time.Second })
	})
	t.Run("download to a slow reader", func(t *testing.T) {
		resp, err := http.Get("http://" + r.addr)
		must(t, err)
		defer resp.Body.Close()
		h := sha256.New()
		for range 6 {
			io.CopyN(h, resp.Body, 1<<20)
			time.Sleep(100 * time.Millisecond)
		}
		io.Copy(h, resp.Body)
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != want {
			t.Error("the content differs")
		}
	})
	t.Run("upload in pieces", func(t *testing.T) {
		conn, err := net.Dial("tcp", r.addr)
		must(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", size)
		for i := range 8 {
			_, err := conn.Write(data[i*size/8 : (i+1)*size/8])
			must(t, err)
			time.Sleep(250 * time.Millisecond) // 2 s together
		}
		all, err := io.ReadAll(conn)
		if err != nil || !bytes.HasSuffix(all, []byte(want)) {
			t.Errorf("%q %v", all, err)
		}
	})

	r.settled()
}
