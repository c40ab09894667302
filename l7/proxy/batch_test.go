package proxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestAResponseFreesItsConnectionForTheBatch: a request comes, and then the response to another one. The loop sees both in one
// batch, and the connection of the response carries the request.
func TestAResponseFreesItsConnectionForTheBatch(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	r := newRig(t, ln.Addr().String(), nil)
	clients := []net.Conn{dialed(t, r.addr), dialed(t, r.addr)}
	ask := func(c net.Conn) error {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
		return err
	}
	must(t, ask(clients[0]))
	back, err := ln.Accept()
	must(t, err)
	defer back.Close()
	in := bufio.NewReader(back)
	must(t, back.SetDeadline(time.Now().Add(20*time.Second)))
	answer := func() error {
		_, err := io.WriteString(back, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		return err
	}
	request := func() {
		req, err := http.ReadRequest(in)
		must(t, err)
		must(t, req.Body.Close())
	}
	request()
	for r.worker.Stats().Connections < 2 {
		time.Sleep(time.Millisecond)
	}
	r.do(func() { err = errors.Join(ask(clients[1]), answer()) }) // the loop stands still meanwhile
	must(t, err)
	request()
	must(t, answer())
	for i, c := range clients {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("client %d: %v, %v", i, resp, err)
		}
		must(t, resp.Body.Close())
	}
	if s := r.worker.Stats(); s.BackOpened != 1 || s.Reused != 1 {
		t.Errorf("%d connections, %d requests on one that had carried another, want 1 and 1", s.BackOpened, s.Reused)
	}
}
