package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/internal/testkit/testnet"
)

// Contestants of the rows of HTTP/3 beside ours.
const (
	quicGo     = "quic-go"
	rawStreams = "streams"
	// h3OverMemory is ours over two of our stacks, joined by a wire in memory that passes trains of datagrams whole, as the
	// kernel's loopback does. All others are over that.
	h3OverMemory = "millrace over millrace"
)

// http3Rows are field compression, small requests and downloads. The peer is quic-go's http3; ours runs on
// the same QUIC, so what both pay for that is the contestant "streams": a request and a response of the same
// bytes on a stream, without HTTP.
// Each process has one core, and GOMAXPROCS 1.
func http3Rows(e *harness.Env) []harness.Measure {
	qpack := func(name, as string) harness.Contestant {
		return harness.OnCore(name, "", "sections", e.Self, "role", "qpack", "-as", as)
	}
	h3 := func(name, op, count string) harness.Contestant {
		return harness.OnCore(name, "", count, e.Self, "role", "http3", "-as", name, "-op", op)
	}
	return []harness.Measure{
		{
			Name: "qpack-decode", Unit: "section", Peer: quicGo,
			Contestants: []harness.Contestant{qpack(ours, "warm"), qpack(ours+", literals", "literals"), qpack(quicGo, quicGo)},
			Gates: []harness.Gate{
				gate(ours, harness.MetricOwn, "", "<=", 1000),
				gate(ours, "allocs", "", "<=", 0),
			},
		},
		{
			Name: "http3-request", Unit: "request", Peer: quicGo,
			Contestants: []harness.Contestant{h3(ours, "request", "requests"), h3(quicGo, "request", "requests"), h3(rawStreams, "request", "requests")},
			Gates:       []harness.Gate{gate(ours, harness.MetricOwn, quicGo, "<=", 0.7)},
		},
		{
			Name: "http3-download", Unit: "byte", Peer: quicGo,
			Contestants: []harness.Contestant{
				h3(ours, "download", "bytes"), h3(h3OverMemory, "download", "bytes"), h3(quicGo, "download", "bytes"),
				h3(rawStreams, "download", "bytes"),
			},
			Gates: []harness.Gate{
				gate(ours, harness.MetricOwn, quicGo, "<=", 0.8),
				gate(h3OverMemory, harness.MetricOwn, quicGo, "<=", 0.8),
			},
		},
		http3OverVeth(e),
	}
}

// Contestants of HTTP/3 over veth: -as of the roles, the same for both ends.
const (
	h3OverPacket = "millrace over millrace-gso"
	h3OverXDP    = "millrace over millrace" // AF_XDP
	h3OverKernel = "millrace over kernel"
	h3PeerKernel = "quic-go over kernel"
)

// http3OverVeth downloads from a namespace into another, with the same implementation at both ends, all CPU time of both
// counted. The link has its offloads, by which trains of datagrams pass whole: quic-go sends them (UDP_SEGMENT), and Linux cuts
// them for its socket. With AF_XDP it has none, because a packet that Linux leaves without a checksum comes to XDP so.
func http3OverVeth(e *harness.Env) harness.Measure {
	m := harness.Measure{
		Name: "HTTP/3 over veth: download of 1 MiB, 16 at a time", Unit: "byte", Peer: h3PeerKernel,
		Gates: []harness.Gate{
			gate(h3OverPacket, harness.MetricCost, h3PeerKernel, "<=", 0.8),
			gate(h3OverKernel, harness.MetricCost, h3PeerKernel, "<=", 0.8),
		},
	}
	for _, c := range []struct{ as, stack string }{
		{h3OverPacket, stackOursGSO}, {h3OverXDP, stackOurs}, {h3OverKernel, stackKernel}, {h3PeerKernel, stackKernel},
	} {
		m.Contestants = append(m.Contestants, harness.Contestant{Name: c.as, Run: func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			return runHTTP3(ctx, e, t, c.as, c.stack)
		}})
	}
	return m
}

func runHTTP3(ctx context.Context, e *harness.Env, t harness.Timing, as, stack string) (harness.Sample, error) {
	if os.Geteuid() != 0 {
		return harness.Sample{}, errors.New("network namespaces need root")
	}
	t.Warmup = max(t.Warmup, time.Second) // the windows grow
	w, err := newHosts(stack, stack != stackOurs, false)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	if stack != stackKernel { // the address is our stack's, at the client too
		if _, err := w.client.Run("ip", "addr", "flush", "dev", transportDev); err != nil {
			return harness.Sample{}, err
		}
	}
	part := func(name, role, to string, cpu int, in *testnet.Namespace) harness.Part {
		return harness.Part{Name: name, CPU: cpu, In: in, Argv: []string{
			e.Self, "role", role, "-as", as, "-op", "download", "-dev", transportDev, "-to", to,
		}}
	}
	win, err := harness.RunParts(ctx, t, part("server", "http3-serve", transportTo+"/24", 1, w.server),
		part("client", "http3-load", transportTo, 0, w.client))
	if err != nil {
		return harness.Sample{}, err
	}
	return win.Served("client", "bytes")
}
