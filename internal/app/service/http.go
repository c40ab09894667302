package service

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxBytes is the largest N of /bytes/N: 1 TiB.
const MaxBytes = 1 << 40

const page = `This is Millrace's TCP. Try:

  curl http://HOST/bytes/N               N bytes (k, M, G: 1024s of them), the same each time; ranges work
  curl -T FILE http://HOST/echo          the body comes back while it is sent
  curl -T FILE http://HOST/sum           the body's SHA-256 and length come back
`

// serveHTTP serves the connections of l until the Server ends.
func (s *Server) serveHTTP(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, strings.ReplaceAll(page, "HOST", r.Host))
	})
	mux.HandleFunc("GET /bytes/{n}", serveBytes)
	mux.HandleFunc("PUT /echo", serveEcho)
	mux.HandleFunc("POST /echo", serveEcho)
	mux.HandleFunc("PUT /sum", serveSum)
	mux.HandleFunc("POST /sum", serveSum)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: s.cfg.Limits.Idle,
		ErrorLog:       log.New(io.Discard, "", 0), // of clients' mistakes: Stats counts them
		BaseContext:    func(net.Listener) context.Context { return s.ctx },
		MaxHeaderBytes: 64 << 10,
	}
	// Shutdown also closes the connections that wait for a next request; it ends at the latest with the Server.
	if !s.open(l, func() { go func() { _ = srv.Shutdown(s.ctx) }() }) {
		l.Close()
		return ErrClosed
	}
	defer s.leave(l)
	return s.ending(srv.Serve(l))
}

// serveBytes sends as many bytes as the path says.
func serveBytes(w http.ResponseWriter, r *http.Request) {
	n, err := parseSize(r.PathValue("n"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", fmt.Sprintf(`"pattern-%d"`, n))
	http.ServeContent(w, r, "", time.Time{}, &pattern{size: n})
}

// sizes are the letters behind a number.
var sizes = map[byte]int64{'k': 1 << 10, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}

// parseSize reads a number of bytes such as 17, 64k or 10M.
func parseSize(text string) (int64, error) {
	digits, unit := text, int64(1)
	if len(text) > 0 && sizes[text[len(text)-1]] != 0 {
		digits, unit = text[:len(text)-1], sizes[text[len(text)-1]]
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(n) > MaxBytes/unit {
		return 0, fmt.Errorf("%q is no number of bytes: say 0 to %d, or such as 64k, 10M, 1G", text, int64(MaxBytes))
	}
	return int64(n) * unit, nil
}

// serveEcho sends the body back while it comes.
func serveEcho(w http.ResponseWriter, r *http.Request) {
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, r.Body, make([]byte, chunk)); err != nil {
		panic(http.ErrAbortHandler) // the answer is cut short: its reader has to notice
	}
}

// serveSum sends the body's SHA-256 and length.
func serveSum(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	n, err := io.CopyBuffer(h, r.Body, make([]byte, chunk))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fmt.Fprintf(w, "%x %d\n", h.Sum(nil), n)
}

// pattern is a file of size bytes that need no memory: a block that has no period of its own, over and over.
type pattern struct{ size, at int64 }

// Pattern returns what GET /bytes/N sends.
func Pattern(n int64) io.ReadSeeker { return &pattern{size: n} }

// block is repeated by pattern. Its length is a prime, so that bytes swapped by whole pages or segments
// show.
var block = func() []byte {
	b := make([]byte, 65521)
	x := uint32(2463534242) // Marsaglia's xorshift32
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x >> 11)
	}
	return b
}()

// Read implements io.Reader.
func (p *pattern) Read(b []byte) (int, error) {
	if p.at >= p.size {
		return 0, io.EOF
	}
	b = b[:min(int64(len(b)), p.size-p.at)]
	n := copy(b, block[p.at%int64(len(block)):])
	p.at += int64(n)
	return n, nil
}

// Seek implements io.Seeker.
func (p *pattern) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += p.at
	case io.SeekEnd:
		offset += p.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	p.at = offset
	return offset, nil
}
