package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/millrace/millrace/bench/harness"
)

// Contestants of TLS in memory: those of role tls-memory.
const (
	tlsEngine, tlsGoroutine, tlsStandard = "engine", "goroutine", "standard"
	tlsPipe, tlsLoopback                 = "crypto/tls", "crypto/tls-loopback"
)

// sessionsBench has what the rows of TLS share with suite tcp.
type sessionsBench struct{ transportBench }

// tlsEngineRows compare tls.Engine with crypto/tls.
//
// In memory both ends are in one process on one core: engine is a loop that moves bytes between two engines, crypto/tls has
// a goroutine for each end, over net.Pipe or over the kernel's loopback. ECDSA on P-256, X25519MLKEM768, AES-128-GCM.
//
// Over veth the hosts are those of suite tcp, with offloads off. The client is crypto/tls over the kernel's TCP on CPU 0, and
// the server has CPU 1. Millrace's is over AF_XDP in copy mode.
func tlsEngineRows(e *harness.Env) []harness.Measure {
	b := &sessionsBench{transportBench{e: e}}
	return append(b.tlsInMemory(), b.tlsOverVeth()...)
}

// tlsInMemory has both ends in one process.
func (b *sessionsBench) tlsInMemory() []harness.Measure {
	measure := func(name, unit, count, op string, bound float64, contestants ...string) harness.Measure {
		m := harness.Measure{Name: "TLS in memory: " + name, Unit: unit, Peer: tlsPipe, Gates: []harness.Gate{
			gate(tlsEngine, harness.MetricCost, tlsPipe, "<=", bound),
		}}
		for _, as := range contestants {
			m.Contestants = append(m.Contestants, b.alone(as, count, nil, b.e.Self, "role", "tls-memory", "-op", op, "-as", as))
		}
		return m
	}
	idle := harness.Measure{Name: "TLS in memory: heap and stack of an idle server connection", Unit: "connection", Peer: tlsPipe, Gates: []harness.Gate{
		gate(tlsEngine, harness.HeapPerConn, "", "<=", 8<<10),
	}}
	for _, as := range []string{tlsEngine, tlsStandard, tlsPipe} {
		c := b.alone(as, "conns", nil, b.e.Self, "role", "tls-memory", "-op", "hold", "-as", as, "-conns", "4000")
		run := c.Run
		c.Run = func(ctx context.Context, t harness.Timing) (harness.Sample, error) {
			t.Warmup = max(t.Warmup, 8*time.Second) // they are opened meanwhile
			return run(ctx, t)
		}
		idle.Contestants = append(idle.Contestants, c)
	}
	return []harness.Measure{
		measure("TLS 1.3 handshake", "handshake", "ops", "handshake", 1, tlsEngine, tlsGoroutine, tlsPipe, tlsLoopback),
		measure("records, 16 KiB, encrypted and decrypted", "byte", "bytes", "records", 1, tlsEngine, tlsStandard, tlsPipe, tlsLoopback),
		idle,
	}
}

// Contestants of TLS over veth.
const (
	tlsOverKernel, tlsOverOurs = "kernel, crypto/tls", "millrace, crypto/tls"
	tlsEngineOverOurs          = "millrace, engine"
)

// tlsOverVeth has the server of each contestant in a network namespace of its own.
func (b *sessionsBench) tlsOverVeth() []harness.Measure {
	var all []harness.Measure
	for _, t := range []struct{ name, op, part string }{
		{"server sends", "receive", "client"},
		{"server receives", "send", "server"},
	} {
		m := harness.Measure{Name: "TLS over veth: bulk, " + t.name, Unit: "byte", Peer: tlsOverKernel, Gates: []harness.Gate{
			gate(tlsEngineOverOurs, harness.MetricCost, tlsOverKernel, "<=", 1),
			gate(tlsEngineOverOurs, harness.MetricOwn, tlsOverKernel, "<=", 1),
		}}
		for _, c := range []struct{ name, stack, tls string }{
			{tlsEngineOverOurs, stackOurs, "engine"},
			{tlsOverOurs, stackOurs, "crypto/tls"},
			{tlsOverKernel, stackKernel, "crypto/tls"},
		} {
			m.Contestants = append(m.Contestants, harness.Contestant{Name: c.name, Run: func(ctx context.Context, tm harness.Timing) (harness.Sample, error) {
				return b.runTLS(ctx, tm, c.stack, c.tls, t.op, t.part)
			}})
		}
		all = append(all, m)
	}
	return all
}

func (b *sessionsBench) runTLS(ctx context.Context, tm harness.Timing, stack, how, op, part string) (harness.Sample, error) {
	if os.Geteuid() != 0 {
		return harness.Sample{}, errors.New("network namespaces need root")
	}
	w, err := newHosts(stack, false, false)
	if err != nil {
		return harness.Sample{}, err
	}
	defer w.net.Close()
	parts := b.parts(w, stack, "-op", op, "-cc", kernelCC, "-tls", "crypto/tls")
	parts[0].Argv = append(parts[0].Argv, "-tls", how, "-cc", kernelCC)
	win, err := harness.RunParts(ctx, tm, parts...)
	if err != nil {
		return harness.Sample{}, err
	}
	return win.Served(part, "bytes")
}
