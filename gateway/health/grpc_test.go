package health

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// grpcAnswer is what a server of gRPC answers to a call.
type grpcAnswer struct {
	status  int
	content string
	body    string
	trailer map[string]string
	header  map[string]string
}

// message is a HealthCheckResponse with its prefix.
func message(b string) string { return "\x00\x00\x00\x00" + string(rune(len(b))) + b }

// grpcServer answers all calls in one way, and keeps the last one.
type grpcServer struct {
	answer grpcAnswer
	last   atomic.Pointer[string]
}

func (s *grpcServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := strings.Join([]string{r.Proto, r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Te"), string(body)}, " ")
	s.last.Store(&got)
	if a := &s.answer; a.status != 0 {
		w.Header().Set("Content-Type", a.content)
		for k, v := range a.header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
		for k, v := range a.trailer {
			w.Header().Set(http.TrailerPrefix+k, v)
		}
	}
}

// startGRPC serves HTTP/2 alone.
func startGRPC(t *testing.T, s *grpcServer, tls bool) *httptest.Server {
	srv := httptest.NewUnstartedServer(s)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP2(tls)
	srv.Config.Protocols.SetUnencryptedHTTP2(!tls)
	if srv.EnableHTTP2 = tls; tls {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

func TestAGRPCAnswerIsJudged(t *testing.T) {
	ok := map[string]string{"Grpc-Status": "0"}
	for _, c := range []struct {
		name   string
		answer grpcAnswer
		want   string
	}{
		{"SERVING", grpcAnswer{200, "application/grpc", message("\x08\x01"), ok, nil}, ""},
		{"with a codec", grpcAnswer{200, "application/grpc+proto", message("\x08\x01"), ok, nil}, ""},
		{"NOT_SERVING", grpcAnswer{200, "application/grpc", message("\x08\x02"), ok, nil}, "wrong answer: NOT_SERVING"},
		{"UNKNOWN is the default", grpcAnswer{200, "application/grpc", message(""), ok, nil}, "wrong answer: UNKNOWN"},
		{"SERVICE_UNKNOWN", grpcAnswer{200, "application/grpc", message("\x08\x03"), ok, nil}, "SERVICE_UNKNOWN"},
		{"the last counts, other fields do not", grpcAnswer{200, "application/grpc", message("\x08\x02\x12\x02\x08\x02\x19abcdefgh\x25abcd\x08\x01"), ok, nil}, ""},
		{"NOT_FOUND in trailers alone", grpcAnswer{200, "application/grpc", "", nil, map[string]string{"Grpc-Status": "5", "Grpc-Message": "unknown service"}}, `grpc-status 5 "unknown service"`},
		{"a failure after SERVING", grpcAnswer{200, "application/grpc", message("\x08\x01"), map[string]string{"Grpc-Status": "14"}, nil}, "grpc-status 14"},
		{"no status", grpcAnswer{200, "application/grpc", message("\x08\x01"), nil, nil}, "grpc-status is missing"},
		{"compressed", grpcAnswer{200, "application/grpc", "\x01" + message("\x08\x01")[1:], ok, nil}, "7 bytes are no HealthCheckResponse"},
		{"cut", grpcAnswer{200, "application/grpc", message("\x08"), ok, nil}, "are no HealthCheckResponse"},
		{"cut within another field", grpcAnswer{200, "application/grpc", message("\x08\x01\x12\x05a"), ok, nil}, "are no HealthCheckResponse"},
		{"two messages", grpcAnswer{200, "application/grpc", message("\x08\x01") + message("\x08\x01"), ok, nil}, "are no HealthCheckResponse"},
		{"no message", grpcAnswer{200, "application/grpc", "", ok, nil}, "0 bytes are no HealthCheckResponse"},
		{"a page", grpcAnswer{200, "text/html", "<html>", ok, nil}, `status 200 with content "text/html" is no gRPC`},
		{"404", grpcAnswer{404, "application/grpc", "", ok, nil}, "status 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := startGRPC(t, &grpcServer{answer: c.answer}, false)
			check := New()
			check.Type, check.Timeout = TypeGRPC, 10*time.Second
			expect(t, once(t, check, srv.Listener.Addr().String()), c.want)
		})
	}
}

func TestAGRPCCallIsAsConfigured(t *testing.T) {
	for _, tls := range []bool{false, true} {
		s := &grpcServer{answer: grpcAnswer{200, "application/grpc", message("\x08\x01"), map[string]string{"Grpc-Status": "0"}, nil}}
		srv := startGRPC(t, s, tls)
		for service, want := range map[string]string{"": "\x00\x00\x00\x00\x00", "a.Service": "\x00\x00\x00\x00\x0b\x0a\x09a.Service"} {
			check := New()
			if check.Type, check.Timeout = TypeGRPC, 10*time.Second; tls {
				check.Type, check.GRPC.Insecure = TypeGRPCS, true
			}
			check.GRPC.Service = service
			expect(t, once(t, check, srv.Listener.Addr().String()), "")
			want = "HTTP/2.0 POST /grpc.health.v1.Health/Check application/grpc trailers " + want
			if got := *s.last.Load(); got != want {
				t.Errorf("the server got %q, want %q", got, want)
			}
		}
	}
}

// A server of HTTP/1.1, or of TLS with another certificate, is unhealthy.
func TestServersThatAreNoGRPCAreUnhealthy(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	old := httptest.NewTLSServer(http.NotFoundHandler())
	defer old.Close()
	for _, c := range []struct {
		kind     Type
		insecure bool
		at, want string
	}{
		{TypeGRPC, false, plain.Listener.Addr().String(), "http: "},
		{TypeGRPCS, true, old.Listener.Addr().String(), "handshake: "},
		{TypeGRPCS, false, startGRPC(t, &grpcServer{}, true).Listener.Addr().String(), "handshake: "},
	} {
		check := New()
		check.Type, check.Timeout, check.GRPC.Insecure = c.kind, 10*time.Second, c.insecure
		expect(t, once(t, check, c.at), c.want)
	}
}
