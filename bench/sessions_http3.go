package main

import (
	"github.com/millrace/millrace/bench/harness"
)

// Contestants of the rows of HTTP/3 beside ours.
const (
	quicGo     = "quic-go"
	rawStreams = "streams"
)

// http3Rows are field compression, small requests and downloads. The peer is quic-go's http3; ours runs on
// the same QUIC, so what both pay for that is the contestant "streams": a request and a response of the same
// bytes on a stream, without HTTP.
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
			Contestants: []harness.Contestant{h3(ours, "download", "bytes"), h3(quicGo, "download", "bytes"), h3(rawStreams, "download", "bytes")},
			Gates:       []harness.Gate{gate(ours, harness.MetricOwn, quicGo, "<=", 0.8)},
		},
	}
}
