package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client with HTTP/1.0 gets no interim responses (RFC 9110 15.2), and the backend and the log learn its version.
func TestHTTP10IsCalledSo(t *testing.T) {
	got := make(chan string, 1)
	var logged string
	r := newRig(t, script(t, func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		got <- req.Header.Get("Via")
		_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}), func(r *rig) { r.each(func(l *Listener) { l.Via = "millrace" }) })
	r.do(func() { r.worker.OnRecord(func(rec *Record) { logged = rec.Protocol }) })
	conn, err := net.Dial("tcp", r.addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(conn, "GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	must(t, err)
	all, err := io.ReadAll(conn)
	if !strings.HasPrefix(string(all), "HTTP/1.1 200") || strings.Contains(string(all), "103") || err != nil {
		t.Errorf("%q %v", all, err)
	}
	if via := <-got; via != "1.0 millrace" {
		t.Errorf("the backend got Via %q", via)
	}
	r.settled()
	if r.do(func() {}); logged != "HTTP/1.0" {
		t.Errorf("logged as %q", logged)
	}
}
