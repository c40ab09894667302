package main

import (
	"strconv"

	"github.com/millrace/millrace/bench/harness"
)

// Names of contestants of the WebSocket echoes.
const (
	wsMachine = "Millrace, machine"
	wsConn    = "Millrace, Conn"
	wsCoder   = "coder/websocket"
	wsGobwas  = "gobwas/ws, frames"
)

// webSocketEcho is a server that sends every message back. nginx is no contestant: it forwards WebSocket and ends none.
func webSocketEcho(e *harness.Env) []harness.Measure {
	measure := func(name, unit, count string, size int, gates ...harness.Gate) harness.Measure {
		contestant := func(name, as string) harness.Contestant {
			return harness.OnCore(name, "", count, e.Self, "role", "websocket", "-as", as, "-size", strconv.Itoa(size))
		}
		return harness.Measure{Name: name, Unit: unit, Peer: wsGobwas, Gates: gates, Contestants: []harness.Contestant{
			contestant(wsMachine, "machine"), contestant(wsConn, "conn"), contestant(wsCoder, "coder"), contestant(wsGobwas, "gobwas"),
		}}
	}
	return []harness.Measure{
		measure("WebSocket echo of 64 bytes", "message", "messages", 64,
			gate(wsMachine, harness.MetricOwn, wsGobwas, "<=", 1),
			gate(wsConn, harness.MetricOwn, wsGobwas, "<=", 1),
			gate(wsConn, harness.MetricOwn, wsCoder, "<=", 1),
			gate(wsMachine, "allocs", "", "<=", 0),
			gate(wsConn, "allocs", "", "<=", 0),
		),
		measure("WebSocket echo of 64 KiB", "byte", "bytes", 64<<10,
			gate(wsConn, harness.MetricOwn, wsGobwas, "<=", 1),
			gate(wsConn, "allocs", "", "<=", 0),
		),
	}
}
