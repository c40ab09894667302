package cache

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/millrace/millrace/semantics"
)

// errMeta is the error of a description that cannot be read.
var errMeta = errors.New("the description of the response cannot be read")

// appendMeta appends what describes a response apart from its content: lengths and numbers are varints, and each text follows its length.
func (e *Entry) appendMeta(b []byte) []byte {
	b = appendText(appendText(b, e.URL), e.Variant)
	b = binary.AppendUvarint(b, uint64(e.Status))
	b = appendFieldList(appendFieldList(b, e.Fields), e.vary)
	for _, t := range [...]time.Time{e.modified, e.generated, e.arrived} {
		b = appendTime(b, t)
	}
	for _, d := range [...]time.Duration{e.initial, e.lifetime, e.staleRevalidate, e.staleError} {
		b = binary.AppendVarint(b, int64(d))
	}
	flags := uint64(e.stale)
	if e.explicit {
		flags |= metaExplicit
	}
	if e.always {
		flags |= metaAlways
	}
	return binary.AppendUvarint(b, flags)
}

// Bits beside the staleness.
const (
	metaExplicit = 1 << 4
	metaAlways   = 1 << 5
)

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFieldList(b []byte, fields []semantics.Field) []byte {
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for i := range fields {
		b = appendText(appendText(b, fields[i].Name), fields[i].Value)
	}
	return b
}

// appendTime appends seconds and nanoseconds of a time; the zero time is 0, 0 too, which no response has.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0, 0)
	}
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// parseMeta reads what appendMeta has written, into memory of its own.
func parseMeta(b []byte) (*Entry, error) {
	r := metaReader{rest: string(b)}
	e := &Entry{Key: Key{URL: r.text(), Variant: r.text()}}
	e.Status = int(r.unsigned())
	e.Fields, e.vary = r.fields(), r.fields()
	for _, t := range [...]*time.Time{&e.modified, &e.generated, &e.arrived} {
		*t = r.time()
	}
	for _, d := range [...]*time.Duration{&e.initial, &e.lifetime, &e.staleRevalidate, &e.staleError} {
		*d = time.Duration(r.signed())
	}
	flags := r.unsigned()
	e.stale, e.explicit, e.always = staleness(flags&0xf), flags&metaExplicit != 0, flags&metaAlways != 0
	if r.failed || r.rest != "" || e.stale > never || e.Status < 200 || e.Status > 599 || e.URL == "" {
		return nil, errMeta
	}
	e.tag, _ = field(e.Fields, "etag")
	return e, nil
}

// metaReader reads a description. After a failure it returns zeros.
type metaReader struct {
	rest   string
	failed bool
}

func (r *metaReader) unsigned() uint64 {
	n, size := binary.Uvarint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	return cutNumber(r, n, size)
}

func (r *metaReader) signed() int64 {
	n, size := binary.Varint([]byte(r.rest[:min(len(r.rest), binary.MaxVarintLen64)]))
	return cutNumber(r, n, size)
}

func cutNumber[T int64 | uint64](r *metaReader, n T, size int) T {
	if size <= 0 || r.failed {
		r.failed = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *metaReader) text() string {
	n := r.unsigned()
	if n > uint64(len(r.rest)) {
		r.failed = true
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *metaReader) fields() []semantics.Field {
	n := r.unsigned()
	if r.failed || n > uint64(len(r.rest)) { // each takes two bytes or more
		r.failed = true
		return nil
	}
	var list []semantics.Field
	for range n {
		list = append(list, semantics.Field{Name: r.text(), Value: r.text()})
	}
	return list
}

func (r *metaReader) time() time.Time {
	s, ns := r.signed(), r.unsigned()
	if s == 0 && ns == 0 {
		return time.Time{}
	}
	return time.Unix(s, int64(ns%1e9)).UTC()
}
