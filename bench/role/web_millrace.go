package role

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/millrace/millrace/gateway/pool"
	"github.com/millrace/millrace/gateway/proxy"
	"github.com/millrace/millrace/gateway/route"
	"github.com/millrace/millrace/gateway/transport"
	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
)

// serveMillrace is one worker of package gateway/proxy: the request path of our gateway without the program around it. Its
// loop is one of the kernel's sockets or, with the prefixes front and back, of our stack over AF_XDP.
func serveMillrace(at, backend string, config *tls.Config, front, back string) (func() error, error) {
	address, err := netip.ParseAddrPort(at)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(backend)
	if err != nil {
		return nil, err
	}
	tree, err := millraceTree(address, to, config)
	if err != nil {
		return nil, err
	}
	if front != "" {
		return overAFXDP(tree, front, back)
	}
	loop, err := transport.NewEpollLoop()
	if err != nil {
		return nil, err
	}
	w, shared := proxy.NewWorker(loop, 0), &proxy.Endpoints{}
	if w.Share(shared); config != nil {
		tree.Listeners[0].HTTP3 = &proxy.HTTP3{}
	}
	if err := w.Apply(tree); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- loop.Run(context.Background()) }()
	return func() error { _ = loop.Close(); return errors.Join(shared.Close(), <-done) }, nil
}

// millraceTree has two rules: gRPC by HTTP/2, all else by HTTP/1.1.
func millraceTree(at, backend netip.AddrPort, config *tls.Config) (*proxy.Tree, error) {
	var pools []*proxy.Pool
	var rules []*proxy.Rule
	for _, p := range []proxy.Pool{{Protocol: proxy.HTTP2}, {Protocol: proxy.HTTP1}} {
		var err error
		name := fmt.Sprint(p.Protocol)
		if p.Pool, err = pool.New(pool.Options{Name: name}, []pool.BackendOptions{{Name: "b", Address: backend}}, 1); err != nil {
			return nil, err
		}
		pools = append(pools, &p)
		rules = append(rules, &proxy.Rule{Name: name, Backends: []proxy.Weighted{{Pool: &p, Weight: 1}}, Attempts: 1})
	}
	table, err := route.New([]route.Rule{
		{Name: "grpc", Match: route.Match{Path: route.Path{Type: route.PathPrefix, Value: "/bench.Echo"}}}, {Name: "all"},
	})
	if err != nil {
		return nil, err
	}
	if config != nil {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	const limit = 30 * time.Second
	return &proxy.Tree{Pools: pools, Listeners: []*proxy.Listener{{
		Name: "web", Address: at, TLS: config, HTTP1: &http1.Options{}, HTTP2: &http2.Options{}, Table: table, Rules: rules,
		Timeouts: proxy.Timeouts{Handshake: limit, Header: limit, Body: limit, Write: limit, Idle: time.Hour, Tunnel: time.Hour},
	}}}, nil
}
