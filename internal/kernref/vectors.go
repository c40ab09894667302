package kernref

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/gpukern"
	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/gpukern/literal"
	"github.com/millrace/millrace/gpukern/lpm"
	"github.com/millrace/millrace/packet"
)

// Vectors are packets and what every engine must find in them, with the tables to look up. They are
// read from text, so that the same file serves Go, C and CUDA:
//
//	rule SRC DST SPORTS DPORTS PROTO      prefixes, N-M and a number; "any" for anything
//	route PREFIX NEXTHOP
//	packet HEX[+HEX...]                   one piece for each descriptor
//	find L3 L4 PAYLOAD PROTO FLAGS HASH RULE NEXTHOP    flags and hash in hexadecimal
//	literal RULE exact|nocase HEX
//	match PIECE RULE END                  in the packet before, at most DefaultMatchLimit and one with rule 0
//	ops NAME[+NAME...]                    what the engine does; without it parse, checksum, hash, acl, lpm and literals
//
// "#" begins a comment. The hash key is gpukern.DefaultHashKey.
type Vectors struct {
	Lists   Lists
	Packets [][][]byte // their pieces
	Finds   []packet.Desc
	Matches [][]packet.Match // of each packet; D counts its pieces
	Ops     gpukern.Ops      // 0 is gpukern.OpsHeader and gpukern.OpLiterals
}

// ReadVectors reads vectors from text.
func ReadVectors(in io.Reader) (*Vectors, error) {
	v := new(Vectors)
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		text, _, _ := strings.Cut(sc.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if err := v.line(words[0], words[1:]); err != nil {
			return nil, fmt.Errorf("vectors: line %d: %w", n, err)
		}
	}
	return v, sc.Err()
}

// line reads one line.
func (v *Vectors) line(kind string, words []string) error {
	args := strings.Join(words, " ")
	switch kind {
	case "rule":
		return v.rule(words)
	case "route":
		var prefix string
		var r lpm.Route
		if _, err := fmt.Sscan(args, &prefix, &r.NextHop); err != nil {
			return err
		}
		v.Lists.Routes = append(v.Lists.Routes, r)
		return parsePrefix(prefix, &v.Lists.Routes[len(v.Lists.Routes)-1].Prefix)
	case "packet":
		pieces, err := piecesOf(args)
		v.Packets, v.Matches = append(v.Packets, pieces), append(v.Matches, nil)
		return err
	case "ops":
		return v.ops(args)
	case "find":
		var d packet.Desc
		_, err := fmt.Sscanf(args, findFormat, &d.L3, &d.L4, &d.Payload, &d.Proto, &d.Flags, &d.Hash, &d.Rule, &d.NextHop)
		v.Finds = append(v.Finds, d)
		return err
	case "literal":
		return v.literal(words)
	case "match":
		if len(v.Matches) == 0 {
			return errors.New("a match before any packet")
		}
		var m packet.Match
		_, err := fmt.Sscanf(args, matchFormat, &m.D, &m.Rule, &m.End)
		last := &v.Matches[len(v.Matches)-1]
		*last = append(*last, m)
		return err
	default:
		return fmt.Errorf("%q is neither rule, route, literal, ops, packet, find nor match", kind)
	}
}

const (
	findFormat  = "%d %d %d %d %04x %08x %d %d"
	matchFormat = "%d %d %d"
)

// piecesOf reads the bytes of a packet's descriptors.
func piecesOf(text string) (pieces [][]byte, err error) {
	for piece := range strings.SplitSeq(text, "+") {
		b, err := hex.DecodeString(piece)
		if err != nil {
			return nil, err
		}
		pieces = append(pieces, b)
	}
	return pieces, nil
}

// ops reads the names of operations, as gpukern.Ops.String writes them.
func (v *Vectors) ops(text string) error {
	for name := range strings.SplitSeq(text, "+") {
		op := gpukern.OpParse
		for op.String() != name {
			if op <<= 1; op.String() == "" {
				return fmt.Errorf("no operation is named %q", name)
			}
		}
		v.Ops |= op
	}
	return nil
}

// literal reads the words of a literal.
func (v *Vectors) literal(words []string) error {
	var p literal.Pattern
	var how string
	if _, err := fmt.Sscanf(strings.Join(words, " "), "%d %s %x", &p.Rule, &how, &p.Bytes); err != nil {
		return err
	}
	if p.NoCase = how == "nocase"; !p.NoCase && how != "exact" {
		return fmt.Errorf("%q is neither exact nor nocase", how)
	}
	v.Lists.Literals = append(v.Lists.Literals, p)
	return nil
}

// rule reads the words of a rule.
func (v *Vectors) rule(words []string) error {
	if len(words) != 5 {
		return fmt.Errorf("a rule has 5 words, not %d", len(words))
	}
	var r acl.Rule
	for i, p := range []*netip.Prefix{&r.Src, &r.Dst} {
		if err := parsePrefix(words[i], p); err != nil {
			return err
		}
	}
	for i, p := range []*acl.Ports{&r.SrcPorts, &r.DstPorts} {
		if words[2+i] == "any" {
			continue
		}
		var lo, hi uint16
		if _, err := fmt.Sscanf(words[2+i], "%d-%d", &lo, &hi); err != nil {
			return err
		}
		*p = acl.PortRange(lo, hi)
	}
	if words[4] != "any" {
		if _, err := fmt.Sscan(words[4], &r.Proto); err != nil {
			return err
		}
	}
	v.Lists.Rules = append(v.Lists.Rules, r)
	return nil
}

func parsePrefix(word string, p *netip.Prefix) (err error) {
	if word != "any" {
		*p, err = netip.ParsePrefix(word)
	}
	return err
}

// Bytes returns the text of v.
func (v *Vectors) Bytes() []byte {
	var out bytes.Buffer
	orAny := func(open bool, format string, args ...any) string {
		if open {
			return "any"
		}
		return fmt.Sprintf(format, args...)
	}
	ports := func(p acl.Ports) string {
		lo, hi, asks := p.Range()
		return orAny(!asks, "%d-%d", lo, hi)
	}
	for _, r := range v.Lists.Rules {
		fmt.Fprintln(&out, "rule",
			orAny(r.Src == netip.Prefix{}, "%v", r.Src), orAny(r.Dst == netip.Prefix{}, "%v", r.Dst),
			ports(r.SrcPorts), ports(r.DstPorts),
			orAny(r.Proto == 0, "%d", r.Proto))
	}
	for _, r := range v.Lists.Routes {
		fmt.Fprintln(&out, "route", r.Prefix, r.NextHop)
	}
	for _, p := range v.Lists.Literals {
		how := "exact"
		if p.NoCase {
			how = "nocase"
		}
		fmt.Fprintf(&out, "literal %d %s %x\n", p.Rule, how, p.Bytes)
	}
	if v.Ops != 0 {
		fmt.Fprintln(&out, "ops", v.Ops)
	}
	for i, pieces := range v.Packets {
		d := &v.Finds[i]
		fmt.Fprintf(&out, "packet %s\nfind "+findFormat+"\n", Hex(pieces),
			d.L3, d.L4, d.Payload, d.Proto, d.Flags, d.Hash, d.Rule, d.NextHop)
		for _, m := range v.Matches[i] {
			fmt.Fprintf(&out, "match "+matchFormat+"\n", m.D, m.Rule, m.End)
		}
	}
	return out.Bytes()
}

// Hex is the inverse of piecesOf.
func Hex(pieces [][]byte) string {
	var words []string
	for _, p := range pieces {
		words = append(words, hex.EncodeToString(p))
	}
	return strings.Join(words, "+")
}
