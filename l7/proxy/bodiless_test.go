package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A response without content is complete for the client with its header, while the backend may end its stream later. A request
// that the client sends meanwhile begins after that: the end of the first would be taken for that of its response.
func TestTheNextRequestWaitsForTheEndOfABodilessResponse(t *testing.T) {
	began := make(chan struct{}, 1)
	b := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bodiless" {
			w.WriteHeader(http.StatusNotModified)
			w.(http.Flusher).Flush()
			select {
			case <-began: // the end of this response follows
			case <-time.After(200 * time.Millisecond):
			}
			return
		}
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "01234")
		w.(http.Flusher).Flush()
		began <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		io.WriteString(w, "56789")
	}))
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Start()
	t.Cleanup(b.Close)
	r := newRig(t, strings.TrimPrefix(b.URL, "http://"), func(r *rig) { r.pool.Protocol = HTTP2 })

	for name, both := range map[string]bool{"after the response": false, "pipelined": true} {
		t.Run(name, func(t *testing.T) {
			for len(began) > 0 {
				<-began
			}
			conn, err := net.Dial("tcp", r.addr)
			must(t, err)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			in := bufio.NewReader(conn)
			get := func(path string) { io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n") }
			get("/bodiless")
			if both {
				get("/content")
				must(t, conn.(*net.TCPConn).CloseWrite())
			}
			resp, err := http.ReadResponse(in, nil)
			must(t, err)
			if resp.StatusCode != 304 {
				t.Error(resp.StatusCode)
			}
			if !both {
				get("/content")
			}
			resp, err = http.ReadResponse(in, nil)
			must(t, err)
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "0123456789" {
				t.Errorf("%q %v", body, err)
			}
			conn.Close()
			r.settled()
		})
	}
}
