package proxy

import (
	"bufio"
	ctls "crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What a client sends ahead of the response 101 reaches the backend with it, and not with what the client sends next.
func TestTunnelsCarryWhatCameAhead(t *testing.T) {
	const handshake = "GET / HTTP/1.1\r\nHost: gateway.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	long := strings.Repeat("x", 100_000) // more than the gateway reads at a time, so that ciphertext waits too
	for _, ahead := range []string{"ahead", long} {
		for _, secure := range []bool{false, true} {
			for _, ends := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d bytes, TLS %v, ends %v", len(ahead), secure, ends), func(t *testing.T) {
					arrived := make(chan struct{})
					r := newRig(t, script(t, func(c net.Conn) {
						in := bufio.NewReader(c)
						http.ReadRequest(in)
						<-arrived
						io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"+
							"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
						got := make([]byte, len(ahead))
						if _, err := io.ReadFull(in, got); err == nil && ends {
							_, err = in.ReadByte()
							fmt.Fprint(c, err, " ")
						}
						fmt.Fprint(c, "got ", string(got) == ahead)
					}), nil)
					c := r.dialPlainOrTLS(secure)
					defer c.Close()
					io.WriteString(c, handshake+ahead)
					if ends {
						c.(interface{ CloseWrite() error }).CloseWrite()
					}
					time.Sleep(20 * time.Millisecond) // nearly always enough for all of it to be ahead
					close(arrived)
					want := "\r\n\r\ngot true"
					if ends {
						want = "\r\n\r\nEOF got true"
					}
					all, err := io.ReadAll(c)
					if !strings.HasSuffix(string(all), want) {
						t.Errorf("%q, %v", all, err)
					}
					c.Close()
					r.settled()
				})
			}
		}
	}
}

// dialPlainOrTLS opens a connection that speaks HTTP/1.1.
func (r *rig) dialPlainOrTLS(secure bool) (c net.Conn) {
	r.t.Helper()
	var err error
	if secure {
		c, err = ctls.Dial("tcp", r.secure, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"http/1.1"}})
	} else {
		c, err = net.Dial("tcp", r.addr)
	}
	must(r.t, err)
	must(r.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// A response that a backend has sent before it reset the connection counts, although the gateway finds out about the reset by content
// that it cannot send.
func TestAnswersBeforeResetsOfUploads(t *testing.T) {
	for _, secure := range []bool{false, true} {
		answer, closed := make(chan struct{}), make(chan struct{})
		r := newRig(t, script(t, func(c net.Conn) {
			http.ReadRequest(bufio.NewReaderSize(c, 16)) // which leaves content in the socket, so that closing resets
			<-answer
			io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large")
			c.Close()
			close(closed)
		}), nil)
		c := r.dialPlainOrTLS(secure)
		defer c.Close()
		part := strings.Repeat("x", 1000)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: 1000000\r\n\r\n"+part)
		time.Sleep(20 * time.Millisecond)
		// The loop has the second part in one iteration with the reset, which comes after the events and before what is sent.
		hold := make(chan struct{})
		r.loop.Do(func() {
			r.loop.Do(func() { close(answer); <-closed })
			<-hold
		})
		io.WriteString(c, part)
		close(hold)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 413 || string(body) != "too large" || err != nil {
			t.Errorf("TLS %v: status %d, %q, %v", secure, resp.StatusCode, body, err)
		}
		r.settled()
	}
}
