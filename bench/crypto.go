package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/bench/role"
)

// crypto compares ciphers and hashes of batches with Intel's ipsec-mb.
var crypto = harness.Suite{
	Name:   "crypto",
	Title:  "Ciphers and hashes of batches",
	Rounds: 3,
	About: []string{
		"One core, 32 packets a batch, in memory and in place, each with a key of its own and 8 bytes of associated data " +
			"as ESP has. ipsec-mb runs its direct calls for AES-GCM and its jobs for the others, whichever is faster there. " +
			"Go's library is the same batch by crypto/* and x/crypto (FormStandard).",
		"All contestants compare their first batch with what crypto/* computes; one that disagrees does not run.",
	},
	Open: openCryptoSuite,
}

const (
	ipsecMB   = "ipsec-mb"
	goLibrary = "Go's library"
)

func openCryptoSuite(e *harness.Env) (*harness.Bench, error) {
	dir, err := os.MkdirTemp("", "millrace-bench-")
	if err != nil {
		return nil, err
	}
	peer := e.BuildC("ipsec_mb", "-lIPSec_MB")
	var measures []harness.Measure
	for what, name := range role.Cryptos {
		for _, size := range []int{64, 256, 1408, 16384} {
			path := filepath.Join(dir, fmt.Sprintf("crypto-%d-%d", what, size))
			if err := role.WriteCrypto(path, what, size); err != nil {
				return nil, errors.Join(err, os.RemoveAll(dir))
			}
			m := harness.Measure{
				Name: fmt.Sprintf("%s, %d B", name, size), Unit: "byte", Peer: ipsecMB,
				Contestants: []harness.Contestant{
					harness.OnCore(ours, "", "bytes", e.Self, "role", "crypto", path),
					harness.OnCore(goLibrary, "", "bytes", e.Self, "role", "crypto", "-as", "standard", path),
					harness.OnCore(ipsecMB, peer.Absent, "bytes", peer.Path, path),
				},
			}
			if size == 1408 {
				m.Gates = []harness.Gate{gate(ours, harness.MetricPerCPU, ipsecMB, ">=", 0.8)}
			}
			measures = append(measures, m)
		}
	}
	return &harness.Bench{Measures: measures, Close: func() error { return os.RemoveAll(dir) }}, nil
}
