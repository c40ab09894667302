package proxy

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is one end of a connection with HTTP/2 of a test that writes and reads frames.
type frames struct {
	*h2.Framer
	t    *testing.T
	conn net.Conn
}

func newFrames(t *testing.T, c net.Conn) *frames {
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return &frames{Framer: h2.NewFramer(c, c), t: t, conn: c}
}

// dialFrames returns a client of the plain listener, which has sent its preface and settings.
func (r *rig) dialFrames(settings ...h2.Setting) *frames {
	r.t.Helper()
	c, err := net.Dial("tcp", r.addr)
	must(r.t, err)
	f := newFrames(r.t, c)
	_, err = io.WriteString(c, h2.ClientPreface)
	must(r.t, err)
	must(r.t, f.WriteSettings(settings...))
	return f
}

// frameBackend is a backend that calls serve with each connection, after its settings and the client's have been exchanged.
func frameBackend(t *testing.T, serve func(f *frames), settings ...h2.Setting) string {
	return script(t, func(c net.Conn) {
		f := newFrames(t, c)
		preface := make([]byte, len(h2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil || string(preface) != h2.ClientPreface {
			return
		}
		f.WriteSettings(settings...)
		f.WriteSettingsAck()
		serve(f)
	})
}

// block returns a field block of names and values.
func block(pairs ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return b.Bytes()
}

// request sends the header of a request.
func (f *frames) request(id uint32, method string, end bool, fields ...string) {
	f.t.Helper()
	must(f.t, f.WriteHeaders(h2.HeadersFrameParam{
		StreamID: id, EndHeaders: true, EndStream: end,
		BlockFragment: block(append([]string{":method", method, ":scheme", "http", ":authority", "a", ":path", "/"}, fields...)...),
	}))
}

// until returns the next frame of a type on a stream. Others are passed over.
func (f *frames) until(kind h2.FrameType, stream uint32) h2.Frame {
	f.t.Helper()
	got := f.next(kind, stream)
	if got == nil {
		f.t.Fatalf("no %v on stream %d", kind, stream)
	}
	return got
}

// next is until for other goroutines than the test's. It returns nil when the connection has ended.
func (f *frames) next(kind h2.FrameType, stream uint32) h2.Frame {
	for {
		got, err := f.ReadFrame()
		if err != nil {
			return nil
		}
		if h := got.Header(); h.Type == kind && (stream == anyStream || h.StreamID == stream) {
			return got
		}
	}
}

const anyStream = 1 << 31 // no stream has this number

// status returns the status of a response.
func (f *frames) status(h *h2.HeadersFrame) (status string) {
	f.t.Helper()
	fields, err := hpack.NewDecoder(4096, nil).DecodeFull(h.HeaderBlockFragment()) // the gateway's encoder has no state
	must(f.t, err)
	return fields[0].Value
}
