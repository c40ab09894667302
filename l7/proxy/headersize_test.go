package proxy

import (
	ctls "crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/side"
)

// headerHandler answers with as many further field lines, or bytes of one value, as the query asks for.
func headerHandler(w http.ResponseWriter, req *http.Request) {
	var lines, bytes int
	fmt.Sscanf(req.URL.RawQuery, "%d,%d", &lines, &bytes)
	w.Header()["Date"] = nil
	for range lines {
		w.Header().Add("X-Line", "1")
	}
	if bytes > 0 {
		w.Header().Set("X-Large", strings.Repeat("v", bytes))
	}
	io.WriteString(w, "ok")
}

// headerBackend serves headerHandler by the protocol of a pool, and sets that of the rig's.
func headerBackend(t *testing.T, p PoolProtocol) (addr string, speak func(r *rig)) {
	if p != HTTP3 {
		s := unstarted(t, http.HandlerFunc(headerHandler))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Config.Protocols.SetHTTP1(true)
		s.Start()
		return strings.TrimPrefix(s.URL, "http://"), func(r *rig) { r.pool.Protocol = p }
	}
	cert, roots := testcert.SelfSigned("backend.test")
	at := quicSocket(t)
	s := &http3.Server{TLS: &ctls.Config{Certificates: []ctls.Certificate{cert}}, Handler: http.HandlerFunc(headerHandler)}
	go func() { _ = s.ServeTransport(at) }()
	t.Cleanup(func() { _ = s.Close() })
	return at.LocalAddr().String(), func(r *rig) { r.over3(roots) }
}

// The header of a response may have as many lines and bytes as the pool says, in every version. A client whose response has more
// gets 502, and the next request of its connection is served.
func TestHeadersOfResponsesAreBounded(t *testing.T) {
	for name, p := range map[string]PoolProtocol{"HTTP/1.1": HTTP1, "HTTP/2": HTTP2, "HTTP/3": HTTP3} {
		t.Run(name, func(t *testing.T) {
			backend, speak := headerBackend(t, p)
			r := newRig(t, backend, func(r *rig) {
				speak(r)
				r.pool.Header = side.HeaderLimits{Bytes: 100_000, Fields: 250}
			})
			c := r.client(false)
			for _, q := range []struct {
				query string
				want  int
			}{
				{"0,0", 200}, {"240,0", 200}, {"260,0", 502}, {"0,99000", 200}, {"0,101000", 502}, {"1,1", 200},
			} {
				resp, err := c.Get("https://" + r.secure + "/?" + q.query)
				must(t, err)
				resp.Body.Close()
				why := resp.Header.Get("Proxy-Status")
				if resp.StatusCode != q.want || q.want == 502 && why != "millrace; error=http_response_header_section_size" {
					t.Errorf("%s: status %d, %q; want %d", q.query, resp.StatusCode, why, q.want)
				}
			}
			r.settled()
		})
	}
}
