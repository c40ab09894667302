package http3_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/quic"
)

// piece is what the fuzzer has on one stream: a byte that names the stream and its end, a length and the bytes.
func piece(head byte, b string) string { return string([]byte{head, byte(len(b))}) + b }

// fuzzMessage is a request of two frames, and its settings on the control stream.
var (
	fuzzSettings = piece(1, "\x00\x04\x00")
	fuzzMessage  = piece(0x10, "\x01\x10\x00\x00\xd4\xd7\xc1\x50\x09localhost") + piece(0x90, "\x00\x05hello")
)

// play sends the pieces on streams of a connection, cut at random: bit 7 of the first byte ends the stream, the bits
// below say which of 8 streams, bit 0 whether it is unidirectional.
func play(ctx context.Context, c *quic.Conn, data []byte, rng *rand.Rand) {
	bidi, uni := map[byte]*quic.Stream{}, map[byte]*quic.SendStream{}
	for len(data) >= 2 && c.Context().Err() == nil {
		head, n := data[0], min(int(data[1]), len(data)-2)
		b := data[2 : 2+n]
		data = data[2+n:]
		id := head & 0x71
		var w interface {
			io.WriteCloser
			CancelWrite(code uint64)
		}
		if id&1 != 0 {
			if uni[id] == nil {
				if uni[id], _ = c.OpenUniStream(ctx); uni[id] == nil {
					return
				}
			}
			w = uni[id]
		} else {
			if bidi[id] == nil {
				if bidi[id], _ = c.OpenStream(ctx); bidi[id] == nil {
					return
				}
				go func(s *quic.Stream) { _, _ = io.Copy(io.Discard, s) }(bidi[id])
			}
			w = bidi[id]
		}
		for len(b) > 0 {
			k := 1 + rng.IntN(len(b))
			if _, err := w.Write(b[:k]); err != nil {
				break
			}
			b = b[k:]
		}
		switch {
		case head&0x88 == 0x88:
			w.CancelWrite(uint64(http3.RequestCancelled))
		case head&0x80 != 0:
			_ = w.Close()
		}
		if head&4 != 0 {
			_ = c.SendDatagram([]byte{head & 8, 1, 2})
		}
	}
}

// FuzzServer sends whatever on streams of a connection to a server that uses all that it has. The connection ends
// with a code of HTTP/3 or lives, all handlers end, and another connection works on.
func FuzzServer(f *testing.F) {
	url := serve(f, &http3.Server{
		Machine: http3.MachineOptions{WebTransport: 4, MaxIdleFrames: 200},
		Handler: http.HandlerFunc(fuzzHandler), Panicked: func(_ *http.Request, v any) { panic(v) },
	})
	good := client(f)
	from := quicTransport(f)
	f.Add([]byte(fuzzSettings+fuzzMessage), uint64(1))
	f.Add([]byte(piece(1, "\x00\x04\x06\x08\x01\x33\x01\x6a\x01")+piece(0x10, "\x01\x02\x00\x00")), uint64(2))
	f.Add([]byte(fuzzSettings+piece(0x20, "\x40\x41\x00abc")+piece(0x31, "\x40\x54\x00abc")), uint64(3))
	f.Add([]byte(piece(0x11, "\x02\x3f\xe1\x1f\xc1\x01x")+fuzzSettings+piece(0x21, "\x03\x80")), uint64(4))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		tc := clientTLS()
		tc.ServerName, tc.NextProtos = "test.example", []string{http3.NextProto}
		c, err := from.Dial(ctx, serverAddr(t, url), tc, &quic.Config{Datagrams: true})
		if err != nil {
			t.Fatal(err)
		}
		play(ctx, c, data, rand.New(rand.NewPCG(seed, 5)))
		resp, err := good.Get(url + "/")
		if err != nil {
			t.Fatalf("another connection: %v", err)
		}
		_ = resp.Body.Close()
		checkCause(t, c, true)
		_ = c.CloseWithError(uint64(http3.NoError), "")
	})
}

