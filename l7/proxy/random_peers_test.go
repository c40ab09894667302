package proxy

import (
	"context"
	"crypto/sha256"
	ctls "crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// plan is one request of TestRandomRequests and what the backend is to do with it. It travels in the query.
type plan struct {
	method           string
	to               string // the pool
	front            int
	seed             uint64
	up, down         int // bytes of content
	chunked          bool
	downChunked      bool
	trailers         bool
	downTrailers     bool
	fields           int
	status           int
	close            bool
	expect           bool
	slow             bool // the client reads slowly
	early            bool // the backend answers before it has read the content
	abort            int  // the backend ends its response after so many bytes, -1 never
	leave            int  // the client leaves after so many bytes of the response, -1 never
	leaveAfter       time.Duration
	hints, slowsDown bool
}

func randomPlan(r *rand.Rand) plan {
	size := func() int {
		if r.IntN(4) == 0 {
			return 0
		}
		return r.IntN(1 << (2 + r.IntN(21)))
	}
	one := func(n int) bool { return r.IntN(n) == 0 }
	p := plan{
		method: []string{"GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH"}[r.IntN(9)],
		to:     []string{"h1", "h2c", "h2"}[r.IntN(3)], front: r.IntN(4), seed: r.Uint64(), down: size(),
		downChunked: one(2), downTrailers: one(5), status: 200, close: one(20), slow: one(15), abort: -1, leave: -1,
		hints: one(20), slowsDown: one(20),
	}
	if p.method != "GET" && p.method != "HEAD" && p.method != "OPTIONS" {
		p.up, p.chunked = size(), one(2)
		p.trailers = p.chunked && p.up > 0 && one(3)
		p.expect = p.up > 0 && one(10)
		p.early = !p.trailers && one(15)
	}
	if one(6) {
		p.fields = r.IntN(60)
	}
	if one(10) {
		p.status = []int{201, 204, 206, 304, 400, 404, 429, 500, 503}[r.IntN(9)]
	}
	switch r.IntN(25) {
	case 0:
		p.abort = r.IntN(p.down + 1)
	case 1:
		p.leave = r.IntN(p.down + 1)
	case 2:
		p.leaveAfter = time.Duration(r.IntN(20_000)) * time.Microsecond
	}
	return p
}

func (p *plan) bodiless() bool { return p.method == "HEAD" || p.status == 204 || p.status == 304 }

func (p *plan) query() string {
	flag := func(name string, v bool) string {
		if v {
			return "&" + name + "=1"
		}
		return ""
	}
	return fmt.Sprintf("seed=%d&down=%d&status=%d&abort=%d%s%s%s%s%s", p.seed, p.down, p.status, p.abort, flag("chunked", p.downChunked),
		flag("trailers", p.downTrailers), flag("early", p.early), flag("hints", p.hints), flag("slow", p.slowsDown))
}

// content returns n bytes that only this seed gives.
func content(seed uint64, n int) []byte {
	b := make([]byte, n+7)
	r := rand.NewPCG(seed, 7)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			if i+j < len(b) {
				b[i+j] = byte(v >> (8 * j))
			}
		}
	}
	return b[:n]
}

// digest is of the fields of a test, names in order and the values of a name in theirs.
func digest(h http.Header) string {
	var names []string
	for k := range h {
		if strings.HasPrefix(k, "X-F-") || k == "Cookie" {
			names = append(names, k)
		}
	}
	sort.Strings(names)
	s := sha256.New()
	for _, k := range names {
		fmt.Fprintf(s, "%s=%q\n", k, strings.Join(h[k], "|"))
	}
	return hex.EncodeToString(s.Sum(nil)[:8])
}

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:8]) }

// planned is the handler of the backends: it does what the query says, and returns what it has got as fields.
func planned(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	number := func(k string) int { n, _ := strconv.Atoi(q.Get(k)); return n }
	seed, _ := strconv.ParseUint(q.Get("seed"), 10, 64)
	h := w.Header()
	h.Set("X-Seed", q.Get("seed"))
	h.Set("X-Method", req.Method)
	h.Set("X-Fields", digest(req.Header))
	if q.Has("hints") {
		h.Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(103)
	}
	if !q.Has("early") {
		if q.Has("slow") {
			time.Sleep(5 * time.Millisecond)
		}
		s := sha256.New()
		n, err := io.Copy(s, req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		h.Set("X-Up", fmt.Sprintf("%d %s", n, hex.EncodeToString(s.Sum(nil)[:8])))
		h.Set("X-Up-Trailer", req.Trailer.Get("X-Sum"))
	}
	body := content(seed+1, number("down"))
	if q.Has("trailers") {
		h.Set("Trailer", "X-Sum")
	}
	if !q.Has("chunked") && !q.Has("trailers") && q.Get("status") != "304" { // whose length the client takes for that of content
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(number("status"))
	if number("status") == 204 || number("status") == 304 || req.Method == "HEAD" {
		if number("abort") >= 0 {
			panic(http.ErrAbortHandler)
		}
		return
	}
	if q.Has("chunked") {
		w.(http.Flusher).Flush()
	}
	if n := number("abort"); n >= 0 {
		w.Write(body[:n])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
	if q.Has("trailers") {
		h.Set("X-Sum", sum(body))
	}
}

// restarting is a backend that can be stopped and started again at its address.
type restarting struct {
	t      *testing.T
	addr   string
	tls    *ctls.Config
	h2     bool
	server *http.Server
	epoch  atomic.Int64 // odd while it restarts
	ended  atomic.Int64 // when it last has, in ns since 1970
}

func (b *restarting) start() {
	l, err := net.Listen("tcp", b.addr)
	for range 100 {
		if err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
		l, err = net.Listen("tcp", b.addr)
	}
	must(b.t, err)
	b.addr = l.Addr().String()
	b.server = &http.Server{Handler: http.HandlerFunc(planned), Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	b.server.Protocols.SetHTTP1(!b.h2)
	if b.tls != nil {
		b.server.Protocols.SetHTTP2(b.h2)
		b.server.TLSConfig = b.tls.Clone()
		go b.server.ServeTLS(l, "", "")
		return
	}
	b.server.Protocols.SetUnencryptedHTTP2(b.h2)
	go b.server.Serve(l)
}

func (b *restarting) restart(graceful bool) {
	b.epoch.Add(1)
	if graceful {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		b.server.Shutdown(ctx)
		cancel()
	}
	b.server.Close()
	b.start()
	time.Sleep(50 * time.Millisecond) // what waits for the old server ends
	b.ended.Store(time.Now().UnixNano())
	b.epoch.Add(1)
}
