package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// callService is a service whose calls tests steer.
type callService struct {
	canceled chan error // of the context of a call that waited for its end
	sent     atomic.Int64
	received atomic.Int64
	resume   chan struct{}
}

func newCallService() *callService {
	return &callService{canceled: make(chan error, 100), resume: make(chan struct{})}
}

func (c *callService) register(s *grpc.Server) {
	stream := func(name string, f func(grpc.ServerStream) error) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return f(s) }}
	}
	s.RegisterService(&echoService, nil)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Calls", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{
			stream("Wait", c.wait), stream("Refuse", c.refuse), stream("Flood", c.flood), stream("Stall", c.stall), stream("Metadata", c.metadata),
		},
	}, nil)
}

// wait sends one message and waits for the end of the call.
func (c *callService) wait(s grpc.ServerStream) error {
	if err := s.SendMsg(wrapperspb.Bytes([]byte("begun"))); err != nil {
		return err
	}
	<-s.Context().Done()
	c.canceled <- s.Context().Err()
	return s.Context().Err()
}

// refuse ends the call while the client sends.
func (c *callService) refuse(s grpc.ServerStream) error {
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); err != nil {
		return err
	}
	return status.Error(codes.ResourceExhausted, "enough: 100 % – ende")
}

const floodSize = 50_000

// numbered returns a message with a number.
func numbered(n int64) *wrapperspb.BytesValue {
	b := make([]byte, floodSize)
	binary.BigEndian.PutUint64(b, uint64(n))
	return wrapperspb.Bytes(b)
}

func number(m *wrapperspb.BytesValue) int64 {
	if len(m.Value) != floodSize {
		return -1
	}
	return int64(binary.BigEndian.Uint64(m.Value))
}

// flood sends as many messages as are taken, until the client ends its side.
func (c *callService) flood(s grpc.ServerStream) error {
	done := make(chan struct{})
	go func() {
		_ = s.RecvMsg(new(wrapperspb.BytesValue))
		close(done)
	}()
	for n := int64(0); ; n++ {
		select {
		case <-done:
			return nil
		default:
		}
		if err := s.SendMsg(numbered(n)); err != nil {
			return err
		}
		c.sent.Store(n + 1)
	}
}

// stall receives nothing until the test resumes it, and then all.
func (c *callService) stall(s grpc.ServerStream) error {
	<-c.resume
	for n := int64(0); ; n++ {
		m := new(wrapperspb.BytesValue)
		switch err := s.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return s.SendMsg(wrapperspb.Bytes([]byte(strconv.FormatInt(n, 10))))
		case err != nil:
			return err
		case number(m) != n:
			return status.Errorf(codes.DataLoss, "message %d in place of %d", number(m), n)
		}
	}
}

// metadata returns the metadata of the call as header and as trailer.
func (c *callService) metadata(s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	own := metadata.MD{}
	for k, v := range md {
		if strings.HasPrefix(k, "x-test-") {
			own[k] = v
		}
	}
	if err := s.SendHeader(own); err != nil {
		return err
	}
	s.SetTrailer(own)
	return nil
}

var bothWays = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// The end of a call reaches the server, whoever ends it: the client, its deadline, or its connection.
func TestGRPCCancellationThroughGateway(t *testing.T) {
	t.Parallel()
	calls := newCallService()
	eachGRPCGateway(t, calls.register, func(t *testing.T, g *grpcGateway) {
		for _, end := range []string{"cancel", "deadline", "close"} {
			conn := g.dial()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			if end == "deadline" {
				ctx, cancel = context.WithTimeout(context.Background(), 500*time.Millisecond)
			}
			s, err := conn.NewStream(ctx, bothWays, "/Calls/Wait")
			g.must(err)
			g.must(s.RecvMsg(new(wrapperspb.BytesValue)))
			want := codes.Canceled
			switch end {
			case "cancel":
				cancel()
			case "close":
				g.must(conn.Close())
			case "deadline":
				want = codes.DeadlineExceeded
			}
			if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != want {
				t.Errorf("%s: the client has %v", end, err)
			}
			select {
			case err := <-calls.canceled:
				if err == nil {
					t.Errorf("%s: no error", end)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("%s: the server's call goes on", end)
			}
			cancel()
		}
	})
}

// A status comes to a client that still sends, and a server that stops in the middle of a call is an error of it.
func TestGRPCServerEndsThroughGateway(t *testing.T) {
	calls := newCallService()
	eachGRPCGateway(t, calls.register, func(t *testing.T, g *grpcGateway) {
		conn := g.dial()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		s, err := conn.NewStream(ctx, bothWays, "/Calls/Refuse")
		g.must(err)
		for err = nil; err == nil; {
			err = s.SendMsg(numbered(0))
		}
		err = s.RecvMsg(new(wrapperspb.BytesValue))
		if st := status.Convert(err); st.Code() != codes.ResourceExhausted || st.Message() != "enough: 100 % – ende" {
			t.Errorf("the client has %v", err)
		}
		s, err = conn.NewStream(ctx, bothWays, "/Calls/Wait")
		g.must(err)
		g.must(s.RecvMsg(new(wrapperspb.BytesValue)))
		g.server.Stop()
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
			t.Errorf("the server has stopped, and the client has %v", err)
		}
		<-calls.canceled
		once := conn.Invoke(ctx, "/Echo/Once", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
		if status.Code(once) != codes.Unavailable {
			t.Errorf("a call without a server: %v", once)
		}
	})
}

// Metadata pass both ways, as header and trailer: several values of one name, bytes of all values, and more than a frame holds.
func TestGRPCMetadataThroughGateway(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := metadata.MD{
		"x-test-several": {"a", "b, c", "a"}, "x-test-empty": {""}, "x-test-bytes-bin": {string(all), "", "\x00"},
		"x-test-long": {strings.Repeat("long ", 4000) + "."},
	}
	eachGRPCGateway(t, newCallService().register, func(t *testing.T, g *grpcGateway) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		s, err := g.dial().NewStream(metadata.NewOutgoingContext(ctx, want), bothWays, "/Calls/Metadata")
		g.must(err)
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		header, err := s.Header()
		g.must(err)
		for k, v := range want {
			if !slices.Equal(header[k], v) || !slices.Equal(s.Trailer()[k], v) {
				t.Errorf("%s: %.80q in the header, %.80q in the trailer", k, header[k], s.Trailer()[k])
			}
		}
	}, grpc.MaxHeaderListSize(1<<20))
}

