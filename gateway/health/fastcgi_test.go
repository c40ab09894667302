package health

import (
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"strings"
	"testing"
)

// A check of a pool with FastCGI asks for the script that its path names, with the variables that php-fpm compares.
func TestAScriptIsProbed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go fcgi.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:errcheck // it ends with the listener
		switch env := fcgi.ProcessEnv(r); {
		case env["SCRIPT_FILENAME"] != "/srv/www/ping" || r.URL.RawQuery != "full" || r.Method != "GET":
			w.WriteHeader(404)
		default:
			io.WriteString(w, strings.Repeat(".", 9000)+"pong")
		}
	}))
	c := New()
	c.Type, c.HTTP.Path, c.HTTP.Body = TypeHTTP, "/ping?full", "pong"
	c.Conn.FastCGI = "/srv/www"
	expect(t, once(t, c, l.Addr().String()), "")
	c.HTTP.Body = "other"
	expect(t, once(t, c, l.Addr().String()), "lacks")
	c.HTTP.Path = "/none"
	expect(t, once(t, c, l.Addr().String()), "status 404")
}

// What is no script's response is a failure, whatever the server sends.
func TestScriptsThatDoNotAnswerAreUnhealthy(t *testing.T) {
	record := func(kind byte, content string) string {
		return string([]byte{1, kind, 0, 1, byte(len(content) >> 8), byte(len(content)), 0, 0}) + content
	}
	end := func(status byte) string { return record(3, string([]byte{0, 0, 0, 0, status, 0, 0, 0})) }
	for sent, want := range map[string]string{
		record(6, "Status: 200\r\n\r\n") + end(0): "", record(6, "Status: 503\r\n\r\n") + end(0): "status 503",
		end(0): "without a response", record(7, "Primary script unknown\n") + end(0): "Primary script unknown", record(6, "Status: 200\r\n\r\n") + end(2): "without a response",
		record(6, "Status: 200\r\n"): "unexpected EOF", "": "unexpected EOF", "HTTP/1.1 200 OK\r\n\r\n": "another version", record(6, "x\r\n\r\n"): "malformed",
		record(6, "Status: 200\r\nA: "+strings.Repeat("b", 60000)) + record(6, strings.Repeat("b", 60000)): "exceeds a limit",
	} {
		address := listen(t, func(c *net.TCPConn) {
			io.WriteString(c, sent)
			c.CloseWrite()
			io.Copy(io.Discard, c)
		})
		c := New()
		c.Type, c.Conn.FastCGI = TypeHTTP, "/srv"
		expect(t, once(t, c, address), want)
	}
}
