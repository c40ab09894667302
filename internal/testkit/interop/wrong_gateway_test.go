package interop

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
	sockets "github.com/millrace/millrace/l7/transport"
)

// gatewayLanes are listeners of one worker of the gateway over the kernel's sockets: for each lane one of HTTP/1.1 and one of
// HTTP/2 by prior knowledge.
func gatewayLanes(t *testing.T) (all []*lane) {
	tree := &proxy.Tree{}
	times := proxy.Timeouts{Header: time.Minute, Body: time.Minute, Write: time.Minute, Idle: time.Minute}
	for range lanes {
		backend := newRecorder(t, "tcp", "127.0.0.1:0")
		addr := backend.listener.Addr().(*net.TCPAddr).AddrPort()
		p, err := pool.New(pool.Options{Name: "p"}, []pool.BackendOptions{{Name: "b", Address: addr}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		to := &proxy.Pool{Pool: p}
		table, err := route.New([]route.Rule{{Name: "all"}})
		if err != nil {
			t.Fatal(err)
		}
		l := &lane{network: "tcp", backend: backend}
		rules := []*proxy.Rule{{Name: "all", Backends: []proxy.Weighted{{Pool: to, Weight: 1}}, Attempts: 1}}
		one := &proxy.Listener{Name: "h1", Address: testport.Hold(t), HTTP1: &http1.Options{}, Table: table, Rules: rules, Timeouts: times}
		two := &proxy.Listener{Name: "h2", Address: testport.Hold(t), HTTP2: &http2.Options{ExtendedConnect: true}, Table: table, Rules: rules, Timeouts: times}
		l.http1, l.h2 = one.Address.String(), two.Address.String()
		tree.Listeners, tree.Pools = append(tree.Listeners, one, two), append(tree.Pools, to)
		all = append(all, l)
	}
	loop, err := sockets.NewEpollLoop()
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.NewWorker(loop, 0).Apply(tree); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()
	t.Cleanup(func() {
		loop.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return all
}
