package role

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/proxy"
	"github.com/millrace/millrace/l7/route"
	"github.com/millrace/millrace/l7/transport"
)

// serveMillrace is the workers of package l7/proxy: the request path of our gateway without the program around it. Their
// loops are of the kernel's sockets or, with the prefixes front and back, one of our stack over AF_XDP.
func serveMillrace(o roleOptions, config *tls.Config) (func() error, error) {
	address, err := netip.ParseAddrPort(o.stream.To)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(o.web.Backend)
	if err != nil {
		return nil, err
	}
	tree, err := millraceTree(address, to, config)
	if err != nil {
		return nil, err
	}
	if o.web.Front != "" {
		return overAFXDP(tree, o.web.Front, o.web.Back)
	}
	if config != nil {
		tree.Listeners[0].HTTP3 = &proxy.HTTP3Options{}
	}
	shared := &proxy.Endpoints{}
	release, err := shared.Reserve(tree)
	if err != nil {
		return nil, err
	}
	defer release()
	var loops []*transport.EpollLoop
	for i := range o.loops {
		loop, err := transport.NewEpollLoop()
		if err != nil {
			return nil, err
		}
		w := proxy.NewWorker(loop, i)
		w.Share(shared)
		if err := w.Apply(tree); err != nil {
			return nil, err
		}
		loops = append(loops, loop)
	}
	done := make(chan error, len(loops))
	for _, loop := range loops {
		go func() { done <- loop.Run(context.Background()) }()
	}
	return func() error {
		for _, loop := range loops {
			_ = loop.Close()
		}
		err := shared.Close()
		for range loops {
			err = errors.Join(err, <-done)
		}
		return err
	}, nil
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
