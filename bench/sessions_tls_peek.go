package main

import (
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
)

// Names of contestants of tls-peek.
const (
	peekJA4    = "peek and JA4"
	peekCut    = "peek and JA4, 3 records"
	peekOnly   = "peek"
	cryptoPeek = "crypto/tls"
)

// tlsPeek is what a proxy does with the first bytes of a connection that it does not terminate. The
// peer is the usual way in Go: crypto/tls parses, and GetConfigForClient ends the handshake.
func tlsPeek(e *harness.Env) []harness.Measure {
	file := filepath.Join(e.Root, "tls", "clienthello", "testdata", "hellos.json")
	contestant := func(name, as string) harness.Contestant {
		return harness.OnCore(name, "", "hellos", e.Self, "role", "tls-peek", "-as", as, file)
	}
	return []harness.Measure{{
		Name: "tls-peek", Unit: "hello", Peer: cryptoPeek,
		Contestants: []harness.Contestant{
			contestant(peekJA4, "ja4"),
			contestant(peekCut, "records"),
			contestant(peekOnly, "peek"),
			contestant(cryptoPeek, "crypto/tls"),
		},
		Gates: []harness.Gate{
			gate(peekJA4, harness.MetricOwn, "", "<=", 3000),
			gate(peekJA4, "allocs", "", "<=", 0),
			gate(peekCut, "allocs", "", "<=", 0),
		},
	}}
}
