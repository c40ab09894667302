package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Load reads and checks a configuration file and the lists that it names. Mistakes in them are a
// *ConfigError.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	c, err := Parse(path, src)
	if err != nil {
		return nil, err
	}
	if err := c.readLists(); err != nil {
		return nil, err
	}
	return c, nil
}

// Parse checks the configuration in src; file names it in messages. All mistakes are reported at
// once, as a *ConfigError. Lists that it names are read by Open or Reload.
func Parse(file string, src []byte) (*Config, error) {
	d := &decoder{file: file, lines: strings.Split(string(src), "\n"), listAt: map[string]Problem{}}
	c := newConfig()
	c.file, c.listAt = file, d.listAt
	if root := d.document(src); root != nil {
		d.config(root, c)
		d.check(c)
	}
	if len(d.problems) == 0 {
		return c, nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return nil, &ConfigError{Problems: d.problems}
}

// decoder walks the nodes of a YAML document and collects mistakes with their places. It also
// keeps the places of what is compared with other parts of the file once all is read.
type decoder struct {
	file     string
	lines    []string
	problems []Problem
	places   places
	listAt   map[string]Problem // see Config
}

// fail notes a mistake at n.
func (d *decoder) fail(n *yaml.Node, hint, format string, args ...any) {
	d.failAt(n.Line, n.Column, hint, fmt.Sprintf(format, args...))
}

func (d *decoder) failAt(line, column int, hint, message string) {
	p := d.place(line, column)
	p.Message, p.Hint = message, hint
	d.problems = append(d.problems, p)
}

// place returns a problem at a place of the file, without a message.
func (d *decoder) place(line, column int) Problem {
	p := Problem{File: d.file, Line: line, Column: column}
	if 1 <= line && line <= len(d.lines) {
		p.Source = strings.TrimRight(d.lines[line-1], "\r")
	}
	return p
}

// document returns the root mapping of the one document in src.
func (d *decoder) document(src []byte) *yaml.Node {
	if len(src) > maxFileBytes {
		d.failAt(1, 1, "", fmt.Sprintf("file is larger than %d bytes", maxFileBytes))
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		d.syntax(err)
		return nil
	}
	if err := dec.Decode(&second); err == nil {
		d.fail(&second, "remove the \"---\" and what follows", "a second document")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	return doc.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:unmarshal errors:\s+)?line (\d+): `)

// syntax notes an error of the YAML parser, which knows only the line, if that.
func (d *decoder) syntax(err error) {
	if errors.Is(err, io.EOF) {
		d.failAt(1, 1, "see examples/gateway.yaml", "the file is empty")
		return
	}
	line, message := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	column := 1
	if line <= len(d.lines) {
		column += len(leading(d.lines[line-1]))
	}
	d.failAt(line, column, d.syntaxHint(message, line), "not YAML: "+strings.TrimPrefix(message, "yaml: "))
}

// leading returns the white space that a line begins with.
func leading(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// bare6 is an IPv6 address with a port that lacks quotes: YAML takes its bracket for a list.
var bare6 = regexp.MustCompile(`(?:^|[^"'0-9A-Za-z])(\[[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*\]:[0-9]+)`)

// syntaxHint returns the likely cause of an error near a line. The parser often notices it only
// later, or blames the start of the block, so all lines are searched for addresses.
func (d *decoder) syntaxHint(message string, line int) string {
	if 1 <= line && line <= len(d.lines) && strings.Contains(leading(d.lines[line-1]), "\t") {
		return "indent with spaces"
	}
	for i, text := range d.lines {
		text, _, _ = strings.Cut(text, "#")
		if m := bare6.FindStringSubmatch(text); m != nil {
			return fmt.Sprintf("quote the address on line %d: %q", i+1, m[1])
		}
	}
	return ""
}

// field is one key of a mapping.
type field struct {
	name     string
	required bool
	read     func(n *yaml.Node)
}

// mapping reads the keys of n and reports unknown, repeated and missing ones. what names the
// mapping in messages.
func (d *decoder) mapping(n *yaml.Node, what string, fields ...field) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.fail(n, "", "%s must be a mapping, not %s", what, kind(n))
		return
	}
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if first := seen[key.Value]; first != nil {
			d.fail(key, "", "key %q is repeated: it is already on line %d", key.Value, first.Line)
			continue
		}
		seen[key.Value] = key
		j := slices.IndexFunc(fields, func(f field) bool { return f.name == key.Value })
		if j < 0 {
			d.fail(key, suggest(key.Value, names(fields)), "unknown key %q in %s", key.Value, what)
			continue
		}
		fields[j].read(follow(value))
	}
	for _, f := range fields {
		if f.required && seen[f.name] == nil {
			d.fail(n, "", "%s lacks the key %q", what, f.name)
		}
	}
}

func names(fields []field) []string {
	var s []string
	for _, f := range fields {
		s = append(s, f.name)
	}
	return s
}

// list calls read for each item of the sequence n, of which there may be 1 to limit.
func (d *decoder) list(n *yaml.Node, what string, limit int, read func(n *yaml.Node)) {
	switch {
	case n.Kind != yaml.SequenceNode:
		d.fail(n, "", "%s must be a list, not %s", what, kind(n))
	case len(n.Content) == 0:
		d.fail(n, "", "%s is empty", what)
	case len(n.Content) > limit:
		d.fail(n, "", "%s has %d items; at most %d are allowed", what, len(n.Content), limit)
	default:
		for _, item := range n.Content {
			read(follow(item))
		}
	}
}

// oneOrMore is list, but also takes a single scalar.
func (d *decoder) oneOrMore(n *yaml.Node, what string, limit int, read func(n *yaml.Node)) {
	if n.Kind == yaml.ScalarNode {
		read(n)
		return
	}
	d.list(n, what, limit, read)
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the truth value " + n.Value
	}
	return strconv.Quote(n.Value)
}

