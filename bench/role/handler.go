package role

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/l4/control"
	"github.com/millrace/millrace/l4/datapath"
	"github.com/millrace/millrace/node/nexthop"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// Names of a gateway's two devices.
const FrontDev, BackDev = "front", "back"

// inMemory is the gateway of a configuration without devices: engine and handler over batches whose
// packets this program writes. Port 0 leads to clients, port 1 to backends.
type inMemory struct {
	gate   *control.Gateway
	arena  *ring.Arena
	engine *gpukern.CPU
	first  []byte // of the stream
	stream Stream
	before memory // of this process, with everything but the gateway
}

const MemoryMAC = "02:00:00:00:00:f0" // of port 0

func openInMemory(o roleOptions) (*inMemory, error) {
	if len(o.args) != 1 {
		return nil, errors.New("which configuration?")
	}
	cfg, err := config.Load(o.args[0])
	if err != nil {
		return nil, err
	}
	g := &inMemory{engine: newGatewayEngine(), stream: o.stream}
	if g.arena, err = ring.NewArena(ring.ArenaConfig{Frames: memoryFrames}); err != nil {
		return nil, err
	}
	if err := g.open(cfg, o.size); err != nil {
		return nil, errors.Join(err, g.arena.Close())
	}
	return g, nil
}

// memoryFrames is the size of the arena.
const memoryFrames = 8192

func (g *inMemory) open(cfg *config.Config, size int) (err error) {
	g.stream.MAC = MemoryMAC
	if g.first, err = g.stream.Probe(size); err != nil {
		return err
	}
	hops := nexthop.Static{}
	for _, s := range cfg.Services {
		for _, b := range s.Backends {
			for _, at := range b.Addresses {
				hops[at.Addr()] = nexthop.Hop{MAC: [6]byte{2, 0, 0, 0, 0, 0xb0}, Dev: 1, State: nexthop.Ready}
			}
		}
	}
	ports := []datapath.Device{{Name: FrontDev, MAC: [6]byte{2, 0, 0, 0, 0, 0xf0}}, {Name: BackDev, MAC: [6]byte{2, 0, 0, 0, 0, 0xf1}}}
	g.before = memoryNow()
	g.gate, err = control.Open(cfg, control.Options{Devices: ports, Resolver: hops})
	return err
}

// newGatewayEngine does what the gateway's loops ask for.
func newGatewayEngine() *gpukern.CPU {
	return gpukern.NewCPU(gpukern.Config{Ops: gpukern.OpParse | gpukern.OpChecksum})
}

func (g *inMemory) close() error {
	return errors.Join(g.gate.Close(), g.engine.Close(), g.arena.Close())
}

// openHandler plays the gateway's handler, and the engine before it, over batches in memory. Writing
// the packets is not in what ownNanos counts. -as says which packets: "known" are those of connections that
// it has opened before it is ready, "new" those of ever new flows.
func openHandler(o roleOptions) (roleWork, error) {
	g, err := openInMemory(o)
	if err != nil {
		return roleWork{}, err
	}
	pool, err := g.arena.Cut(0)
	if err != nil {
		return roleWork{}, errors.Join(err, g.close())
	}
	h := &handlerBench{inMemory: g, handler: g.gate.Handlers()[0]}
	for range chunk {
		b := packet.NewBatch(g.arena.View(), stack.DefaultBurst)
		for range stack.DefaultBurst {
			off, _ := pool.Get()
			b.Append(packet.Desc{Off: off})
		}
		h.batches = append(h.batches, b)
	}
	counts := map[string]uint64{}
	if o.as != "new" {
		if err := h.openAll(); err != nil {
			return roleWork{}, errors.Join(err, g.close())
		}
		after, before := memoryNow(), g.before
		counts["rss"], counts["heap"] = after.rss-min(after.rss, before.rss), after.heap-min(after.heap, before.heap)
	}
	return roleWork{
		version: "engine and handler, batches of " + strconv.Itoa(stack.DefaultBurst) + " in memory",
		step:    h.step,
		counts: func() (map[string]uint64, error) {
			c := maps.Clone(counts)
			c["packets"], c["refused"], c[OwnNanos] = h.packets.Load(), h.dropped.Load(), uint64(h.spent.Load())
			return c, nil
		},
		close: g.close,
	}, nil
}

