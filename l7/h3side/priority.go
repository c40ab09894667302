package h3side

import (
	"github.com/millrace/millrace/http3"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// maxPriorities bounds the priorities that are kept for requests to come (RFC 9218 7): a client sends them ahead for few.
const maxPriorities = 64

// priorityOf parses the field Priority, if there is one (RFC 9218 5). Lines of one are a list: the parts of a
// structured field that comes in several lines are joined by commas before it is parsed (RFC 8941 4.2).
func priorityOf(fields []semantics.Field) (value string, found bool) {
	for i := range fields {
		switch {
		case fields[i].Name != "priority":
		case !found:
			value, found = fields[i].Value, true
		default:
			value += "," + fields[i].Value
		}
	}
	return value, found
}

// prioritise orders the response to a request among those of its connection. Those that the client says nothing about take turns,
// as QUIC has it. PRIORITY_UPDATE comes before the field (RFC 9218 7).
func (f *Front) prioritise(st *Stream, fields []semantics.Field) {
	st.Priority = http3.DefaultPriority
	if p, early := f.Priorities[st.S.ID()]; early {
		delete(f.Priorities, st.S.ID())
		st.setPriority(p)
		return
	}
	value, found := priorityOf(fields)
	if !found {
		return
	}
	if p, ok := http3.ParsePriority(value); ok {
		st.setPriority(p)
	}
}

// reprioritise gives the priority of a backend's response precedence over the client's (RFC 9218 8): the server knows
// what a response is for, and the client can only guess. Parameters that the response does not name stay as the client
// has set them.
func (st *Stream) reprioritise(fields []semantics.Field) {
	value, found := priorityOf(fields)
	if !found {
		return
	}
	if p, ok := st.Priority.Merge(value); ok {
		st.setPriority(p)
	}
}

// setPriority orders the stream among those of its connection. QUIC has no priorities of its own on the wire: they
// decide only what the sender puts into its next packet (RFC 9000 2.3).
func (st *Stream) setPriority(p http3.Priority) {
	st.Priority = p
	st.S.SetPriority(p.Urgency, p.Incremental)
}

// control handles PRIORITY_UPDATE, of a request in progress or of one to come. There are no pushes.
//
// One for a request that has ended means nothing. It must not be kept: its ID never comes again, and a client could
// fill the map with such. Those of requests to come are kept up to a bound, and the rest is dropped, as RFC 9218 7
// permits.
func (f *Front) control(ev *http3.Event) {
	switch {
	case ev.Kind == http3.PeerSettings:
		f.emit(side.Settings, nil)
		return
	case ev.Kind == http3.GoAway:
		f.drainSessions(BackendEnd)
		return
	case ev.Kind != http3.PriorityUpdate || ev.Push:
		return
	}
	due := ev.ID >= f.next
	for _, st := range f.Streams {
		if st.S.ID() != ev.ID {
			continue
		}
		if st.User != nil {
			st.setPriority(ev.Priority)
			return
		}
		due = true // its header is on the way
	}
	_, known := f.Priorities[ev.ID]
	if !due || !known && len(f.Priorities) >= maxPriorities {
		return
	}
	if f.Priorities == nil {
		f.Priorities = map[uint64]http3.Priority{}
	}
	f.Priorities[ev.ID] = ev.Priority
}