// text reads a string that is not empty. Numbers and truth values are refused unless quoted.
func (d *decoder) text(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
		d.fail(n, "", "%s must be a string, not %s", what, kind(n))
		return "", false
	}
	return n.Value, true
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@/\[\]-]{0,62}$`)

// name reads a name that serves as a label in logs and metrics.
func (d *decoder) name(n *yaml.Node, what string, to *string) {
	if n.Kind != yaml.ScalarNode || !nameForm.MatchString(n.Value) {
		d.fail(n, "1 to 63 letters, digits and . _ : @ / [ ] -, the first a letter or digit", "%s is not a name: %s", what, kind(n))
		return
	}
	*to = n.Value
}

// choice reads one of the allowed words.
func choice[S ~string](d *decoder, n *yaml.Node, what string, to *S, allowed ...S) {
	if n.Kind != yaml.ScalarNode || !slices.Contains(allowed, S(n.Value)) {
		d.fail(n, suggest(n.Value, allowed), "%s cannot be %s", what, kind(n))
		return
	}
	*to = S(n.Value)
}

// integer reads a whole number from least to most.
func (d *decoder) integer(n *yaml.Node, what string, least, most int) (int, bool) {
	v, err := strconv.Atoi(strings.ReplaceAll(n.Value, "_", ""))
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.fail(n, "", "%s must be a whole number, not %s", what, kind(n))
		return 0, false
	}
	if v < least || v > most {
		d.fail(n, "", "%s is %d; it must lie between %d and %d", what, v, least, most)
		return 0, false
	}
	return v, true
}

func (d *decoder) integerTo(n *yaml.Node, what string, to *int, least, most int) {
	if v, ok := d.integer(n, what, least, most); ok {
		*to = v
	}
}

// duration reads a length of time from least to most.
func (d *decoder) duration(n *yaml.Node, what string, to *time.Duration, least, most time.Duration) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!int" {
		d.fail(n, fmt.Sprintf("write %ss for seconds", n.Value), "%s has no unit", what)
		return
	}
	v, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.fail(n, "such as 500ms, 30s or 2h", "%s must be a length of time, not %s", what, kind(n))
		return
	}
	if v < least || v > most {
		d.fail(n, "", "%s is %v; it must lie between %v and %v", what, v, least, most)
		return
	}
	*to = v
}

// addr reads an address that a host can have.
func (d *decoder) addr(n *yaml.Node, what string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.fail(n, "such as 198.18.0.1 or 2001:db8::1", "%s must be an IP address, not %s", what, kind(n))
		return a, false
	}
	return a, d.unicast(n, what, a)
}

// unicast refuses addresses that cannot be rewritten to or from.
func (d *decoder) unicast(n *yaml.Node, what string, a netip.Addr) bool {
	why := ""
	switch {
	case a.IsUnspecified():
		why = "unspecified"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "multicast"
	case a.IsLoopback():
		why = "a loopback address"
	case a.Is4In6():
		why = "an IPv4 address in IPv6 form"
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		why = "a link-local address"
	default:
		return true
	}
	d.fail(n, "", "%s cannot be %s: it is %s", what, a, why)
	return false
}

// addrPort reads an address and a port.
func (d *decoder) addrPort(n *yaml.Node, what string) (netip.AddrPort, bool) {
	ap, err := netip.ParseAddrPort(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		d.fail(n, addrPortHint(n.Value), "%s must be an IP address and a port, not %s", what, kind(n))
		return ap, false
	}
	if ap.Port() == 0 {
		d.fail(n, "", "%s has port 0", what)
		return ap, false
	}
	return ap, d.unicast(n, what, ap.Addr())
}

func addrPortHint(s string) string {
	if a, err := netip.ParseAddr(s); err == nil {
		return "the port is missing: " + netip.AddrPortFrom(a, 80).String()
	}
	return "such as 198.18.0.1:80 or \"[2001:db8::1]:80\""
}

// portRange reads "first-last".
func (d *decoder) portRange(n *yaml.Node, what string, to *PortRange) {
	first, last, ok := strings.Cut(n.Value, "-")
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if n.Kind != yaml.ScalarNode || !ok || errA != nil || errB != nil || a == 0 || a > b {
		d.fail(n, "such as 1024-65535", "%s must be a range of ports, not %s", what, kind(n))
		return
	}
	*to = PortRange{First: uint16(a), Last: uint16(b)}
}
