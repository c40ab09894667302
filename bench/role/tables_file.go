package role

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/gpukern/tuple"
)

// fileHead begins a file of a table and questions with the answers that are wanted, for contestants in C
// (peers/rte_table.h) and in Go alike. Entries and questions follow, little-endian.
type fileHead struct{ Family, Entries, Questions, Pad uint32 }

// Rules of IPv4 and their questions.
type (
	fileRule struct {
		Src, Dst         uint32
		SrcPorts         [2]uint16
		DstPorts         [2]uint16
		SrcBits, DstBits uint8
		Proto, Pad       uint8
	}
	fileFlow struct {
		Src, Dst             uint32
		SrcPort, DstPort, To uint16
		Proto, Pad           uint8
	}
)

// Routes and their questions. IPv4 addresses lie in the upper half of Hi.
type (
	fileRoute struct {
		Hi, Lo    uint64
		Bits, Hop uint32
	}
	fileAddr struct {
		Hi, Lo  uint64
		To, Pad uint32
	}
)

func writeTable[E, Q any](path string, family int, entries []E, questions []Q) error {
	var out bytes.Buffer
	head := fileHead{Family: uint32(family), Entries: uint32(len(entries)), Questions: uint32(len(questions))}
	for _, part := range []any{head, entries, questions} {
		if err := binary.Write(&out, binary.LittleEndian, part); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

func readTable[E, Q any](path string) (family int, entries []E, questions []Q, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, nil, nil, err
	}
	in := bytes.NewReader(data)
	var head fileHead
	if err := binary.Read(in, binary.LittleEndian, &head); err != nil {
		return 0, nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	entries, questions = make([]E, head.Entries), make([]Q, head.Questions)
	for _, part := range []any{entries, questions} {
		if err := binary.Read(in, binary.LittleEndian, part); err != nil {
			return 0, nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return int(head.Family), entries, questions, nil
}

// WriteRules writes n rules of a shape and flows through them. What is wanted is what our list says: a peer that
// disagrees does not run.
func WriteRules(path, shape string, n, flows int) error {
	make := shapes[shape]
	if make == nil {
		return fmt.Errorf("no rules of shape %q", shape)
	}
	rng := rand.New(rand.NewPCG(uint64(n), 11))
	return writeList(path, make(rng, n), rng, flows)
}

func writeList(path string, rules []acl.Rule, rng *rand.Rand, flows int) error {
	acl, err := acl.Compile(rules)
	if err != nil {
		return err
	}
	entries, questions := make([]fileRule, len(rules)), make([]fileFlow, flows)
	for i := range entries {
		entries[i] = ruleEntry(&rules[i])
	}
	tuples, found := make([]tuple.Tuple, flows), make([]uint16, flows)
	for i := range questions {
		src, dst, proto := flowThrough(rng, rules)
		tuples[i] = tuple.New(src, dst, proto)
		questions[i] = fileFlow{Src: word(src.Addr()), Dst: word(dst.Addr()), SrcPort: src.Port(), DstPort: dst.Port(), Proto: proto}
	}
	acl.Match(tuples, true, found)
	for i := range questions {
		questions[i].To = found[i]
	}
	return writeTable(path, 4, entries, questions)
}

func ruleEntry(r *acl.Rule) fileRule {
	e := fileRule{SrcPorts: [2]uint16{0, 65535}, DstPorts: [2]uint16{0, 65535}, Proto: r.Proto}
	e.Src, e.SrcBits = word(r.Src.Addr()), uint8(r.Src.Bits())
	e.Dst, e.DstBits = word(r.Dst.Addr()), uint8(r.Dst.Bits())
	if lo, hi, ok := r.SrcPorts.Range(); ok {
		e.SrcPorts = [2]uint16{lo, hi}
	}
	if lo, hi, ok := r.DstPorts.Range(); ok {
		e.DstPorts = [2]uint16{lo, hi}
	}
	return e
}

// rule is the inverse of ruleEntry.
func (e *fileRule) rule() acl.Rule {
	r := acl.Rule{Src: prefixOf(e.Src, int(e.SrcBits)), Dst: prefixOf(e.Dst, int(e.DstBits)), Proto: e.Proto}
	all := [2]uint16{0, 65535}
	if e.SrcPorts != all {
		r.SrcPorts = acl.PortRange(e.SrcPorts[0], e.SrcPorts[1])
	}
	if e.DstPorts != all {
		r.DstPorts = acl.PortRange(e.DstPorts[0], e.DstPorts[1])
	}
	return r
}

// word returns an IPv4 address as a number.
func word(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// WriteRoutes writes routes and addresses inside of them, each route as likely as any other.
func WriteRoutes(path string, family int, routes []lpm.Route, addrs int) error {
	rng := rand.New(rand.NewPCG(uint64(len(routes)), 12))
	table, err := lpm.Compile(routes)
	if err != nil {
		return err
	}
	entries, questions := make([]fileRoute, len(routes)), make([]fileAddr, addrs)
	for i, r := range routes {
		e := &entries[i]
		e.Hi, e.Lo = addrWords(r.Prefix.Addr())
		e.Bits, e.Hop = uint32(r.Prefix.Bits()), uint32(r.NextHop)
	}
	for i := range questions {
		a := inside(rng, routes[rng.IntN(len(routes))].Prefix)
		q := &questions[i]
		q.Hi, q.Lo = addrWords(a)
		q.To = uint32(table.Lookup(a))
	}
	return writeTable(path, family, entries, questions)
}

func addrWords(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		return uint64(word(a)) << 32, 0
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// route is the inverse of what writeRoutes does.
func (e *fileRoute) route(family int) lpm.Route {
	a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(e.Hi>>32))))
	if family == 6 {
		a = netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, e.Hi), e.Lo)))
	}
	return lpm.Route{Prefix: netip.PrefixFrom(a, int(e.Bits)), NextHop: uint16(e.Hop)}
}
