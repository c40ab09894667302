package interop

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// echoService is a service of one call with one message and one with streams both ways.
var echoService = grpc.ServiceDesc{
	ServiceName: "Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Once",
		Handler: func(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, dec(m)
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName:    "Many",
		ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				m := new(wrapperspb.BytesValue)
				if err := s.RecvMsg(m); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

func TestGRPC(t *testing.T) {
	x := newWorld(t, 1)
	l, err := x.b.Listen("tcp", ":50051")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	srv.RegisterService(&echoService, nil)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	c, err := grpc.NewClient("passthrough:///"+net.JoinHostPort(addrB, "50051"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return x.a.DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "gRPC", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		unary(ctx, t, c)
		stream(ctx, t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		srv.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func unary(ctx context.Context, t *testing.T, c *grpc.ClientConn) {
	for n := 1; n < 1<<21; n *= 32 {
		got := new(wrapperspb.BytesValue)
		if err := c.Invoke(ctx, "/Echo/Once", wrapperspb.Bytes(make([]byte, n)), got); err != nil || len(got.Value) != n {
			t.Errorf("%d of %d bytes, %v", len(got.Value), n, err)
		}
	}
}

func stream(ctx context.Context, t *testing.T, c *grpc.ClientConn) {
	s, err := c.NewStream(ctx, &echoService.Streams[0], "/Echo/Many")
	if err != nil {
		t.Error(err)
		return
	}
	const messages, size = 200, 20_000
	go func() {
		for range messages {
			if s.SendMsg(wrapperspb.Bytes(make([]byte, size))) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	for i := range messages {
		m := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(m); err != nil || len(m.Value) != size {
			t.Errorf("message %d: %d bytes, %v", i, len(m.Value), err)
			return
		}
	}
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
}
