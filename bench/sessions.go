package main

import "github.com/millrace/millrace/bench/harness"

// sessions compares session protocols (TLS, WebSocket, HTTP) with their peers.
var sessions = harness.Suite{
	Name:  "sessions",
	Title: "Session protocols",
	About: []string{
		"One core of two. Rows say it where a network is in between: veth between namespaces, or the kernel's " +
			"loopback; all others are the work of a connection or message alone, in memory. allocs are the most of a round: of a " +
			"unit, of QUIC of the whole round.",
	},
	Open: func(e *harness.Env) (*harness.Bench, error) {
		b := &harness.Bench{Close: func() error { return nil }}
		for _, measures := range sessionMeasures {
			b.Measures = append(b.Measures, measures(e)...)
		}
		return b, nil
	},
}

// sessionMeasures are the rows, one function for each protocol.
var sessionMeasures = []func(*harness.Env) []harness.Measure{
	tlsPeek,
	tlsEngineRows,
	http3Rows,
	quicBulk,
	webSocketEcho,
}
