package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Schemas of gateway status --json. Both have the same keys; what was asked for is in the key "schema".
const (
	wholeSchema = schemaVersion // every key of every object
	briefSchema = 2             // without members that have their default: of thousands of backends half of the bytes
)

// checkSchema refuses what is no schema of the status.
func checkSchema(schema int, asJSON bool) error {
	switch {
	case schema != wholeSchema && schema != briefSchema:
		return usage("--schema %d: there are %d, which has every key, and %d, which leaves out members without a value", schema, wholeSchema, briefSchema)
	case schema != briefSchema && !asJSON:
		return usage("--schema is of the JSON document: add --json")
	}
	return nil
}

// status writes the reply of a gateway as a document of a schema: on one line, or indented unless it is long.
func (c *console) status(reply json.RawMessage, schema int, oneLine bool) error {
	line := []byte(reply)
	if schema == briefSchema {
		line = withoutDefaults(reply)
	}
	line, err := withSchema(append(slices.Clip(line), '\n'), schema)
	if err != nil {
		return err
	}
	if oneLine {
		_, err = c.out.Write(line)
		return err
	}
	return c.document(line)
}

// withoutDefaults returns a JSON document without the members of objects that have their default (isDefault). Elements of arrays stay,
// and so do empty arrays: what iterates over them works as before. The document is valid and without blanks, as encoding/json writes it.
func withoutDefaults(document []byte) []byte {
	b := brief{in: document, out: make([]byte, 0, len(document))}
	b.value()
	return b.out
}

// brief copies a document without its defaults.
type brief struct {
	in  []byte // what is to be copied still
	out []byte
}

// value copies a value, and reports whether it is a zero.
func (b *brief) value() (zero bool) {
	switch b.in[0] {
	case '{':
		return b.object()
	case '[':
		b.array()
		return false
	case '"':
		return b.string() == len(`""`)
	}
	n := bytes.IndexAny(b.in, ",]}")
	if n < 0 {
		n = len(b.in)
	}
	switch string(b.in[:n]) {
	case "false", "null", "0":
		zero = true
	}
	b.copy(n)
	return zero
}

// object copies an object, and reports whether no member is left.
func (b *brief) object() (empty bool) {
	var seen siblings
	b.copy(1)
	for empty = true; b.in[0] != '}'; {
		before := len(b.out)
		if !empty {
			b.out = append(b.out, ',')
		}
		key := b.in
		key = key[:b.string()]
		b.copy(1) // the colon
		value := b.in
		zero := b.value()
		value = value[:len(value)-len(b.in)]
		if seen.isDefault(key, value, zero) {
			b.out = b.out[:before]
		} else {
			empty = false
		}
		if b.in[0] == ',' {
			b.in = b.in[1:]
		}
	}
	b.copy(1)
	return empty
}

// siblings are the members before the present one that are defaults of others; nil where there is none.
type siblings struct{ state, weight []byte }

// isDefault reports whether a member has its default: false, 0, "", null or an object without members. Members of backends that have
// another default stay where they are 0, so that each value is one or the other.
func (s *siblings) isDefault(key, value []byte, zero bool) bool {
	switch string(key) {
	case `"state"`:
		s.state = value
	case `"weight"`:
		s.weight = value
	case `"config_state"`:
		return sameOr(value, s.state, zero)
	case `"config_weight"`:
		return sameOr(value, s.weight, zero)
	case `"slow_start_percent"`:
		return string(value) == "100"
	case `"next_hop"`:
		return string(value) == `"ready"`
	}
	return zero
}

func sameOr(value, as []byte, zero bool) bool {
	if as == nil {
		return zero
	}
	return bytes.Equal(value, as)
}

func (b *brief) array() {
	b.copy(1)
	for b.in[0] != ']' {
		b.value()
		if b.in[0] == ',' {
			b.copy(1)
		}
	}
	b.copy(1)
}

// string copies a string, and returns its length with the quotes.
func (b *brief) string() (n int) {
	for n = 1; b.in[n] != '"'; n++ {
		if b.in[n] == '\\' {
			n++
		}
	}
	n++
	b.copy(n)
	return n
}

func (b *brief) copy(n int) { b.out, b.in = append(b.out, b.in[:n]...), b.in[n:] }

// withSchema returns the line of an object with a schema version as the first key.
func withSchema(line []byte, schema int) ([]byte, error) {
	head := fmt.Sprintf(`{"schema":%d`, schema)
	switch {
	case bytes.HasPrefix(line, []byte(head)):
		return line, nil // the document has the key itself
	case bytes.HasPrefix(line, []byte("{}")):
		return append([]byte(head), line[1:]...), nil
	case !bytes.HasPrefix(line, []byte("{")):
		return nil, fmt.Errorf("a JSON document must be an object, not %.20s", line)
	}
	return append([]byte(head+","), line[1:]...), nil
}
