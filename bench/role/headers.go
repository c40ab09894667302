package role

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/millrace/millrace/bench/harness"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/pmd/pcap"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/stack"
)

// openHeaders plays the contestants of the header measures, over the captures in its arguments. -as
// says which: "replay" is driver, engine and release, the others work on batches in memory.
func openHeaders(o roleOptions) (roleWork, error) {
	h, err := newHeaders(o)
	if err != nil {
		return roleWork{}, err
	}
	step, ok := map[string]func(){
		"replay": h.replay, "engine": h.submit, "reference": h.reference,
		"layers": h.layers, "checked": h.checked, "packets": h.newPacket,
	}[o.as]
	if !ok {
		return roleWork{}, errors.Join(fmt.Errorf("no contestant %q", o.as), h.close())
	}
	allocs := uint64(testing.AllocsPerRun(100, step))
	return roleWork{
		version: h.version(o.as),
		step:    func() error { step(); h.shown.Store(h.n); return h.err },
		counts: func() (map[string]uint64, error) {
			return map[string]uint64{"packets": h.shown.Load(), "allocs": allocs}, nil
		},
		close: h.close,
	}, nil
}

// headers is an engine with traffic: a driver that replays it without end, and the packets of one
// lap as batches.
type headers struct {
	arena    *ring.Arena
	pool     *ring.Pool
	drv      *pcap.Driver
	engine   *gpukern.CPU
	ops      gpukern.Ops
	lists    kernref.Lists
	batches  []*packet.Batch // of one lap; borrowed from the driver
	at       int             // next of batches
	rx       *packet.Batch
	done     [1]*packet.Batch
	gopacket *decoder
	n        uint64 // packets
	shown    atomic.Uint64
	err      error
}

// headerBatch is the number of packets in a batch.
const headerBatch = packet.BatchSize

// newHeaders reads the captures. Frames of 64 KiB hold several packets each and every packet whole.
func newHeaders(o roleOptions) (*headers, error) {
	h := &headers{lists: headerLists(), ops: gpukern.Ops(o.ops), gopacket: newDecoder()}
	tables, err := headerTables()
	if err != nil {
		return nil, err
	}
	h.engine = gpukern.NewCPU(gpukern.Config{Ops: h.ops, Tables: tables})
	if h.arena, err = ring.NewArena(ring.ArenaConfig{Frames: 2048, FrameSize: 65536}); err != nil {
		return nil, err
	}
	if h.pool, err = h.arena.Cut(0); err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.drv, err = pcap.Open(h.pool, pcap.Config{Files: o.args, Mode: pcap.Resident, Laps: -1, DropLong: true})
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	h.rx = packet.NewBatch(h.arena.View(), headerBatch)
	if err := h.readLap(o.args); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

// readLap keeps the batches of one lap: those of a second driver over the same captures.
func (h *headers) readLap(files []string) error {
	drv, err := pcap.Open(h.pool, pcap.Config{Files: files, Mode: pcap.Resident, DropLong: true})
	if err != nil {
		return err
	}
	for {
		b := packet.NewBatch(h.arena.View(), headerBatch)
		n, err := drv.Rx(0, b)
		if n > 0 {
			h.batches = append(h.batches, b)
		}
		switch {
		case errors.Is(err, io.EOF) && len(h.batches) > 0:
			return nil
		case err != nil:
			return err
		case n == 0:
			return errors.New("the captures end without an end")
		}
	}
}

func (h *headers) close() error {
	var err error
	if h.drv != nil {
		err = h.drv.Close()
	}
	return errors.Join(err, h.engine.Close())
}

func (h *headers) version(as string) string {
	switch as {
	case "layers", "checked", "packets":
		return "github.com/gopacket/gopacket " + harness.ModuleVersion("github.com/gopacket/gopacket")
	case "reference":
		return "one packet at a time, bit by bit, rule by rule"
	}
	i := h.engine.Info()
	return fmt.Sprintf("engine %s (%s), %v, %d rules, %d routes", i.Name, i.Device, i.Ops, TableRules, TableRoutes)
}

// next returns the batches of the lap in turn, without end.
func (h *headers) next() *packet.Batch {
	b := h.batches[h.at]
	if h.at++; h.at == len(h.batches) {
		h.at = 0
	}
	h.n += uint64(b.Len())
	return b
}

// submit runs the engine over one batch in memory.
func (h *headers) submit() { h.through(h.next()) }

func (h *headers) through(b *packet.Batch) {
	if err := h.engine.Submit(b); err != nil {
		h.err = err
	} else if h.engine.Poll(h.done[:]) != 1 {
		h.err = errors.New("the engine kept a batch")
	}
}

// replay receives one batch, runs the engine over it and hands it back: what `millrace replay` does.
func (h *headers) replay() {
	n, err := h.drv.Rx(stack.Now(), h.rx)
	if err != nil {
		h.err = err
		return
	}
	h.n += uint64(n)
	h.through(h.rx)
	h.drv.Release(h.rx)
}

func (h *headers) reference() { kernref.Reference(h.next(), h.ops, h.lists) }

// decoder is gopacket at its fastest: decoders that are made once and used again.
type decoder struct {
	eth     layers.Ethernet
	tag     layers.Dot1Q
	ip4     layers.IPv4
	ip6     layers.IPv6
	ext     layers.IPv6ExtensionSkipper
	tcp     layers.TCP
	udp     layers.UDP
	icmp    layers.ICMPv4
	icmp6   layers.ICMPv6
	arp     layers.ARP
	payload gopacket.Payload
	found   []gopacket.LayerType
	parser  *gopacket.DecodingLayerParser
	hash    uint64 // of the last flow, so that its computation counts
}

func newDecoder() *decoder {
	d := new(decoder)
	d.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet,
		&d.eth, &d.tag, &d.ip4, &d.ip6, &d.ext, &d.tcp, &d.udp, &d.icmp, &d.icmp6, &d.arp, &d.payload)
	d.parser.IgnoreUnsupported = true
	return d
}

