package role

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/filter/expr"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/packet"
)

const (
	expressionPackets = 4096
	expressionFrame   = 2048
	perCapture        = 64
)

// WriteExpression writes Ethernet packets of all sample captures, in random order: a u64, how many of those in
// frames match text, and a list of { u32 len; u8 bytes[len] } of at most frames packets.
func WriteExpression(path, text, root string, frames int) error {
	f, err := expr.Compile(text, expr.LinkEthernet, expr.Options{})
	if err != nil {
		return err
	}
	files, reason := SampleCaptures(root)
	if reason != "" {
		return errors.New(reason)
	}
	pkts := ethernetPackets(files)
	pkts = pkts[:min(len(pkts), frames)]
	matches := uint64(0)
	out := make([]byte, 8)
	for _, p := range pkts {
		out = append(binary.NativeEndian.AppendUint32(out, uint32(len(p))), p...)
	}
	for i := range frames {
		if p := pkts[i%len(pkts)]; f.Match(p, len(p)) {
			matches++
		}
	}
	binary.NativeEndian.PutUint64(out, matches)
	return os.WriteFile(path, out, 0o600)
}

// ethernetPackets returns packets of all captures, of each the first perCapture, so that no capture is most of them.
func ethernetPackets(files []string) (pkts [][]byte) {
	for _, name := range files {
		r, err := capture.Open(name)
		if err != nil {
			continue // SampleCaptures has read it
		}
		for range perCapture {
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
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(pkts), func(i, j int) { pkts[i], pkts[j] = pkts[j], pkts[i] })
	return pkts[:min(len(pkts), expressionPackets)]
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

// openExpression decides the packets of a file, in so many frames, without end, a batch a step. The engine has
// parsed the batches before, unless -as is "bare".
func openExpression(o roleOptions) (roleWork, error) {
	if len(o.args) != 3 {
		return roleWork{}, errors.New("which packets, how many frames, which expression?")
	}
	pkts, want, err := readExpression(o.args[0])
	if err != nil {
		return roleWork{}, err
	}
	frames, err := strconv.Atoi(o.args[1])
	if err != nil {
		return roleWork{}, err
	}
	f, err := expr.Compile(o.args[2], expr.LinkEthernet, expr.Options{})
	if err != nil {
		return roleWork{}, err
	}
	batches, err := packetBatches(pkts, frames)
	if err != nil {
		return roleWork{}, err
	}
	if o.as != "bare" {
		if err := parse(batches); err != nil {
			return roleWork{}, err
		}
	}
	r := expressionRun{m: f.NewMatcher(), batches: batches}
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

// packetBatches lays packets into frames on huge pages, 256 a batch, again from the first where there are fewer.
func packetBatches(pkts [][]byte, frames int) (all []*packet.Batch, err error) {
	const hugePage = 2 << 20
	mem, err := unix.Mmap(-1, 0, expressionFrame*frames+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	mem = mem[-uintptr(unsafe.Pointer(&mem[0]))%hugePage:]
	_ = unix.Madvise(mem[:expressionFrame*frames], unix.MADV_HUGEPAGE) // slower without
	arena := &packet.Arena{Mem: mem[:expressionFrame*frames], Shift: 11}
	for i := range frames {
		if i%packet.BatchSize == 0 {
			all = append(all, packet.NewBatch(arena, packet.BatchSize))
		}
		p := pkts[i%len(pkts)]
		copy(arena.Mem[i*expressionFrame:], p)
		all[len(all)-1].Append(packet.Desc{Off: uint32(i * expressionFrame), Len: uint16(len(p))})
	}
	return all, nil
}

// parse does the engine's header pass over batches.
func parse(batches []*packet.Batch) error {
	engine := gpukern.NewCPU(gpukern.Config{})
	for _, b := range batches {
		if err := engine.Submit(b); err != nil {
			return err
		}
		engine.Poll(make([]*packet.Batch, 1))
	}
	return engine.Close()
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
