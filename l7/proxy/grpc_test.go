package proxy

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
)

// callBackend is a backend of gRPC that ends each call with a status, after a message or without one.
type callBackend struct {
	statuses []string // of the calls, the last also of all further ones
	message  bool
	calls    int
	contents []string
}

func (b *callBackend) serve(p *memtransport.Peer) {
	content := ""
	serveHTTP2(p, http2.Options{}, func(m *http2.Machine, ev http2.Event) {
		switch ev.Kind {
		case http2.Data:
			content += string(ev.Payload)
			m.Consumed(ev.Stream, len(ev.Payload))
		case http2.End:
			b.contents = append(b.contents, content)
			content = ""
			p.Write(b.end(m, ev.Stream))
			m.Release(ev.Stream)
		}
	})
}

// end returns a response.
func (b *callBackend) end(m *http2.Machine, s *http2.Stream) []byte {
	status := []semantics.Field{{Name: "grpc-status", Value: b.statuses[min(b.calls, len(b.statuses)-1)]}}
	b.calls++
	head := semantics.Message{Status: 200, ContentLength: -1, Fields: []semantics.Field{{Name: "content-type", Value: "application/grpc"}}}
	if !b.message {
		head.Fields = append(head.Fields, status...)
		out, _ := m.AppendResponse(m.AppendControl(nil), s, &head, true)
		return out
	}
	out, _ := m.AppendResponse(m.AppendControl(nil), s, &head, false)
	out, _, _ = m.AppendData(out, s, []byte("message"), false)
	out, _ = m.AppendTrailers(out, s, status)
	return out
}

// Calls that end with UNAVAILABLE, UNKNOWN, INTERNAL or DATA_LOSS count against the backend, with and without a message. Others do
// not, among them those that a client can cause.
func TestFailedCallsCountAgainstBackends(t *testing.T) {
	for status := range 17 {
		for _, message := range []bool{false, true} {
			want := map[int]int{14: 3, 2: 3, 13: 3, 15: 3}[status]
			r := newMemRig(t, func(r *memRig, _ *Tree) {
				r.to.Protocol = HTTP2
				o := pool.Options{Name: "p", Outlier: &pool.Outlier{Errors: 3, MaxEjected: 100}, Balance: pool.ConsistentHash}
				all := []pool.BackendOptions{{Name: "b", Address: memBackend}, {Name: "c", Address: memBackend}}
				must(t, r.to.Update(clock.Time(0), o, all)) // all calls have one hash
			})
			b := &callBackend{statuses: []string{fmt.Sprint(status)}, message: message}
			r.backend = b.serve
			var clients []*memtransport.Peer
			for range 3 {
				c, _ := r.call("request")
				clients = append(clients, c)
			}
			st := r.to.Status(r.worker.Now).Backends[0]
			if st.Statuses == [6]uint64{} {
				st = r.to.Status(r.worker.Now).Backends[1]
			}
			if out := st.Ejected > 0; out != (want > 0) {
				t.Errorf("status %d, message %v: ejected %v", status, message, out)
			}
			if got := int(st.Statuses[5]); got != want || int(st.Statuses[2]) != 3-want || b.calls != 3 {
				t.Errorf("status %d, message %v: %d of %d calls count as failures", status, message, got, b.calls)
			}
			r.nothingLeft(clients...)
		}
	}
}

// A call that fails without a message is sent again where the rule names what it counts as; with a message, or another status, it
// is not.
func TestFailedCallsAreSentAgain(t *testing.T) {
	for _, c := range []struct {
		status  string
		message bool
		codes   []int
		want    int // calls
	}{
		{"14", false, []int{503}, 2},
		{"14", true, []int{503}, 1},
		{"14", false, []int{500}, 1},
		{"14", false, nil, 1},
		{"13", false, []int{500}, 2},
		{"5", false, []int{500, 503}, 1},
		{"0", false, []int{500, 503}, 1},
	} {
		r := newMemRig(t, func(r *memRig, _ *Tree) {
			r.to.Protocol, r.rule.RetryStatus, r.rule.Attempts = HTTP2, c.codes, 3
		})
		b := &callBackend{statuses: []string{c.status, "0"}, message: c.message}
		r.backend = b.serve
		client, _ := r.call("request")
		if b.calls != c.want {
			t.Errorf("%+v: %d calls", c, b.calls)
		}
		for _, content := range b.contents {
			if content != "request" {
				t.Errorf("%+v: content %q", c, content)
			}
		}
		st := r.to.Status(r.worker.Now).Backends[0].Statuses
		if failed := uint64(b.calls - 1); c.want > 1 && (st[5] != failed || st[2] != 1) {
			t.Errorf("%+v: counted %v", c, st)
		}
		r.nothingLeft(client)
	}
}
