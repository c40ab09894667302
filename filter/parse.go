package filter

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/gpukern/acl"
	"github.com/millrace/millrace/internal/excerpt"
	"github.com/millrace/millrace/internal/suggest"
	"github.com/millrace/millrace/wire"
)

// ErrSyntax is matched by the error of Parse.
var ErrSyntax = errors.New("wrong rule")

// SyntaxError is one error in the source of rules.
type SyntaxError struct {
	Name         string // of the text: a file
	Line, Column int    // from 1; columns in bytes
	Source       string // the line
	Msg          string
	Unsupported  string // what Millrace does not implement; "" where the rule is wrong
}

// Error implements error: the place, what is wrong, the line and a caret below the place.
func (e *SyntaxError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s\n%s", e.Name, e.Line, e.Column, e.Msg, excerpt.Caret(e.Source, e.Column-1))
}

// Is reports whether target is ErrSyntax.
func (e *SyntaxError) Is(target error) bool { return target == ErrSyntax }

// Parse reads rules of one text, which names no other files and has no inspection rules: see ParseFile for the
// language.
//
// name is the text's, for errors. Parse returns every error in the source, joined, up to maxMistakes; each
// is a *SyntaxError. A text longer than MaxText, or of more than acl.MaxRules rules, is rejected.
func Parse(name, text string) (*List, error) {
	f, wrong := ParseFile(name, text, nil)
	if len(wrong) > 0 {
		return nil, joined(wrong)
	}
	if len(f.Inspect) > 0 {
		return nil, fmt.Errorf("%s: %w: inspection rules are not read here", name, ErrSyntax)
	}
	return f.List, nil
}

// joined returns the first errors of a file as one.
func joined(wrong []*SyntaxError) error {
	var all []error
	for _, e := range wrong[:min(len(wrong), maxMistakes)] {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// MaxText is the longest text of rules that Parse reads, in bytes.
const MaxText = 8 << 20

// maxMistakes is the number of mistakes that are shown at once: a screen full.
const maxMistakes = 20

// How many rules one line may make, of its ports and of all.
const (
	maxSpread = 256
	maxLine   = 16384
)

// uncomment returns what lies before a "#" that is not inside of quotes.
func uncomment(line string) string {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '#' && !quoted:
			return line[:i]
		}
	}
	return line
}

// parser takes one line apart, word by word.
type parser struct {
	rest string // what has not been read
	size int    // of the line
	at   int    // where the last word began

	groups map[string][]netip.Prefix // that lines before have named
	lists  map[string]*PrefixList
}

// peek returns the next word without reading it; "" at the end.
func (p *parser) peek() string {
	word, _, _ := strings.Cut(strings.TrimLeft(p.rest, " \t"), " ")
	word, _, _ = strings.Cut(word, "\t")
	return word
}

// word reads the next word.
func (p *parser) word() string {
	p.rest = strings.TrimLeft(p.rest, " \t")
	p.at = p.size - len(p.rest)
	w := p.peek()
	p.rest = p.rest[len(w):]
	return w
}

// took reads the next word if it is w.
func (p *parser) took(w string) bool {
	if p.peek() != w {
		return false
	}
	p.word()
	return true
}

// rule reads a whole line: one rule for each pair of places and ports.
func (p *parser) rule() ([]Rule, error) {
	var r Rule
	var err error
	if err = p.actions(&r); err != nil {
		return nil, err
	}
	m := &r.Match
	if w := p.peek(); w != "" && !slices.Contains(clauses, w) {
		if m.Proto, err = p.protocol(); err != nil {
			return nil, err
		}
	}
	from, to := anywhere(), anywhere()
	if p.took("from") {
		if from, err = p.place(m.Proto); err != nil {
			return nil, err
		}
	}
	if p.took("to") {
		if to, err = p.place(m.Proto); err != nil {
			return nil, err
		}
	}
	if p.took("name") {
		if r.Name, err = p.quoted(); err != nil {
			return nil, err
		}
	}
	if w := p.word(); w != "" {
		return nil, p.surplus(w)
	}
	return spread(r, from, to)
}

var clauses = []string{"from", "to", "name"}

// surplus says what is wrong with a word that no clause takes.
func (p *parser) surplus(w string) error {
	if slices.Contains(clauses, w) {
		return fmt.Errorf("%q is one word too many: from, to and name come once and in this order", w)
	}
	if err := unsupported(w); err != nil {
		return err
	}
	if w == "port" {
		return fmt.Errorf("%q is one word too many: ports stand behind a place, as in \"to any port 80\"", w)
	}
	if s := didYouMean(w, "from", "to", "port", "name"); s != "" {
		return fmt.Errorf("%q is not known%s", w, s)
	}
	return fmt.Errorf("%q is one word too many; a rule is ACTION [PROTOCOL] [from PLACE] [to PLACE] [name \"TEXT\"]", w)
}

// spread returns r once for each pair of addresses and of ports. Addresses of two families make no pair.
func spread(r Rule, from, to place) ([]Rule, error) {
	if n := len(from.ports) * len(to.ports); n > maxSpread {
		return nil, fmt.Errorf("the ports of one line make %d rules, at most %d are taken", n, maxSpread)
	}
	if n := len(from.addrs) * len(to.addrs) * len(from.ports) * len(to.ports); n > maxLine {
		return nil, fmt.Errorf("the groups and ports of one line make %d rules, at most %d are taken: use a list", n, maxLine)
	}
	r.Src, r.Dst = from.list, to.list
	any := netip.Prefix{}
	var rules []Rule
	for _, r.Match.Src = range from.addrs {
		for _, r.Match.Dst = range to.addrs {
			if r.Match.Src != any && r.Match.Dst != any && len(from.addrs)*len(to.addrs) > 1 && r.Match.Src.Addr().Is4() != r.Match.Dst.Addr().Is4() {
				continue
			}
			for _, r.Match.SrcPorts = range from.ports {
				for _, r.Match.DstPorts = range to.ports {
					rules = append(rules, r)
				}
			}
		}
	}
	if len(rules) == 0 {
		return nil, errors.New("no source and destination are of one family: nothing can match")
	}
	return rules, nil
}

