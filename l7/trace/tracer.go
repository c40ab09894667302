package trace

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/millrace/millrace/l7/accesslog"
	"github.com/millrace/millrace/semantics"
)

// Tracer decides which requests have spans. It is immutable, and used by all loops.
type Tracer struct {
	OneIn  int            // a request in so many begins a trace
	From   []netip.Prefix // clients whose decision counts in its place
	Export func(Span)     // must not wait
}

// Request is a request that has spans.
type Request struct {
	Server  Context // the span of the request
	Backend [8]byte // the span of what a backend does for it
	Parent  [8]byte // of Server; 0 is none
	Value   string  // of the field towards backends
}

// Begin returns the spans of a request with the header fields that a client has sent; nil where it has none.
func (t *Tracer) Begin(client netip.Addr, fields []semantics.Field) *Request {
	parent := ""
	for i := range fields {
		if len(fields[i].Name) == len(Field) && fields[i].Name == Field {
			if parent != "" {
				parent = "?" // two lines: which of them counts is not known
				break
			}
			parent = fields[i].Value
		}
	}
	if parent == "" {
		if rand.IntN(t.OneIn) != 0 {
			return nil
		}
		return begin(Context{})
	}
	c, ok := Parse(parent)
	if ok && t.trusts(client) {
		if !c.Sampled() {
			return nil
		}
	} else if rand.IntN(t.OneIn) != 0 {
		return nil
	}
	return begin(c)
}

func (t *Tracer) trusts(client netip.Addr) bool {
	client = client.Unmap()
	return slices.ContainsFunc(t.From, func(p netip.Prefix) bool { return p.Contains(client) })
}

// begin returns spans below a parent, or of a new trace.
func begin(parent Context) *Request {
	r := &Request{Server: Context{Trace: parent.Trace, Flags: sampledFlag}, Parent: parent.Span}
	if r.Server.Trace == [16]byte{} {
		for r.Server.Trace == [16]byte{} {
			binary.LittleEndian.PutUint64(r.Server.Trace[:8], rand.Uint64())
			binary.LittleEndian.PutUint64(r.Server.Trace[8:], rand.Uint64())
		}
		r.Server.Flags |= 2 // the trace ID is random (level 2, 3.2.2.5.2)
	} else {
		r.Server.Flags |= parent.Flags & 2
	}
	r.Server.Span, r.Backend = newSpan(), newSpan()
	out := Context{Trace: r.Server.Trace, Span: r.Backend, Flags: r.Server.Flags}
	r.Value = string(out.Append(make([]byte, 0, length)))
	return r
}

func newSpan() (id [8]byte) {
	for id == [8]byte{} {
		binary.LittleEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// ID returns the trace's ID as text.
func (r *Request) ID() string { return hex.EncodeToString(r.Server.Trace[:]) }

// End exports the spans of a request that has ended. It keeps nothing of the record.
func (t *Tracer) End(r *Request, rec *accesslog.Record, now time.Time) {
	began := now.Add(-rec.Began)
	server := Span{Context: r.Server, Parent: r.Parent, Kind: KindServer, Began: began, Ended: now, Failed: rec.Status >= 500 || rec.Status == 0}
	server.Name = clone(rec.Method)
	if rec.Route != "" {
		server.Name += " " + rec.Route
	}
	server.fill(rec)
	t.Export(server)
	if rec.Attempts == 0 {
		return
	}
	back := Span{Context: r.Server, Parent: r.Server.Span, Kind: KindClient, Name: clone(rec.Pool) + "/" + clone(rec.Backend), Began: began.Add(rec.Waited), Ended: now}
	back.Context.Span, back.Failed = r.Backend, rec.Error != "" || rec.Status >= 500
	back.add("millrace.pool", rec.Pool)
	back.add("millrace.backend", rec.Backend)
	back.add("error.type", rec.Error)
	back.Numbers = append(back.Numbers, Number{"http.response.status_code", int64(rec.Status)}, Number{"http.request.resend_count", int64(rec.Attempts - 1)})
	if rec.Answered > 0 {
		back.Header = back.Began.Add(rec.Answered)
	}
	t.Export(back)
}
