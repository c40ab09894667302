package strictyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Schema is a JSON Schema (draft 2020-12) of what may stand at one place of a file. Describe makes it from
// the functions that decode the file, so that it cannot differ from them.
type Schema struct {
	Dialect     string     `json:"$schema,omitempty"`
	Title       string     `json:"title,omitempty"`       // of a scalar: its form, such as "IP address"
	Description string     `json:"description,omitempty"` // what the key means
	Type        string     `json:"type,omitempty"`        // "object", "array", "string", "integer", "boolean"; "" is any
	Enum        []any      `json:"enum,omitempty"`
	Pattern     string     `json:"pattern,omitempty"`
	Minimum     *int64     `json:"minimum,omitempty"`
	Maximum     *int64     `json:"maximum,omitempty"`
	Default     any        `json:"default,omitempty"`
	Items       *Schema    `json:"items,omitempty"`
	MinItems    int        `json:"minItems,omitempty"`
	MaxItems    int        `json:"maxItems,omitempty"`
	Properties  Properties `json:"properties,omitempty"`
	Required    []string   `json:"required,omitempty"`
	AnyOf       []*Schema  `json:"anyOf,omitempty"`

	PatternProperties    map[string]bool `json:"patternProperties,omitempty"`
	AdditionalProperties *bool           `json:"additionalProperties,omitempty"`
}

// Dialect is the JSON Schema version that Schema follows.
const Dialect = "https://json-schema.org/draft/2020-12/schema"

// Properties are the keys of a mapping in the order of the decoder.
type Properties []Property

// Property is a key of a mapping.
type Property struct {
	Name string
	*Schema
}

