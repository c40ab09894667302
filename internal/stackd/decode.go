package stackd

import (
	"bytes"
	"cmp"
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

// Load reads and checks a configuration file. Mistakes in it are a *ConfigError.
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
	return Parse(path, src)
}

// Parse checks the configuration in src; file names it in messages. All mistakes are reported at once, as a
// *ConfigError.
func Parse(file string, src []byte) (*Config, error) {
	d := &decoder{file: file, lines: strings.Split(string(src), "\n")}
	c := New()
	if root := d.document(src); root != nil {
		d.config(root, c)
		c.check(&d.at, d.fail)
	}
	return c, d.result()
}

// decoder walks the nodes of a YAML document and collects mistakes with their places.
type decoder struct {
	file     string
	lines    []string
	problems []Problem
	at       places
}

// result returns the mistakes in the order of the file.
func (d *decoder) result() error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	return &ConfigError{Problems: d.problems}
}

// fail notes a mistake at n; nil is no place of the file.
func (d *decoder) fail(n *yaml.Node, hint, format string, args ...any) {
	if n == nil {
		n = &yaml.Node{}
	}
	d.failAt(n.Line, n.Column, hint, fmt.Sprintf(format, args...))
}

func (d *decoder) failAt(line, column int, hint, message string) {
	p := Problem{File: d.file, Line: line, Column: column, Message: message, Hint: hint}
	if 1 <= line && line <= len(d.lines) {
		p.Source = strings.TrimRight(d.lines[line-1], "\r")
	}
	d.problems = append(d.problems, p)
}

// document returns the root of the one document in src.
func (d *decoder) document(src []byte) *yaml.Node {
	if len(src) > maxFileBytes {
		d.failAt(1, 1, "", fmt.Sprintf("the file is larger than %d bytes", maxFileBytes))
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
		d.failAt(1, 1, "see examples/stack.yaml", "the file is empty")
		return
	}
	line, message := 1, err.Error()
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	hint, column := "", 1
	if line <= len(d.lines) {
		text := d.lines[line-1]
		lead := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		column += len(lead)
		if strings.Contains(lead, "\t") {
			hint = "indent with spaces"
		}
	}
	d.failAt(line, column, hint, "not YAML: "+strings.TrimPrefix(message, "yaml: "))
}

// field is one key of a mapping.
type field struct {
	name     string
	required bool
	read     func(n *yaml.Node)
}

// mapping reads the keys of n and reports unknown, repeated and missing ones. what names the mapping in
// messages.
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
			d.fail(key, allowed(names(fields)), "unknown key %q in %s", key.Value, what)
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

func names(fields []field) (s []string) {
	for _, f := range fields {
		s = append(s, f.name)
	}
	return s
}

// allowed is the hint that lists what could stand there.
func allowed[S ~string](words []S) string {
	var s []string
	for _, w := range words {
		s = append(s, string(w))
	}
	return "allowed: " + strings.Join(s, ", ")
}

// list calls read for each item of n, of which there may be 1 to limit.
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

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + n.Value
	case n.Tag == "!!bool":
		return "the truth value " + n.Value
	}
	return strconv.Quote(n.Value)
}

// text reads a string.
func (d *decoder) text(n *yaml.Node, what string, to *string) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		d.fail(n, "", "%s must be a string, not %s", what, kind(n))
		return
	}
	*to = n.Value
}

// choice reads one of the allowed words.
func choice[S ~string](d *decoder, n *yaml.Node, what string, to *S, words ...S) {
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, S(n.Value)) {
		d.fail(n, allowed(words), "%s cannot be %s", what, kind(n))
		return
	}
	*to = S(n.Value)
}

// truth reads true or false.
func (d *decoder) truth(n *yaml.Node, what string, to *bool) {
	v, err := strconv.ParseBool(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || err != nil {
		d.fail(n, "", "%s must be true or false, not %s", what, kind(n))
		return
	}
	*to = v
}

// integer reads a whole number from least to most.
func integer[N ~int | ~int64 | ~uint16 | ~uint32](d *decoder, n *yaml.Node, what string, to *N, least, most int64) {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.fail(n, "", "%s must be a whole number, not %s", what, kind(n))
		return
	}
	if v < least || v > most {
		d.fail(n, "", "%s is %d; it must lie between %d and %d", what, v, least, most)
		return
	}
	*to = N(v)
}

// units are what bytes are counted in.
var units = map[string]int64{"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}

var bytesForm = regexp.MustCompile(`^([0-9]{1,12})([kMG]?)$`)

// bytes reads a number of bytes such as 65536 or 4M, or the word auto, which is 0.
func (d *decoder) bytes(n *yaml.Node, what string, to *int64, least, most int64) {
	if n.Value == "auto" {
		*to = 0
		return
	}
	m := bytesForm.FindStringSubmatch(strings.ReplaceAll(n.Value, "_", ""))
	if n.Kind != yaml.ScalarNode || m == nil {
		d.fail(n, "auto, or such as 65536, 512k or 4M", "%s must be a number of bytes, not %s", what, kind(n))
		return
	}
	v, _ := strconv.ParseInt(m[1], 10, 64)
	if v > most || v*units[m[2]] < least || v*units[m[2]] > most {
		d.fail(n, "", "%s is %s; it must lie between %d and %d bytes", what, n.Value, least, most)
		return
	}
	*to = v * units[m[2]]
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

// addr reads an address without a zone.
func (d *decoder) addr(n *yaml.Node, what string, to *netip.Addr) {
	a, err := netip.ParseAddr(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || a.Zone() != "" || a.Is4In6() {
		d.fail(n, "such as 198.18.0.1 or \"2001:db8::1\"", "%s must be an IP address, not %s", what, kind(n))
		return
	}
	*to = a
}
