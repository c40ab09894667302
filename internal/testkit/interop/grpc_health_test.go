package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/millrace/millrace/gateway/health"
	"github.com/millrace/millrace/internal/testkit/testcert"
)

// healthServer is a server of gRPC, with gRPC's own health service unless it is to have none.
type healthServer struct {
	*grpchealth.Server
	at    netip.AddrPort
	roots *x509.CertPool
	pem   string // the file of its certificate
}

// newHealthServer starts one. config changes its TLS; nil serves without TLS.
func newHealthServer(t *testing.T, has bool, config func(c *tls.Config), options ...grpc.ServerOption) *healthServer {
	t.Helper()
	s := &healthServer{Server: grpchealth.NewServer()}
	if config != nil {
		cert, roots := testcert.SelfSigned("backend.test")
		s.roots, s.pem = roots, filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(s.pem, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), 0o600); err != nil {
			t.Fatal(err)
		}
		c := &tls.Config{Certificates: []tls.Certificate{cert}}
		config(c)
		options = append(options, grpc.Creds(credentials.NewTLS(c)))
	}
	srv := grpc.NewServer(options...)
	srv.RegisterService(&echoService, nil)
	if has {
		healthpb.RegisterHealthServer(srv, s.Server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.at = netip.MustParseAddrPort(l.Addr().String())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// probed watches a server by a check that edit changes, and returns what waits for its state: "" is healthy, anything else occurs in
// the cause.
func (s *healthServer) probed(t *testing.T, edit func(c *health.Check)) (becomes func(when, cause string)) {
	t.Helper()
	check := health.New()
	check.Type, check.Interval, check.Timeout, check.Rise, check.Fall = health.TypeGRPC, 5*time.Second, 5*time.Second, 1, 1
	edit(check)
	if wrong := check.Validate(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	check.Interval = 20 * time.Millisecond // the timeout stays, for machines that are busy
	checker := health.NewChecker(health.Options{})
	t.Cleanup(checker.Close)
	checker.Set([]health.Watch{{ID: 1, Target: health.Target{At: s.at, Backend: "b", Service: "s"}, Check: check, Down: true}})
	return func(when, cause string) {
		t.Helper()
		var state health.State
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			state, _ = checker.State(1)
			if got := fmt.Sprint(state.Cause); !state.Asked.IsZero() && state.Healthy == (cause == "") && (cause == "" || strings.Contains(got, cause)) {
				return
			}
		}
		t.Errorf("%s: %+v, want cause %q", when, state, cause)
	}
}

// Probes of type grpc and grpcs follow what gRPC's own health service answers, by prior knowledge and by TLS.
func TestGRPCHealthProbes(t *testing.T) {
	plainly := func(c *health.Check) {}
	for name, transport := range map[string]struct {
		config func(c *tls.Config)
		check  func(s *healthServer, c *health.Check)
	}{
		"h2c": {nil, func(*healthServer, *health.Check) {}},
		"TLS": {func(*tls.Config) {}, func(s *healthServer, c *health.Check) {
			c.Type, c.GRPC.ServerName, c.GRPC.CAFile = health.TypeGRPCS, "backend.test", s.pem
		}},
		"TLS 1.2": {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, func(s *healthServer, c *health.Check) {
			c.Type, c.GRPC.Host, c.GRPC.CAFile = health.TypeGRPCS, "backend.test:443", s.pem
		}},
		"the pool's TLS": {func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, func(s *healthServer, c *health.Check) {
			cert, _ := testcert.SelfSigned("gateway.test")
			c.Type, c.Conn.TLS = health.TypeGRPCS, &tls.Config{RootCAs: s.roots, ServerName: "backend.test", Certificates: []tls.Certificate{cert}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHealthServer(t, true, transport.config)
			over := func(edit func(c *health.Check)) func(when, cause string) {
				return s.probed(t, func(c *health.Check) { transport.check(s, c); edit(c) })
			}
			whole, one := over(plainly), over(func(c *health.Check) { c.GRPC.Service = "Echo" })
			whole("at first", "")
			one("of a service that has no status", "grpc-status 5 ")
			s.SetServingStatus("Echo", healthpb.HealthCheckResponse_SERVING)
			one("SERVING", "")
			s.SetServingStatus("Echo", healthpb.HealthCheckResponse_NOT_SERVING)
			one("NOT_SERVING", "NOT_SERVING")
			whole("of the server, while a service does not serve", "")
			s.SetServingStatus("Echo", healthpb.HealthCheckResponse_UNKNOWN)
			one("UNKNOWN", "UNKNOWN")
			s.SetServingStatus("Echo", healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
			one("SERVICE_UNKNOWN", "SERVICE_UNKNOWN")
			s.Shutdown() // all services, before the server ends
			whole("after Shutdown", "NOT_SERVING")
			s.Resume()
			whole("after Resume", "")
			one("after Resume", "")
		})
	}
}

// A server without health service, one that refuses the call, and one that is asked in the wrong way are unhealthy.
func TestGRPCHealthProbesOfServersThatCannotAnswer(t *testing.T) {
	secure := func(*tls.Config) {}
	refuse := grpc.UnaryInterceptor(func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, status.Error(codes.Unauthenticated, "no token")
	})
	for name, c := range map[string]struct {
		has     bool
		config  func(*tls.Config)
		options []grpc.ServerOption
		check   func(c *health.Check)
		cause   string
	}{
		"no health service":     {false, nil, nil, func(*health.Check) {}, "grpc-status 12 "}, // UNIMPLEMENTED
		"no token":              {true, nil, []grpc.ServerOption{refuse}, func(*health.Check) {}, `grpc-status 16 "no token"`},
		"TLS without TLS":       {true, nil, nil, func(c *health.Check) { c.Type, c.GRPC.Insecure = health.TypeGRPCS, true }, "handshake: "},
		"h2c with TLS":          {true, secure, nil, func(*health.Check) {}, "http: "},
		"another authority":     {true, secure, nil, func(c *health.Check) { c.Type, c.GRPC.ServerName = health.TypeGRPCS, "backend.test" }, "handshake: "},
		"no client certificate": {true, func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, nil, func(c *health.Check) { c.Type, c.GRPC.Insecure = health.TypeGRPCS, true }, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newHealthServer(t, c.has, c.config, c.options...)
			s.probed(t, c.check)("always", c.cause)
		})
	}
}