func fuzzHandler(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(":protocol") == "webtransport" {
		if s, err := http3.AcceptSession(w, r, nil); err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), 20*time.Millisecond)
			defer cancel()
			_, _ = s.AcceptStream(ctx)
			_, _ = s.ReceiveDatagram(ctx)
			_ = s.CloseWithError(1, "end")
		}
		return
	}
	_, _ = io.Copy(w, r.Body)
}

// checkCause checks how a connection has ended, if it has: by the peer, with a code of HTTP/3.
func checkCause(t *testing.T, c *quic.Conn, remote bool) {
	t.Helper()
	err := context.Cause(c.Context())
	var ae *quic.ApplicationError
	if err != nil && (!errors.As(err, &ae) || ae.Remote != remote || ae.Code < 0x100 || ae.Code > 0x202 && ae.Code < 0x33) {
		t.Errorf("the connection ended with %v", err)
	}
}

// FuzzClient answers a request with whatever on streams of a server. The request ends with a response or an error, at
// the latest with the connection.
func FuzzClient(f *testing.F) {
	tr, from := quicTransport(f), quicTransport(f)
	tc := serverTLS()
	tc.NextProtos = []string{http3.NextProto}
	l, err := tr.Listen(tc, &quic.Config{Datagrams: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(piece(1, "\x00\x04\x00")+piece(0x80, "\x01\x03\x00\x00\xd9\x00\x05hello")), uint64(1))
	f.Add([]byte(piece(1, "\x00\x04\x06\x08\x01\x33\x01\x6a\x01\x07\x01\x00")), uint64(2))
	f.Add([]byte(piece(0, "\x05\x11\x00\x00\x00\xd1\xd7\xc1\x50\x09localhost")+piece(0x11, "\x01\x00\x01\x03\x00\x00\xd9")), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		rt := transport(t, &http3.Transport{Machine: http3.MachineOptions{MaxPushes: 2, WebTransport: 1}, Push: func(p *http3.Push) { p.Cancel() }})
		rt.Dial = dialOnce(from)
		ended := make(chan error, 1)
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+tr.LocalAddr().String()+"/", nil)
			resp, err := rt.RoundTrip(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			ended <- err
		}()
		c, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.AcceptStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 5))
		answer, others := split(data)
		play(ctx, c, others, rng)
		for len(answer) > 0 {
			n := 1 + rng.IntN(len(answer))
			_, _ = s.Write(answer[:n])
			answer = answer[n:]
		}
		_ = s.Close()
		select {
		case <-ended:
			_ = c.CloseWithError(uint64(http3.NoError), "")
			return
		case <-time.After(50 * time.Millisecond): // it may wait for the dynamic table
		}
		_ = c.CloseWithError(uint64(http3.NoError), "")
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the request does not end with its connection")
		}
	})
}

// dialOnce dials from a transport, but not a second time: requests are not repeated.
func dialOnce(from *quic.Transport) func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error) {
	var dialed atomic.Bool
	return func(ctx context.Context, addr string, tc *tls.Config, qc *quic.Config) (*quic.Conn, error) {
		if dialed.Swap(true) {
			return nil, errors.New("dialed before")
		}
		to, err := net.ResolveUDPAddr("udp4", addr)
		if err != nil {
			return nil, err
		}
		return from.Dial(ctx, to, tc, qc)
	}
}

// split takes the pieces of stream 0, which are the response, from the others.
func split(data []byte) (answer, others []byte) {
	for len(data) >= 2 {
		n := min(int(data[1]), len(data)-2)
		if data[0]&0x71 == 0 {
			answer = append(answer, data[2:2+n]...)
		} else {
			others = append(others, data[:2+n]...)
		}
		data = data[2+n:]
	}
	return answer, others
}

func serverAddr(t testing.TB, url string) *net.UDPAddr {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp4", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
