package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/internal/kernref"
	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/ring"
	"github.com/millrace/millrace/wire"
)

// Mismatch is a field of a packet that two of the engine, its reference and the decoder see
// differently.
type Mismatch struct {
	Path   string `json:"path"`
	Record int64  `json:"record"` // in the file, from 1
	Field  string `json:"field"`
	Engine string `json:"engine"`
	Other  string `json:"other"`
	By     string `json:"by"` // who differs from the engine: "reference" or "gopacket"
}

// Verification is the result of Verify.
type Verification struct {
	Packets    uint64     `json:"packets"`    // compared
	Skipped    uint64     `json:"skipped"`    // records that carry no Ethernet or IP, or pass 64 KiB
	Decoded    uint64     `json:"decoded"`    // of the packets: with an IP header that gopacket decoded too
	Mismatches []Mismatch `json:"mismatches"` // at most MaxMismatches
	Count      uint64     `json:"mismatch_count"`
}

// MaxMismatches is the number of mismatches that are kept; more are counted.
const MaxMismatches = 100

// verifyFrame is the frame size of a verification: every packet lies in one piece.
const verifyFrame = 16 // bits

// Verify holds the engine against its slow reference on every field and match of every packet of the
// files, and against gopacket on all that both have parsed. Of cfg it takes Files, Rules, Patterns, Routes
// and Engine. Its error joins those of files that cannot be read to their end; their packets before count.
// When ctx ends it ends early, with ctx's error. Without an engine or memory there is no Verification.
func Verify(ctx context.Context, cfg Config) (*Verification, error) {
	v, err := newVerifier(&cfg)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range cfg.Files {
		if ctx.Err() != nil {
			break
		}
		if err := v.file(ctx, path); err != nil {
			errs = append(errs, err)
		}
	}
	return &v.Verification, errors.Join(append(errs, ctx.Err(), v.close())...)
}

type verifier struct {
	Verification
	arena   *ring.Arena
	engine  gpukern.Engine
	ops     gpukern.Ops
	lists   kernref.Lists
	batch   *packet.Batch
	again   *packet.Batch // the same packets, for the reference
	records []int64
	path    string
}

func newVerifier(cfg *Config) (*verifier, error) {
	const packets = packet.BatchSize
	arena, err := ring.NewArena(ring.ArenaConfig{Frames: packets, FrameSize: 1 << verifyFrame})
	if err != nil {
		return nil, err
	}
	v := &verifier{arena: arena, batch: packet.NewBatch(arena.View(), packets), again: packet.NewBatch(arena.View(), packets)}
	v.Mismatches = []Mismatch{}
	if cfg.Rules != nil {
		for _, r := range cfg.Rules.Rules() {
			v.lists.Rules = append(v.lists.Rules, r.Match)
		}
	}
	if cfg.Routes != nil {
		v.lists.Routes = cfg.Routes.List()
	}
	if cfg.Patterns != nil {
		v.lists.Literals = cfg.Patterns.List()
	}
	ec := engineConfig(cfg.Rules, cfg.Patterns, cfg.Routes)
	v.ops = ec.Ops
	open := cfg.Engine
	if open == nil {
		open = openCPU
	}
	if v.engine, err = open(ec, arena); err != nil {
		return nil, errors.Join(err, arena.Close())
	}
	return v, nil
}

func (v *verifier) close() error { return errors.Join(v.engine.Close(), v.arena.Close()) }

