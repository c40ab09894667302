package proxy

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// A connection is used again after a response that has no content by its method, whatever the script sends, and not after one that came
// before the end of its request: the rest of that would be read as the next.
func TestConnectionsToScriptsAreUsedAgain(t *testing.T) {
	addr := application(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "noise") })
	r := newRig(t, addr, scriptRig(t, func(f *FastCGI) { f.Keep = true }, "index.php"))
	for range 3 {
		resp, err := r.client(true).Head("https://" + r.secure + "/")
		must(t, err)
		resp.Body.Close()
		r.settled()
	}
	r.do(func() {
		if s := r.worker.Stats(); s.Reused != 2 {
			t.Errorf("%d requests on a connection that had carried one", s.Reused)
		}
	})
	l := over.listen(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // it answers each request before its content
				defer c.Close()
				for header := make([]byte, 8); ; {
					if _, err := io.ReadFull(c, header); err != nil {
						return
					}
					n := int(header[4])<<8 | int(header[5]) + int(header[6])
					if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
						return
					}
					if header[1] == 4 && n == 0 {
						_, _ = io.WriteString(c, scriptRecord(6, "A: b\r\n\r\nearly")+scriptEnd(0))
					}
				}
			}()
		}
	}()
	r = newRig(t, l.Addr().String(), scriptRig(t, func(f *FastCGI) { f.Keep = true }, "index.php"))
	for range 3 {
		in, out := io.Pipe()
		req := newRequest(t, "POST", "https://"+r.secure+"/", in)
		req.ContentLength = 1000
		resp, err := r.client(true).Do(req)
		must(t, err)
		resp.Body.Close()
		out.Close()
		r.settled()
	}
	r.do(func() {
		if s := r.worker.Stats(); s.Reused != 0 {
			t.Errorf("%d requests on a connection whose last one was not complete", s.Reused)
		}
	})
}

// The port of a peer is not that of the client behind it.
func TestScriptsGetTheClientBehindAProxy(t *testing.T) {
	addr := application(t, variablesOf)
	change := scriptRig(t, nil, "index.php")
	r := newRig(t, addr, func(r *rig) {
		change(r)
		r.tree.Listeners[0].Forwarding.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	req := newRequest(t, "GET", "http://"+r.addr+"/", nil)
	req.Header.Set("X-Forwarded-For", "192.0.2.9")
	if s := ask(t, r.client(false), req); s.Remote != "192.0.2.9:0" {
		t.Errorf("the client is %s", s.Remote)
	}
	if s := ask(t, r.client(false), newRequest(t, "GET", "http://"+r.addr+"/", nil)); !strings.HasPrefix(s.Remote, "127.0.0.1:") || strings.HasSuffix(s.Remote, ":0") {
		t.Errorf("the client is %s", s.Remote)
	}
	r.settled()
}
