package proxy

import (
	ctls "crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// The response on a connection that closes after it arrives before the end, which close_notify marks over TLS (RFC 8446 6.1).
func TestTheLastResponseArrivesBeforeTheEnd(t *testing.T) {
	r := newRig(t, echoBackend(t, false), nil)
	body := strings.Repeat("Z", 640_000)
	for _, size := range []int{0, 16, len(body)} {
		c, err := ctls.Dial("tcp", r.secure, &ctls.Config{RootCAs: r.roots, ServerName: "gateway.test", NextProtos: []string{"http/1.1"}})
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		request := "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
		if size > 0 {
			request += fmt.Sprintf("%x\r\n%s\r\n", size, body[:size])
		}
		go func() { _, _ = io.WriteString(c, request+"0\r\n\r\n") }()
		got, err := io.ReadAll(c) // io.ErrUnexpectedEOF without close_notify
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 200 ") || strings.Count(string(got), "Z") != size {
			t.Errorf("%d bytes: %v, %d bytes came: %.100q", size, err, len(got), got)
		}
		c.Close()
	}
	r.settled()
}
