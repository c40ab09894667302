package main

import "github.com/millrace/millrace/bench/harness"

// sessions compares session protocols (TLS, WebSocket, HTTP) with their peers.
var sessions = harness.Suite{
	Name:  "sessions",
	Title: "Session protocols",
	About: []string{
		"One core and no network: the work of a connection or message alone, in memory. allocs are those of a " +
			"unit.",
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
