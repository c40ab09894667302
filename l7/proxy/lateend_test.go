package proxy

import (
	"bytes"
	"context"
	ctls "crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/quic"
	"github.com/millrace/millrace/semantics"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// endless answers requests with a header that ends the response by its meaning (RFC 9110 6.4.1), and does not end the stream.
type endless struct {
	status int
	data   bool        // content follows, although there is none
	resets chan string // streams that the gateway has reset
}

// http1 is the form of HTTP/1.1, which has no streams: content follows, by its length or in chunks.
func (e *endless) http1(framing string) func(c net.Conn) {
	return func(c net.Conn) {
		for buf := make([]byte, 4096); ; {
			if _, err := c.Read(buf); err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 %d Some\r\n%s", e.status, framing)
		}
	}
}

func (e *endless) http2(c net.Conn) {
	_, _ = io.ReadFull(c, make([]byte, len(h2.ClientPreface)))
	f := h2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		fr, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch fr := fr.(type) {
		case *h2.HeadersFrame:
			var b bytes.Buffer
			enc := hpack.NewEncoder(&b)
			_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(e.status)})
			if e.status != 204 {
				_ = enc.WriteField(hpack.HeaderField{Name: "content-length", Value: "5"})
			}
			_ = f.WriteHeaders(h2.HeadersFrameParam{StreamID: fr.StreamID, BlockFragment: b.Bytes(), EndHeaders: true})
			if e.data {
				_ = f.WriteData(fr.StreamID, false, []byte("hello"))
			}
		case *h2.RSTStreamFrame:
			e.resets <- fr.ErrCode.String()
		}
	}
}

func (e *endless) http3(t *testing.T) func(r *rig) string {
	server := quicSocket(t)
	cert, roots := testcert.SelfSigned("backend.test")
	l, err := server.Listen(&ctls.Config{Certificates: []ctls.Certificate{cert}, NextProtos: []string{http3.NextProto}}, nil)
	must(t, err)
	go func() {
		for {
			q, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go e.conn3(q)
		}
	}()
	return func(r *rig) string { r.over3(roots); return server.LocalAddr().String() }
}

func (e *endless) conn3(q *quic.Conn) {
	m := http3.NewMachine(http3.RoleServer, http3.MachineOptions{})
	for {
		s, err := q.AcceptStream(context.Background())
		if err != nil {
			return
		}
		s.AfterEnd(func(err error) { e.resets <- err.Error() })
		msg := semantics.Message{Status: e.status, ContentLength: 5}
		b := m.AppendResponse(nil, uint64(s.ID()), &msg)
		if e.data {
			b = append(http3.AppendDataHeader(b, 5), "hello"...)
		}
		_, _ = s.Write(b)
	}
}

// bodilessResponses are the responses without content, and the method of their requests.
var bodilessResponses = []struct {
	method string
	status int
}{{"GET", 304}, {"GET", 204}, {"HEAD", 200}}

// ask has a client of each version get the response as a whole, twice, and returns after done has been called for each request.
func (e *endless) ask(t *testing.T, r *rig, method string, done func()) {
	for version, c := range map[string]*http.Client{"1.1": r.client(false), "2": r.client(true), "3": r.client3()} {
		for range 2 {
			req, err := http.NewRequest(method, "https://"+r.secure+"/", nil)
			must(t, err)
			resp, err := c.Do(req)
			if err != nil {
				t.Fatalf("a client of HTTP/%s: %v", version, err)
			}
			body, err := io.ReadAll(resp.Body)
			if version == "2" && e.status == 304 && errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil // net/http reads the Content-Length of 304 over HTTP/2 as that of content; a stream that is reset has another error
			}
			if err != nil || len(body) > 0 || resp.StatusCode != e.status {
				t.Errorf("a client of HTTP/%s: %d %q, %v", version, resp.StatusCode, body, err)
			}
			_ = resp.Body.Close()
			done()
		}
	}
}

// A response that ends with its header is complete for clients of every version although the backend does not end its stream, or
// sends content. The stream is reset, and the response is no failure of the backend.
func TestBodilessResponsesWithoutAnEnd(t *testing.T) {
	for _, c := range bodilessResponses {
		for _, data := range []bool{false, true} {
			if data && c.status == 204 {
				continue // without Content-Length content is a wrong message
			}
			for _, version := range []PoolProtocol{HTTP2, HTTP3} {
				t.Run(fmt.Sprintf("%s %d, content %v, backend %d", c.method, c.status, data, version), func(t *testing.T) {
					e := &endless{status: c.status, data: data, resets: make(chan string, 100)}
					at, over3 := "", func(*rig) string { return "" }
					if version == HTTP2 {
						at = script(t, e.http2)
					} else {
						over3 = e.http3(t)
						at = over3(&rig{pool: &Pool{}})
					}
					var failures []string
					r := http3Rig(t, at, func(r *rig) { r.pool.Protocol = version; over3(r) })
					r.do(func() { r.worker.OnRecord(func(rec *Record) { failures = append(failures, rec.Error) }) })
					e.ask(t, r, c.method, func() { <-e.resets })
					r.settled()
					r.do(func() {
						for _, f := range failures {
							if f != "" {
								t.Errorf("recorded as %q", f)
							}
						}
						if len(failures) != 6 {
							t.Errorf("%d requests, want 6", len(failures))
						}
					})
				})
			}
		}
	}
}

// A backend of HTTP/1.1 that sends content after such a header has its connection closed: what follows would be read as the next
// response.
func TestBodilessResponsesWithContentOverHTTP1(t *testing.T) {
	for _, framing := range []string{"Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		for _, c := range bodilessResponses {
			t.Run(c.method+" "+framing[:4], func(t *testing.T) {
				e := &endless{status: c.status}
				r := http3Rig(t, script(t, e.http1(framing)), nil)
				e.ask(t, r, c.method, func() {})
				r.settled()
			})
		}
	}
}