// layers decodes a batch and nothing more.
func (h *headers) layers() {
	b := h.next()
	for i := range b.D {
		// What it cannot decode is its finding, not a failure of the run.
		_ = h.gopacket.parser.DecodeLayers(b.Bytes(i), &h.gopacket.found)
	}
}

// checked decodes, verifies the checksums and hashes the flow: what parse, checksum and hash are.
func (h *headers) checked() {
	b := h.next()
	for i := range b.D {
		_ = h.gopacket.parser.DecodeLayers(b.Bytes(i), &h.gopacket.found)
		h.gopacket.check()
	}
}

func (d *decoder) check() {
	var network gopacket.NetworkLayer
	for _, t := range d.found {
		switch t {
		case layers.LayerTypeIPv4:
			network = &d.ip4
			_, _ = d.ip4.VerifyChecksum()
		case layers.LayerTypeIPv6:
			network = &d.ip6
		case layers.LayerTypeTCP:
			_ = d.tcp.SetNetworkLayerForChecksum(network)
			_, _ = d.tcp.VerifyChecksum()
			d.hash = d.tcp.TransportFlow().FastHash()
		case layers.LayerTypeUDP:
			_ = d.udp.SetNetworkLayerForChecksum(network)
			_, _ = d.udp.VerifyChecksum()
			d.hash = d.udp.TransportFlow().FastHash()
		case layers.LayerTypeICMPv4:
			_, _ = d.icmp.VerifyChecksum()
		case layers.LayerTypeICMPv6:
			_ = d.icmp6.SetNetworkLayerForChecksum(network)
			_, _ = d.icmp6.VerifyChecksum()
		}
	}
	if network != nil {
		d.hash ^= network.NetworkFlow().FastHash()
	}
}

// newPacket is gopacket at its most usual: a new packet with all of its layers.
func (h *headers) newPacket() {
	b := h.next()
	for i := range b.D {
		gopacket.NewPacket(b.Bytes(i), layers.LayerTypeEthernet, gopacket.NoCopy)
	}
}