// MarshalJSON writes an object in the order of the list.
func (p Properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, one := range p {
		text, err := json.Marshal(one.Schema)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], one.Name, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Describe returns the schema of the files whose root read decodes. It calls read, and the functions of every
// key, once with an empty node and a decoder that records what they accept. Nothing is decoded and no error
// is recorded.
func Describe(read func(d *Decoder, n *yaml.Node)) *Schema {
	d := &Decoder{describing: true}
	s := d.place(func(n *yaml.Node) { read(d, n) })
	s.Dialect, s.PatternProperties = Dialect, map[string]bool{"^x-": true}
	return s
}

// Takes records, in a decoder that describes, the schemas that are accepted here, and returns true: the
// function that reads the value has to return. Otherwise it returns false.
func (d *Decoder) Takes(schemas ...Schema) bool {
	if d.describing {
		for i := range schemas {
			d.forms = append(d.forms, &schemas[i])
		}
	}
	return d.describing
}

// Word reports whether n is a word that stands for a value of another type, such as "auto" for a number.
func (d *Decoder) Word(n *yaml.Node, words ...string) bool {
	if d.Takes(Schema{Type: "string", Enum: anyOf(words)}) {
		return false
	}
	return n.Kind == yaml.ScalarNode && slices.Contains(words, n.Value)
}

// Either reads a scalar with one function and anything else with the other.
func (d *Decoder) Either(n *yaml.Node, scalar, other func(n *yaml.Node)) {
	if n.Kind == yaml.ScalarNode || d.describing {
		scalar(n)
	}
	if n.Kind != yaml.ScalarNode || d.describing {
		other(n)
	}
}

// place returns the schema of what read accepts.
func (d *Decoder) place(read func(n *yaml.Node)) *Schema {
	saved := d.forms
	d.forms = nil
	read(&yaml.Node{Kind: yaml.ScalarNode})
	forms := d.forms
	d.forms = saved
	var distinct []*Schema
	for _, f := range forms {
		if len(distinct) == 0 || !reflect.DeepEqual(distinct[len(distinct)-1], f) {
			distinct = append(distinct, f)
		}
	}
	if len(distinct) == 1 {
		return distinct[0]
	}
	return &Schema{AnyOf: distinct}
}

// describeMapping records a mapping.
func (d *Decoder) describeMapping(fields []Field) {
	closed := false
	s := Schema{Type: "object", AdditionalProperties: &closed}
	for _, f := range fields {
		s.Properties = append(s.Properties, Property{f.Name, d.place(f.Read)})
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	d.Takes(s)
}

// Key is a key of a file, for its reference.
type Key struct {
	Path     string // such as "services[].backends[].weight"
	Schema   *Schema
	Required bool
}

// Keys returns all keys below s, parents first.
func (s *Schema) Keys() []Key { return s.keys("") }

func (s *Schema) keys(path string) (list []Key) {
	for _, p := range s.Properties {
		list = append(list, Key{path + p.Name, p.Schema, slices.Contains(s.Required, p.Name)})
		list = append(list, p.keys(path+p.Name+".")...)
	}
	if s.Items != nil {
		list = append(list, s.Items.keys(strings.TrimSuffix(path, ".")+"[].")...)
	}
	for _, a := range s.AnyOf {
		list = append(list, a.keys(path)...)
	}
	return list
}

// Form writes what may stand at the place in a few words: "auto, none or 536 to 65495".
func (s *Schema) Form() string {
	switch {
	case len(s.AnyOf) > 0:
		var forms []string
		for _, a := range s.AnyOf {
			forms = append(forms, a.Form())
		}
		return orList(forms)
	case len(s.Enum) > 0:
		var values []string
		for _, v := range s.Enum {
			if _, truth := v.(bool); truth {
				continue // it stands for a word
			}
			values = append(values, fmt.Sprint(v))
		}
		return orList(values)
	case s.Type == "integer":
		return fmt.Sprintf("%d to %d", *s.Minimum, *s.Maximum)
	case s.Type == "boolean":
		return "true or false"
	case s.Type == "object":
		return "mapping"
	case s.Type == "array" && s.Items.Type == "object":
		return "list of mappings"
	case s.Type == "array":
		return "list"
	}
	return s.Title
}

// anyOf returns the values of an Enum.
func anyOf[V any](values []V) (list []any) {
	for _, v := range values {
		list = append(list, v)
	}
	return list
}

// orList writes a list of alternatives.
func orList(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// DefaultOf returns the default of a key, "" where it has none.
func (s *Schema) DefaultOf() string {
	for _, a := range append([]*Schema{s}, s.AnyOf...) {
		if a.Default != nil {
			return fmt.Sprint(a.Default)
		}
	}
	return ""
}

// Sets reports whether n sets something: whether it differs from the default, and a mapping whether one of its keys does. A value
// without a default sets something, and so does a list.
func (s *Schema) Sets(n *yaml.Node) bool {
	n = follow(n)
	forms := s.AnyOf
	if len(forms) == 0 {
		forms = []*Schema{s}
	}
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if s.setsKey(n.Content[i], n.Content[i+1]) {
				return true
			}
		}
		return false
	}
	return n.Kind != yaml.ScalarNode || !slices.ContainsFunc(forms, func(f *Schema) bool { return f.Default != nil && equalScalar(n, f.Default) })
}

// setsKey is Sets of a key of a mapping, or of the mappings that it merges.
func (s *Schema) setsKey(key, value *yaml.Node) bool {
	if key.ShortTag() == "!!merge" {
		if value = follow(value); value.Kind == yaml.SequenceNode {
			return slices.ContainsFunc(value.Content, s.Sets)
		}
		return s.Sets(value)
	}
	i := slices.IndexFunc(s.Properties, func(p Property) bool { return p.Name == key.Value })
	return i >= 0 && s.Properties[i].Sets(value)
}

// equalScalar reports whether a scalar is the default of its key. Lengths of time and numbers are equal however they are written.
func equalScalar(n *yaml.Node, def any) bool {
	text := fmt.Sprint(def)
	if n.Tag == "!!bool" && slices.Contains(truths[n.Value], text) || n.Value == text || strings.ReplaceAll(n.Value, "_", "") == text {
		return true
	}
	a, err := time.ParseDuration(n.Value)
	b, err2 := time.ParseDuration(text)
	return err == nil && err2 == nil && a == b
}
