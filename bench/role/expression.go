package role

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/packet"
)

const (
	expressionPackets = 1024
	expressionFrame   = 2048
)

// WriteExpression writes the first Ethernet packets of the sample captures: a u64, how many of them match
// text, and a list of { u32 len; u8 bytes[len] }.
func WriteExpression(path, text, root string) error {
	f, err := expr.Compile(text, expr.LinkEthernet, expr.Options{})
	if err != nil {
		return err
	}
	files, reason := SampleCaptures(root)
	if reason != "" {
		return errors.New(reason)
	}
	pkts := ethernetPackets(files)
	matches := uint64(0)
	out := make([]byte, 8)
	for _, p := range pkts {
		if f.Match(p, len(p)) {
			matches++
		}
		out = append(binary.NativeEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	binary.NativeEndian.PutUint64(out, matches)
	return os.WriteFile(path, out, 0o600)
}

func ethernetPackets(files []string) (pkts [][]byte) {
	for _, name := range files {
		r, err := capture.Open(name)
		if err != nil {
			continue // SampleCaptures has read it
		}
		for len(pkts) < expressionPackets {
			rec, err := r.Next()
			if err != nil {
				break
			}
			if rec.LinkType == capture.LinkTypeEthernet && len(rec.Data) >= 14 && len(rec.Data) <= expressionFrame {
				pkts = append(pkts, bytes.Clone(rec.Data))
			}
		}
		r.Close()
	}
	return pkts
}

// readExpression reads what WriteExpression wrote.
func readExpression(path string) (pkts [][]byte, matches uint64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	matches = binary.NativeEndian.Uint64(b)
	for b = b[8:]; len(b) > 0; {
		n := binary.NativeEndian.Uint32(b)
		pkts, b = append(pkts, b[4:4+n]), b[4+n:]
	}
	return pkts, matches, nil
}

// openExpression decides the packets of a file without end, a batch a step, or in the kernel.
func openExpression(o roleOptions) (roleWork, error) {
	if len(o.args) != 2 {
		return roleWork{}, errors.New("which packets, which expression?")
	}
	pkts, want, err := readExpression(o.args[0])
	if err != nil {
		return roleWork{}, err
	}
	f, err := expr.Compile(o.args[1], expr.LinkEthernet, expr.Options{})
	if err != nil {
		return roleWork{}, err
	}
	if o.as == "kernel" {
		return kernelExpression(f, pkts, want)
	}
	r := expressionRun{m: f.NewMatcher(), batches: packetBatches(pkts)}
	got := uint64(0)
	for _, b := range r.batches {
		for _, v := range r.m.Match(b) {
			got += uint64(v)
		}
	}
	if got != want {
		return roleWork{}, fmt.Errorf("%d matches, want %d", got, want)
	}
	return roleWork{step: r.step, counts: r.counts}, nil
}

// packetBatches lays packets into frames, 256 a batch.
func packetBatches(pkts [][]byte) (all []*packet.Batch) {
	arena := &packet.Arena{Mem: make([]byte, expressionFrame*len(pkts)), Shift: 11}
	for i, p := range pkts {
		if i%packet.BatchSize == 0 {
			all = append(all, &packet.Batch{Arena: arena})
		}
		copy(arena.Mem[i*expressionFrame:], p)
		b := all[len(all)-1]
		b.D = append(b.D, packet.Desc{Off: uint32(i * expressionFrame), Len: uint16(len(p))})
	}
	return all
}

type expressionRun struct {
	m       *expr.Matcher
	batches []*packet.Batch
	at      int
	n       atomic.Uint64
}

func (r *expressionRun) step() error {
	b := r.batches[r.at]
	if r.at++; r.at == len(r.batches) {
		r.at = 0
	}
	r.m.Match(b)
	r.n.Add(uint64(len(b.D)))
	return nil
}

func (r *expressionRun) counts() (map[string]uint64, error) {
	return map[string]uint64{"packets": r.n.Load()}, nil
}

// kernelRepeat is how often the kernel decides a packet in one call.
const kernelRepeat = 10000

// kernelExpression runs the XDP form of an expression in the kernel.
func kernelExpression(f *expr.Filter, pkts [][]byte, want uint64) (roleWork, error) {
	code, err := f.XDP(1, 0)
	if err != nil {
		return roleWork{}, err
	}
	insns, err := asm.AppendInstructions(nil, bytes.NewReader(expr.Marshal(code)), binary.LittleEndian, "linux")
	if err != nil {
		return roleWork{}, err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, Instructions: insns, License: "GPL"})
	if err != nil {
		return roleWork{}, err
	}
	got := uint64(0)
	for _, p := range pkts {
		v, err := prog.Run(&ebpf.RunOptions{Data: p})
		if err != nil {
			return roleWork{}, err
		}
		got += uint64(v)
	}
	if got != want {
		return roleWork{}, fmt.Errorf("%d matches, want %d", got, want)
	}
	at, n := 0, new(atomic.Uint64)
	return roleWork{
		step: func() error {
			_, err := prog.Run(&ebpf.RunOptions{Data: pkts[at], Repeat: kernelRepeat})
			at = (at + 1) % len(pkts)
			n.Add(kernelRepeat)
			return err
		},
		counts: func() (map[string]uint64, error) { return map[string]uint64{"packets": n.Load()}, nil },
	}, nil
}
