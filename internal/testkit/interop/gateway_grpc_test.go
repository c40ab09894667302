package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	suite "google.golang.org/grpc/interop"
	grpctest "google.golang.org/grpc/interop/grpc_testing"

	"github.com/millrace/millrace/internal/testkit/testcert"
	"github.com/millrace/millrace/l7/proxy"
)

// grpcGateway is the gateway between clients and a server of gRPC.
type grpcGateway struct {
	*testGateway
	server *grpc.Server
	h2c    bool // clients come by prior knowledge, without TLS
}

// eachGRPCGateway calls test with the gateway in front of a server that register has filled: clients come with TLS and without,
// and the server is reached with TLS and without.
func eachGRPCGateway(t *testing.T, register func(s *grpc.Server), test func(t *testing.T, g *grpcGateway), options ...grpc.ServerOption) {
	for _, backTLS := range []bool{false, true} {
		for _, h2c := range []bool{false, true} {
			name := fmt.Sprintf("%s to %s", map[bool]string{true: "h2c", false: "h2"}[h2c], map[bool]string{true: "h2", false: "h2c"}[backTLS])
			t.Run(name, func(t *testing.T) { test(t, newGRPCGateway(t, h2c, backTLS, register, options...)) })
		}
	}
}

func newGRPCGateway(t *testing.T, h2c, backTLS bool, register func(s *grpc.Server), options ...grpc.ServerOption) *grpcGateway {
	t.Helper()
	cert, roots := testcert.SelfSigned("backend.test")
	if backTLS {
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	}
	g := &grpcGateway{server: grpc.NewServer(options...), h2c: h2c}
	register(g.server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.server.Serve(l) }()
	g.testGateway = newTestGateway(t, l.Addr().String(), func(g *testGateway) {
		g.pool.Protocol = proxy.HTTP2
		if backTLS {
			g.pool.TLS = &tls.Config{RootCAs: roots, ServerName: "backend.test", NextProtos: []string{"h2"}}
		}
	})
	t.Cleanup(func() {
		g.settled()
		g.server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return g
}

// dial returns a connection of a client.
func (g *grpcGateway) dial(options ...grpc.DialOption) *grpc.ClientConn {
	g.t.Helper()
	to, creds := g.secure.Address, credentials.NewTLS(g.client())
	if g.h2c {
		to, creds = g.plain.Address, insecure.NewCredentials()
	}
	c, err := grpc.NewClient("passthrough:///"+to.String(), append(options, grpc.WithTransportCredentials(creds))...)
	g.must(err)
	g.t.Cleanup(func() { c.Close() })
	return c
}

// fatalLog turns what the suite of gRPC says before it would exit into a failure of the test that runs.
type fatalLog struct {
	grpclog.LoggerV2
	mu sync.Mutex
	t  *testing.T
}

func (l *fatalLog) set(t *testing.T) { l.mu.Lock(); l.t = t; l.mu.Unlock() }

func (l *fatalLog) fail(text string) {
	l.mu.Lock()
	t := l.t
	l.mu.Unlock()
	if t == nil {
		panic(text)
	}
	t.Fatal(text)
}

func (l *fatalLog) Info(...any)               {}
func (l *fatalLog) Infoln(...any)             {}
func (l *fatalLog) Infof(string, ...any)      {}
func (l *fatalLog) Warning(...any)            {}
func (l *fatalLog) Warningln(...any)          {}
func (l *fatalLog) Warningf(string, ...any)   {}
func (l *fatalLog) Error(...any)              {}
func (l *fatalLog) Errorln(...any)            {}
func (l *fatalLog) Errorf(string, ...any)     {}
func (l *fatalLog) V(int) bool                { return false }
func (l *fatalLog) Fatal(a ...any)            { l.fail(fmt.Sprint(a...)) }
func (l *fatalLog) Fatalln(a ...any)          { l.fail(fmt.Sprintln(a...)) }
func (l *fatalLog) Fatalf(f string, a ...any) { l.fail(fmt.Sprintf(f, a...)) }

// suiteLog is the log of gRPC, which takes one only before it is used.
var suiteLog = func() *fatalLog { l := &fatalLog{}; grpclog.SetLoggerV2(l); return l }()

// TestGRPCSuiteThroughGateway runs the cases of gRPC's own interoperability suite that need no cloud: its client and its server
// with the gateway between them.
func TestGRPCSuiteThroughGateway(t *testing.T) {
	register := func(s *grpc.Server) { grpctest.RegisterTestServiceServer(s, suite.NewTestServer()) }
	eachGRPCGateway(t, register, func(t *testing.T, g *grpcGateway) {
		conn := g.dial()
		c := grpctest.NewTestServiceClient(conn)
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		none := grpctest.NewUnimplementedServiceClient(conn)
		for _, one := range []struct {
			name string
			run  func()
		}{
			{"empty_unary", func() { suite.DoEmptyUnaryCall(ctx, c) }},
			{"large_unary", func() { suite.DoLargeUnaryCall(ctx, c) }},
			{"client_streaming", func() { suite.DoClientStreaming(ctx, c) }},
			{"server_streaming", func() { suite.DoServerStreaming(ctx, c) }},
			{"ping_pong", func() { suite.DoPingPong(ctx, c) }},
			{"empty_stream", func() { suite.DoEmptyStream(ctx, c) }},
			{"timeout_on_sleeping_server", func() { suite.DoTimeoutOnSleepingServer(ctx, c) }},
			{"cancel_after_begin", func() { suite.DoCancelAfterBegin(ctx, c) }},
			{"cancel_after_first_response", func() { suite.DoCancelAfterFirstResponse(ctx, c) }},
			{"status_code_and_message", func() { suite.DoStatusCodeAndMessage(ctx, c) }},
			{"special_status_message", func() { suite.DoSpecialStatusMessage(ctx, c) }},
			{"custom_metadata", func() { suite.DoCustomMetadata(ctx, c) }},
			{"unimplemented_method", func() { suite.DoUnimplementedMethod(ctx, conn) }},
			{"unimplemented_service", func() { suite.DoUnimplementedService(ctx, none) }},
		} {
			t.Run(one.name, func(t *testing.T) {
				suiteLog.set(t)
				defer suiteLog.set(nil)
				one.run()
			})
		}
	})
}
