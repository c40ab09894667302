package proxy

import (
	"strings"

	"github.com/millrace/millrace/l7/encode"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/semantics"
)

// Compression configures which responses are compressed. Workers share it, and nothing changes it.
type Compression struct {
	Codings []string // the best first
	Types   []string // media types: whole, as text/*, or as +json
	Least   int64    // bytes of content that announces its length
}

// coder is an exchange whose response is compressed: the methods are of this file.
type coder struct{ *exchange }

// maxEncoders bounds the responses that a worker compresses at once. An encoder holds up to 1 MB: what comes beyond is sent as it is.
const maxEncoders = 64

// compressed is a response that is compressed on its way.
type compressed struct {
	*encode.Encoder
	buffer []byte
	dirty  bool // a flush is due at the end of the batch
}

// takes reports whether content of a media type is compressed.
func (c *Compression) takes(mediaType string) bool {
	mediaType, _, _ = strings.Cut(mediaType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	for _, t := range c.Types {
		switch prefix, all := strings.CutSuffix(t, "/*"); {
		case all && strings.HasPrefix(mediaType, prefix) && len(mediaType) > len(prefix) && mediaType[len(prefix)] == '/',
			t[0] == '+' && strings.HasSuffix(mediaType, t), t == mediaType:
			return true
		}
	}
	return false
}

// compressible classifies the content of a response by its fields.
type compressible uint8

const (
	unfit   compressible = iota // of another kind, or encoded already
	fit                         // of a type that is compressed
	revised                     // none is sent: the client has it, by its tag
)

// look returns whether the content of a response may be compressed (RFC 9110 8.4, RFC 9111 5.2.2.6). 206 is a part of the content as it
// is, whose numbers would be wrong.
func (c *Compression) look(m *semantics.Message, fields []semantics.Field) compressible {
	switch s := m.Status; {
	case s == 304:
		return revised
	case s < 200, s == 204, s == 205, s == 206, m.ContentLength >= 0 && m.ContentLength < c.Least:
		return unfit
	}
	what := unfit
	for i := range fields {
		switch f := &fields[i]; f.Name {
		case "content-type":
			if what = unfit; c.takes(f.Value) {
				what = fit
			}
		case "content-encoding":
			if !strings.EqualFold(f.Value, "identity") {
				return unfit
			}
		case "content-range":
			return unfit
		case "cache-control":
			if strings.Contains(strings.ToLower(f.Value), "no-transform") {
				return unfit
			}
		}
	}
	return what
}

// compress decides whether a response is compressed, and changes its header if so. x.fields and x.reply are the response.
//
// The header is that of the compressed content also in answer to HEAD. Vary is there for every client, since a cache would give one
// client what another accepts. The tag becomes a weak one: the bytes are others than the backend's tag stands for (RFC 9110 8.8.1).
// Ranges of the compressed content there are none, so that Accept-Ranges goes, and so do digests of the bytes (RFC 9530).
func (x coder) compress(c *Compression, bodiless bool) {
	switch c.look(&x.reply, x.fields) {
	case unfit:
		return
	case revised:
		x.revise()
		return
	}
	x.vary()
	codings := semantics.Codings(accepted(x.request.Fields), c.Codings)
	if len(codings) == 0 {
		return
	}
	if !bodiless {
		e := x.w.encoders.Get(codings[0])
		if e == nil {
			x.w.counters.uncompressed.Add(1)
			return
		}
		x.w.counters.compressed.Add(1)
		x.encoder = &compressed{Encoder: e}
	}
	kept := x.fields[:0]
	for _, f := range x.fields {
		switch f.Name {
		case "content-length", "content-encoding", "accept-ranges", "content-digest", "repr-digest", "digest", "content-md5":
			continue
		case "etag":
			f.Value = weak(f.Value)
		}
		kept = append(kept, f)
	}
	x.fields = append(kept, semantics.Field{Name: "content-encoding", Value: codings[0]})
	x.reply.ContentLength = -1
}

// accepted returns the value of Accept-Encoding.
func accepted(fields []semantics.Field) (value string) {
	for i := range fields {
		if f := &fields[i]; f.Name == "accept-encoding" {
			value = semantics.JoinValues(value, f.Value)
		}
	}
	return value
}

// weak returns an entity tag as a weak one.
func weak(tag string) string {
	if strings.HasPrefix(tag, "W/") {
		return tag
	}
	return "W/" + tag
}

// revise makes the tag of a 304 what that of the compressed content is, where the client has that. A cache finds the response that it has
// by the tag, and would not find it by a strong one (RFC 9111 4.3.4).
func (x coder) revise() {
	for i := range x.fields {
		f := &x.fields[i]
		if f.Name != "etag" || strings.HasPrefix(f.Value, "W/") {
			continue
		}
		for k := range x.request.Fields {
			if q := &x.request.Fields[k]; q.Name == "if-none-match" && strings.Contains(q.Value, weak(f.Value)) {
				f.Value = weak(f.Value)
				x.vary()
				return
			}
		}
	}
}

// vary has caches ask again for clients that accept other codings.
func (x coder) vary() {
	for i := range x.fields {
		if f := &x.fields[i]; f.Name == "vary" {
			for name := range strings.SplitSeq(f.Value, ",") {
				if name = strings.TrimSpace(name); name == "*" || strings.EqualFold(name, "accept-encoding") {
					return
				}
			}
		}
	}
	x.fields = append(x.fields, semantics.Field{Name: "vary", Value: "accept-encoding"})
}

// encode passes content on in the coding of the response. What the encoder keeps leaves with the end of the batch, so that a client of
// events does not wait for the next one, and content that comes in one piece is compressed as one.
func (x coder) encode(p []byte) {
	c := x.encoder
	x.w.counters.plain.Add(uint64(len(p)))
	if c.buffer = c.Append(c.buffer[:0], p); len(c.buffer) > 0 {
		x.w.counters.encoded.Add(uint64(len(c.buffer)))
		x.down.data(x.w, c.buffer)
	}
	if !c.dirty {
		c.dirty = true
		x.w.Run.Add(link.Flush, x.exchange, &x.tasks)
	}
}

// flushEncoder sends what the encoder keeps.
func (x coder) flushEncoder() {
	c := x.encoder
	if c == nil || !c.dirty {
		return
	}
	c.dirty = false
	x.passEncoded(c.Flush(c.buffer[:0]))
}

// endEncoder ends the content.
func (x coder) endEncoder() {
	x.passEncoded(x.encoder.End(x.encoder.buffer[:0]))
	x.leaveEncoder()
}

func (x coder) passEncoded(p []byte) {
	x.encoder.buffer = p[:0]
	if len(p) > 0 {
		x.w.counters.encoded.Add(uint64(len(p)))
		was := x.down.paused
		if x.down.data(x.w, p); x.down.paused && !was {
			x.deadline()
		}
	}
}

// leaveEncoder gives the encoder back.
func (x coder) leaveEncoder() {
	x.w.encoders.Put(x.encoder.Encoder)
	x.encoder = nil
}
