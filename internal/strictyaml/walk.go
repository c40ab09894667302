package strictyaml

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Field is one key of a mapping.
type Field struct {
	Name     string
	Required bool
	Read     func(n *yaml.Node) // called with the key's value
}

// Required is a key that must be there.
func Required(name string, read func(n *yaml.Node)) Field { return Field{name, true, read} }

// Optional is a key that may be absent.
func Optional(name string, read func(n *yaml.Node)) Field { return Field{name, false, read} }

// Mapping reads the keys of n, and those of the mappings that it merges, and reports unknown, repeated and
// missing ones. Keys of the root that begin with "x-" are ignored: they hold anchors. what names the
// mapping in messages.
func (d *Decoder) Mapping(n *yaml.Node, what string, fields ...Field) {
	if d.describing {
		d.describeMapping(fields)
		return
	}
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.Fail(n, "", "%s must be a mapping, not %s", what, Kind(n))
		return
	}
	seen := map[string]bool{}
	for _, p := range d.pairs(n) {
		seen[p.key.Value] = true
		j := slices.IndexFunc(fields, func(f Field) bool { return f.Name == p.key.Value })
		if j < 0 {
			d.Fail(p.key, d.Hint(p.key.Value, names(fields)), "unknown key %q in %s", p.key.Value, what)
			continue
		}
		fields[j].Read(p.value)
	}
	for _, f := range fields {
		if f.Required && !seen[f.Name] && !d.exhausted {
			d.Fail(n, "", "%s lacks the key %q", what, f.Name)
		}
	}
}

func names(fields []Field) []string {
	var s []string
	for _, f := range fields {
		s = append(s, f.Name)
	}
	return s
}

// List calls read for each item of the sequence n, of which there may be 1 to limit.
func (d *Decoder) List(n *yaml.Node, what string, limit int, read func(n *yaml.Node)) {
	switch {
	case d.describing:
		d.Takes(Schema{Type: "array", Items: d.place(read), MinItems: 1, MaxItems: limit})
	case n.Kind != yaml.SequenceNode:
		d.Fail(n, "", "%s must be a list, not %s", what, Kind(n))
	case len(n.Content) == 0:
		d.Fail(n, "", "%s is empty", what)
	case len(n.Content) > limit:
		d.Fail(n, "", "%s has %d items; at most %d are allowed", what, len(n.Content), limit)
	default:
		for _, item := range n.Content {
			if !d.visit(item) {
				return
			}
			read(follow(item))
		}
	}
}

// OneOrMore is List, but also takes a single scalar.
func (d *Decoder) OneOrMore(n *yaml.Node, what string, limit int, read func(n *yaml.Node)) {
	d.Either(n, read, func(n *yaml.Node) { d.List(n, what, limit, read) })
}

// follow returns the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Kind describes n, for messages: "a list", "the number 7", or its text in quotes.
func Kind(n *yaml.Node) string {
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
