package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A response that has arrived as a whole goes on to a client that reads slowly, even if the backend fails (RFC 9113 8.1).

// heldEnd has a backend of HTTP/2 send a response, and after it what after does, while most of it is held for the client.
func heldEnd(t *testing.T, after func(c net.Conn, f *http2.Framer)) {
	backend := script(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		f.WriteSettings()
		for {
			fr, err := f.ReadFrame()
			if err != nil {
				return
			}
			if fr.Header().Type == http2.FrameHeaders {
				break
			}
		}
		var b bytes.Buffer
		hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true})
		for i := range 10 {
			f.WriteData(1, i == 9, make([]byte, 10000))
		}
		time.Sleep(200 * time.Millisecond)
		after(c, f)
	})
	r := newRig(t, backend, func(r *rig) { r.pool.Protocol = HTTP2 })
	c, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	f.WriteSettings()
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a"}} {
		e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: false})
	f.WriteData(1, false, []byte("x"))
	n := 0
	go func() {
		time.Sleep(time.Second)
		f.WriteWindowUpdate(0, 1<<20)
		f.WriteWindowUpdate(1, 1<<20)
	}()
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("%d of 100000 bytes: %v", n, err)
		}
		switch fr := fr.(type) {
		case *http2.DataFrame:
			n += len(fr.Data())
			if fr.StreamEnded() {
				if n != 100000 {
					t.Error(n)
				}
				return
			}
		case *http2.RSTStreamFrame:
			t.Fatalf("%d of 100000 bytes: reset %v", n, fr.ErrCode)
		}
	}
}

func TestHeldResponsesOutliveTheBackend(t *testing.T) { heldEnd(t, func(net.Conn, *http2.Framer) {}) }

func TestHeldResponsesOutliveAReset(t *testing.T) {
	heldEnd(t, func(c net.Conn, f *http2.Framer) { f.WriteRSTStream(1, http2.ErrCodeNo); time.Sleep(4 * time.Second) })
}