// ownNanos counts the CPU time of engine and handler.
const OwnNanos = "own_ns"

// chunk is the number of batches that are written, and then handled, at once: reading the clock costs a packet.
const chunk = 8

// handlerBench is a handler and the batches that it gets again and again.
type handlerBench struct {
	*inMemory
	handler          *datapath.Handler
	batches          []*packet.Batch
	done             [1]*packet.Batch
	n                uint64 // of the next packet
	packets, dropped atomic.Uint64
	spent            atomic.Int64 // CPU nanoseconds
	tick             clock.Time
}

// write makes batch b new packets by set; d keeps only its frame.
func (h *handlerBench) write(b *packet.Batch, set func(p []byte)) {
	for i := range b.D {
		b.D[i] = packet.Desc{Off: b.D[i].Off, Len: uint16(len(h.first))}
		p := b.Bytes(i)
		copy(p, h.first)
		set(p)
	}
}

// handle passes the batches through engine and handler and returns how many packets were not forwarded.
func (h *handlerBench) handle() (refused int, err error) {
	for _, b := range h.batches {
		if err := h.engine.Submit(b); err != nil {
			return 0, err
		}
		if h.engine.Poll(h.done[:]) != 1 {
			return 0, errors.New("the engine kept a batch")
		}
		now := stack.Now()
		h.handler.Handle(now, b)
		if now >= h.tick {
			h.tick = h.handler.Tick(now)
		}
	}
	for _, b := range h.batches {
		for i := range b.D {
			if b.D[i].Verdict != packet.Forward {
				refused++
			}
		}
	}
	return refused, nil
}

func (h *handlerBench) step() error {
	for _, b := range h.batches {
		h.write(b, func(p []byte) { h.stream.Vary(p, h.first, h.n); h.n++ })
	}
	begin := clockNanos(unix.CLOCK_THREAD_CPUTIME_ID)
	refused, err := h.handle()
	if err != nil {
		return err
	}
	h.spent.Add(clockNanos(unix.CLOCK_THREAD_CPUTIME_ID) - begin)
	h.packets.Add(chunk * stack.DefaultBurst)
	h.dropped.Add(uint64(refused))
	return nil
}

// openAll opens the connection of each flow to a service, and of each service: with many of both that
// would be too many, so one of them is 1.
func (h *handlerBench) openAll() error {
	if h.stream.Flows > 1 && h.stream.Services > 1 {
		return errors.New("many flows or many services, not both")
	}
	total := h.stream.Flows * h.stream.Services
	for next := uint(0); next < total; {
		for _, b := range h.batches {
			h.write(b, func(p []byte) {
				n := min(next, total-1)
				h.stream.Set(p, h.first, uint32(n%h.stream.Flows), uint32(n%h.stream.Services))
				next++
			})
		}
		if refused, err := h.handle(); err != nil || refused > 0 {
			return errors.Join(err, fmt.Errorf("%d packets of %d were refused: %v", refused, next, h.reasons()))
		}
	}
	return nil
}

// reasons counts the verdicts of the last batches.
func (h *handlerBench) reasons() map[string]int {
	why := map[string]int{}
	for _, b := range h.batches {
		for i := range b.D {
			why[b.D[i].Verdict.String()]++
		}
	}
	return why
}

// memory is what this process has.
type memory struct{ rss, heap uint64 }

// memoryNow returns it after giving back what is free.
func memoryNow() (m memory) {
	debug.FreeOSMemory()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m.heap = s.HeapAlloc
	if f := strings.Fields(harness.ReadFile("/proc/self/statm")); len(f) > 1 {
		pages, _ := strconv.ParseUint(f[1], 10, 64)
		m.rss = pages * uint64(os.Getpagesize())
	}
	return m
}