// file compares the packets of one file.
func (v *verifier) file(ctx context.Context, path string) error {
	r, err := capture.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	v.path = path
	var made []byte
	for ctx.Err() == nil {
		rec, err := r.Next()
		if err != nil {
			if bad := v.compare(); bad != nil {
				return bad
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, made)
		if err != nil || len(frame) == 0 || len(frame) > 65535 {
			v.Skipped++
			continue
		}
		if rec.LinkType != capture.LinkTypeEthernet {
			made = frame
		}
		frame = capture.Readable(frame, len(frame)+rec.Len-len(rec.Data))
		if err := v.add(frame, r.Records()); err != nil {
			return err
		}
	}
	return v.compare()
}

// add copies a packet into the batch and compares the batch when it is full.
func (v *verifier) add(frame []byte, record int64) error {
	off := uint32(v.batch.Len()) << verifyFrame
	copy(v.batch.Arena.Mem[off:], frame)
	v.batch.Append(packet.Desc{Off: off, Len: uint16(len(frame))})
	v.records = append(v.records, record)
	if v.batch.Room() == 0 {
		return v.compare()
	}
	return nil
}

// compare runs the three over the batch and empties it. Its error is the engine's.
func (v *verifier) compare() error {
	v.again.D = append(v.again.D[:0], v.batch.D...)
	kernref.Reference(v.again, v.ops, v.lists)
	if err := v.submit(); err != nil {
		v.batch.Reset()
		v.records = v.records[:0]
		return err
	}
	v.matches()
	for i := range v.batch.D {
		v.Packets++
		v.fields(i, "reference", descFields(&v.batch.D[i]), descFields(&v.again.D[i]))
		v.decoded(i)
	}
	v.batch.Reset()
	v.records = v.records[:0]
	return nil
}

// patience is the time that an engine may take for a batch.
const patience = 10 * time.Second

// submit passes the batch through the engine.
func (v *verifier) submit() error {
	if err := v.engine.Submit(v.batch); err != nil {
		return err
	}
	var done [1]*packet.Batch
	for begin := time.Now(); v.engine.Poll(done[:]) == 0; {
		if time.Since(begin) > patience {
			return fmt.Errorf("the engine keeps a batch for more than %v", patience)
		}
	}
	return nil
}

// matches notes where the matches of the batch differ: those that the engine has first.
func (v *verifier) matches() {
	ours, theirs := v.batch.Matches, v.again.Matches
	for i := range max(len(ours), len(theirs)) {
		a, b := "none", "none"
		at := len(v.records) - 1
		if i < len(theirs) {
			b, at = matchText(theirs[i]), int(theirs[i].D)
		}
		if i < len(ours) {
			a, at = matchText(ours[i]), min(at, int(ours[i].D))
		}
		v.fields(at, "reference", []field{{"match", a}}, []field{{"match", b}})
		if a != b {
			return // what follows is moved
		}
	}
}

func matchText(m packet.Match) string {
	return fmt.Sprintf("rule %d, packet %d, to byte %d", m.Rule, m.D, m.End)
}

// decoded compares packet i with what gopacket makes of it.
func (v *verifier) decoded(i int) {
	p, d := v.batch.Bytes(i), &v.batch.D[i]
	g := capture.Decode(p)
	if d.Flags&(packet.FlagIPv4|packet.FlagIPv6) != 0 && g.L3 != 0 {
		v.Decoded++
	}
	ours, theirs := common(p, d, &g)
	v.fields(i, "gopacket", ours, theirs)
}

// fields notes where two lists of the same fields differ.
func (v *verifier) fields(i int, by string, ours, theirs []field) {
	for k, f := range ours {
		if f.value == theirs[k].value {
			continue
		}
		v.Count++
		if len(v.Mismatches) < MaxMismatches {
			v.Mismatches = append(v.Mismatches, Mismatch{v.path, v.records[i], f.name, f.text(), theirs[k].text(), by})
		}
	}
}

// field is a named value of a packet that can be compared.
type field struct {
	name  string
	value any
}

func (f field) text() string {
	if flags, ok := f.value.(packet.Flags); ok {
		return fmt.Sprintf("%#04x", uint16(flags))
	}
	return fmt.Sprint(f.value)
}

// descFields lists every field that the header pass writes or must leave alone.
func descFields(d *packet.Desc) []field {
	return []field{
		{"off", d.Off},
		{"len", d.Len},
		{"port", d.Port},
		{"l3", d.L3},
		{"l4", d.L4},
		{"payload", d.Payload},
		{"hash", d.Hash},
		{"flow", d.Flow},
		{"rule", d.Rule},
		{"next_hop", d.NextHop},
		{"stamp", d.Stamp},
		{"flags", d.Flags},
		{"proto", d.Proto},
		{"verdict", d.Verdict},
	}
}

// common lists the fields that the engine and gopacket have both parsed. Packets that the engine
// calls malformed are left out: gopacket overlooks contradictions that the engine must not. So are
// headers that only one of the two looks into, and those with options that gopacket refuses.
func common(p []byte, d *packet.Desc, g *capture.Decoded) (ours, theirs []field) {
	add := func(name string, a, b any) {
		ours, theirs = append(ours, field{name, a}), append(theirs, field{name, b})
	}
	if d.Flags&(packet.FlagMalformed|packet.FlagTruncated) == 0 && !(g.Refused && d.Flags.Has(packet.FlagOptions)) {
		add("ip", d.Flags&(packet.FlagIPv4|packet.FlagIPv6) != 0, g.L3 != 0)
	}
	if d.Flags&(packet.FlagIPv4|packet.FlagIPv6) == 0 || d.Flags.Has(packet.FlagMalformed) || g.L3 == 0 {
		return ours, theirs
	}
	src, dst := addresses(p, d)
	add("l3", int(d.L3), g.L3)
	add("vlan", d.Flags.Has(packet.FlagVLAN), g.Tags > 0)
	add("src", src, g.Src)
	add("dst", dst, g.Dst)
	add("fragment", d.Flags.Has(packet.FlagFragment), g.Fragment)
	add("later fragment", d.Flags.Has(packet.FlagFragmentRest), g.LaterFragment)
	if d.Flags.Has(packet.FlagIPv4) && g.IPSum != capture.NotVerified {
		add("ip checksum", d.Flags.Has(packet.FlagIPChecksumOK), g.IPSum == capture.Right)
	}
	if g.L4 != 0 && d.Flags&packet.FlagTruncated == 0 {
		add("has l4", d.L4 != 0, true)
	}
	if g.L4 == 0 || d.L4 == 0 {
		return ours, theirs
	}
	add("proto", d.Proto, g.Proto)
	add("l4", int(d.L4), g.L4)
	if g.Payload != 0 {
		add("payload", int(d.Payload), g.Payload)
	}
	if hasPorts(d) {
		add("src port", binary.BigEndian.Uint16(p[d.L4:]), g.SrcPort)
		add("dst port", binary.BigEndian.Uint16(p[d.L4+2:]), g.DstPort)
	}
	if g.L4Sum != capture.NotVerified && summed(p, d) {
		add("l4 checksum", d.Flags.Has(packet.FlagL4ChecksumOK), g.L4Sum == capture.Right)
	}
	return ours, theirs
}

// summed reports whether a transport checksum is there to be verified.
func summed(p []byte, d *packet.Desc) bool {
	const unknown = packet.FlagL4NoChecksum | packet.FlagFragment | packet.FlagTruncated
	return d.Proto != wire.ProtoSCTP && d.Flags&unknown == 0 && !rerouted(p, d)
}

func addresses(p []byte, d *packet.Desc) (src, dst netip.Addr) {
	if d.Flags.Has(packet.FlagIPv4) {
		h := wire.IPv4(p[d.L3:])
		return h.SrcAddr(), h.DstAddr()
	}
	h := wire.IPv6(p[d.L3:])
	return h.SrcAddr(), h.DstAddr()
}