// A receiver that does not read stops the sender before it has sent much, both ways; then all messages come, in order.
func TestGRPCBackPressureThroughGateway(t *testing.T) {
	t.Parallel()
	calls := newCallService()
	eachGRPCGateway(t, calls.register, func(t *testing.T, g *grpcGateway) {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		conn := g.dial()
		calls.sent.Store(0)
		s, err := conn.NewStream(ctx, bothWays, "/Calls/Flood")
		g.must(err)
		n := plateau(t, &calls.sent)
		for i := range 2 * n {
			m := new(wrapperspb.BytesValue)
			if err := s.RecvMsg(m); err != nil || number(m) != i {
				t.Fatalf("message %d: %d, %v", i, number(m), err)
			}
		}
		cancel()

		ctx, cancel = context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		s, err = conn.NewStream(ctx, bothWays, "/Calls/Stall")
		g.must(err)
		calls.received.Store(0)
		total := make(chan int64, 1)
		stop := make(chan struct{})
		go func() {
			i := int64(0)
			for ; ; i++ {
				if s.SendMsg(numbered(i)) != nil {
					break
				}
				calls.received.Store(i + 1)
				select {
				case <-stop:
					_ = s.CloseSend()
					total <- i + 1
					return
				default:
				}
			}
			total <- -1
		}()
		plateau(t, &calls.received)
		calls.resume <- struct{}{}
		time.Sleep(50 * time.Millisecond)
		close(stop)
		m := new(wrapperspb.BytesValue)
		if err := s.RecvMsg(m); err != nil || string(m.Value) != fmt.Sprint(<-total) {
			t.Errorf("%q messages came: %v", m.Value, err)
		}
	})
}

// plateau waits until a counter of messages stands still, and checks that it stands where buffers are full.
func plateau(t *testing.T, n *atomic.Int64) int64 {
	t.Helper()
	for last := int64(-1); ; time.Sleep(200 * time.Millisecond) {
		now := n.Load()
		if now == last && now > 0 {
			if now*floodSize > 24<<20 {
				t.Errorf("%d MiB were sent", now*floodSize>>20)
			}
			return now
		}
		last = now
		if last*floodSize > 256<<20 {
			t.Fatal("the sender is not stopped")
		}
	}
}

// Calls go on while the server ends its connections for their age, and while it permits few calls at a time on each: none fails,
// and each answer is that of its call. With MILLRACE_GRPC_CALLS the test makes as many.
func TestGRPCCallsThroughGateway(t *testing.T) {
	calls := 2000
	if n, err := strconv.Atoi(os.Getenv("MILLRACE_GRPC_CALLS")); err == nil {
		calls = n / 8
	}
	for name, option := range map[string]grpc.ServerOption{
		"age":     grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 10 * time.Millisecond, MaxConnectionAgeGrace: 20 * time.Second}),
		"streams": grpc.MaxConcurrentStreams(5),
	} {
		t.Run(name, func(t *testing.T) {
			eachGRPCGateway(t, newCallService().register, func(t *testing.T, g *grpcGateway) {
				g.manyCalls(calls)
				s := g.stats()
				t.Logf("%d calls on %d connections to the server, %d retries", s.Requests, s.BackOpened, s.Retries)
				if s.BackOpened < 5 {
					t.Errorf("%d connections to the server", s.BackOpened)
				}
			}, option)
		})
	}
}

// manyCalls makes calls, forty at a time, and compares what they return.
func (g *grpcGateway) manyCalls(calls int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	conn := g.dial()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 40 {
		wg.Go(func() {
			for !g.t.Failed() {
				n := next.Add(1)
				if n > int64(calls) {
					return
				}
				want := fmt.Sprintf("call %d %s", n, strings.Repeat("x", int(n*n%3000)))
				got := new(wrapperspb.BytesValue)
				if err := conn.Invoke(ctx, "/Echo/Once", wrapperspb.Bytes([]byte(want)), got); err != nil || string(got.Value) != want {
					g.t.Errorf("call %d: %v, %.20q", n, err, got.Value)
				}
			}
		})
	}
	wg.Wait()
}

// A server that asks for a sign of life of its idle connections gets it.
func TestGRPCKeepAliveThroughGateway(t *testing.T) {
	t.Parallel()
	calls := newCallService()
	keep := grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: time.Second})
	g := newGRPCGateway(t, true, false, calls.register, keep)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := g.dial().NewStream(ctx, bothWays, "/Calls/Wait")
	g.must(err)
	g.must(s.RecvMsg(new(wrapperspb.BytesValue)))
	select {
	case err := <-calls.canceled:
		t.Errorf("the server has ended the connection: %v", err)
	case <-time.After(3500 * time.Millisecond):
	}
	cancel()
	<-calls.canceled
}