// quoted reads a text in double quotes.
func (p *parser) quoted() (string, error) {
	p.rest = strings.TrimLeft(p.rest, " \t")
	p.at = p.size - len(p.rest)
	body, ok := strings.CutPrefix(p.rest, `"`)
	text, rest, closed := strings.Cut(body, `"`)
	if !ok || !closed {
		return "", errors.New("a name stands in double quotes")
	}
	p.rest = rest
	return text, nil
}

var protocols = map[string]uint8{
	"tcp": wire.ProtoTCP, "udp": wire.ProtoUDP, "icmp": wire.ProtoICMP, "icmpv6": wire.ProtoICMPv6,
	"sctp": wire.ProtoSCTP, "gre": wire.ProtoGRE, "esp": wire.ProtoESP, "ah": wire.ProtoAH, "ipip": wire.ProtoIPIP,
}

// protocol reads a protocol's name or number.
func (p *parser) protocol() (uint8, error) {
	w := p.word()
	if w == "proto" {
		w = p.word()
		n, err := strconv.ParseUint(w, 10, 8)
		if err != nil || n == 0 {
			return 0, fmt.Errorf("%q is not a protocol number, 1 to 255", w)
		}
		return uint8(n), nil
	}
	n, ok := protocols[w]
	if !ok {
		if s := didYouMean(w, append(slices.Sorted(maps.Keys(protocols)), "proto", "from", "to")...); s != "" {
			return 0, fmt.Errorf("%q is not a protocol%s", w, s)
		}
		return 0, fmt.Errorf("%q is not a protocol; say tcp, udp, icmp, icmpv6, sctp, gre, esp, ah, ipip or proto NUMBER", w)
	}
	return n, nil
}

// place is one end of a rule.
type place struct {
	addrs []netip.Prefix
	list  *PrefixList
	ports []acl.Ports
}

func anywhere() place { return place{addrs: []netip.Prefix{{}}, ports: []acl.Ports{{}}} }

// place reads an address, a prefix, a group or a list, and ports.
func (p *parser) place(proto uint8) (a place, err error) {
	a = anywhere()
	switch w := p.peek(); w {
	case "port":
	case "group":
		a.addrs, err = p.groupNamed()
	case "list":
		a.list, err = p.listNamed()
	default:
		a.addrs[0], err = prefix(p.word())
	}
	if err != nil || !p.took("port") {
		return a, err
	}
	if proto != wire.ProtoTCP && proto != wire.ProtoUDP && proto != wire.ProtoSCTP && proto != 0 {
		return a, errors.New("this protocol has no ports")
	}
	a.ports, err = p.ports()
	return a, err
}

// ports reads a list of ports and ranges, with commas between them.
func (p *parser) ports() ([]acl.Ports, error) {
	var ports []acl.Ports
	start := p.size - len(strings.TrimLeft(p.rest, " \t"))
	for w := range strings.SplitSeq(p.word(), ",") {
		p.at = start
		r, err := portRange(w)
		if err != nil {
			return nil, err
		}
		ports = append(ports, r)
		start += len(w) + 1
	}
	return ports, nil
}

// prefix reads "any", an address or a prefix without bits beyond its length.
func prefix(w string) (netip.Prefix, error) {
	if w == "any" {
		return netip.Prefix{}, nil
	}
	if w == "" {
		return netip.Prefix{}, errors.New("an address, a prefix or any is missing")
	}
	if !strings.Contains(w, "/") {
		a, err := netip.ParseAddr(w)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not an address%s", w, didYouMean(w, "any"))
		}
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	n, err := netip.ParsePrefix(w)
	if err != nil {
		return n, fmt.Errorf("%q is not a prefix", w)
	}
	if n != n.Masked() {
		return n, fmt.Errorf("%s has bits beyond its length; %s is meant", n, n.Masked())
	}
	if n.Addr().Is4In6() && n.Bits() >= 96 { // IPv4 in IPv6 form, as a single address may be
		n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
	}
	return n, nil
}

// portRange reads "N" or "N-M".
func portRange(w string) (acl.Ports, error) {
	from, to, ranged := strings.Cut(w, "-")
	if !ranged {
		to = from
	}
	lo, err1 := strconv.ParseUint(from, 10, 16)
	hi, err2 := strconv.ParseUint(to, 10, 16)
	if err1 != nil || err2 != nil {
		return acl.Ports{}, fmt.Errorf("%q is not a port or a range of ports, 0 to 65535", w)
	}
	if lo > hi {
		return acl.Ports{}, fmt.Errorf("ports %s: the first is above the last", w)
	}
	return acl.PortRange(uint16(lo), uint16(hi)), nil
}

// didYouMean returns "; did you mean X?" for the word that w was probably meant to be, "" where none is close.
func didYouMean(w string, words ...string) string {
	if best := suggest.Nearest(w, 2, words...); best != "" {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return ""
}
