package http3

import (
	"math/rand/v2"
	"testing"
)

// flowPair is the flow control of both ends of a session, and what is on its way.
type flowPair struct {
	t        *testing.T
	ends     [2]SessionFlow
	capsules [2][]byte // from an end
	data     [2]int    // bytes sent and not read, by sender
	streams  [2][2]int // opened and not accepted
	parsers  [2]Capsules
}

func newFlowPair(t *testing.T, a, b SessionLimits) *flowPair {
	p := &flowPair{t: t}
	p.ends = [2]SessionFlow{NewSessionFlow(a, b), NewSessionFlow(b, a)}
	return p
}

// deliver passes n bytes of capsules from an end.
func (p *flowPair) deliver(from, n int) {
	in := p.capsules[from][:min(n, len(p.capsules[from]))]
	p.capsules[from] = p.capsules[from][len(in):]
	for len(in) > 0 {
		kind, value, used, complete, err := p.parsers[from].Next(in)
		if err != nil {
			p.t.Fatal(err)
		}
		in = in[used:]
		if v, size := varint(value); complete && (size != len(value) || !p.ends[1-from].Capsule(kind, v)) {
			p.t.Fatalf("end %d refuses the capsule %x %x", 1-from, kind, value)
		}
	}
}

// read has an end read n bytes and accept the streams of a kind.
func (p *flowPair) read(end, n, kind int) {
	f, from := &p.ends[end], 1-end
	n = min(n, p.data[from])
	p.data[from] -= n
	if !f.Receive(n) {
		p.t.Fatalf("end %d exceeds its credit: %+v", from, *f)
	}
	for ; p.streams[from][kind] > 0; p.streams[from][kind]-- {
		if !f.Accept(kind) {
			p.t.Fatalf("end %d opens too many streams: %+v", from, *f)
		}
		f.Taken(kind)
	}
}

// FuzzSessionFlow has both ends of a session send, read, open and lose as the fuzzer chooses. Neither ever refuses the
// other, no more is under way than was granted, and in the end all that an end wants to send arrives.
func FuzzSessionFlow(f *testing.F) {
	f.Add([]byte{0, 200, 1, 4, 8, 3, 3, 0, 9, 16, 2, 2, 6, 7, 5}, uint64(1), uint16(100), uint8(2))
	f.Add([]byte{0xf8, 0xf0, 0xe8, 2, 2, 3, 4, 4, 4, 5, 5, 5}, uint64(2), uint16(1), uint8(1))
	f.Add([]byte{8, 8, 8, 7, 6, 7, 6, 8, 8}, uint64(3), uint16(3000), uint8(0))
	f.Fuzz(func(t *testing.T, calls []byte, seed uint64, data uint16, streams uint8) {
		limits := SessionLimits{Streams: uint64(streams), UniStreams: uint64(streams >> 4), Data: uint64(data)}
		if !limits.declared() {
			return
		}
		p := newFlowPair(t, limits, SessionLimits{Streams: 3, UniStreams: 2, Data: 50})
		rng := rand.New(rand.NewPCG(seed, 6))
		for _, c := range calls {
			end, arg := int(c>>3&1), int(c>>4)
			e := &p.ends[end]
			switch c & 7 {
			case 0, 1:
				p.data[end] += e.Reserve(arg * 20)
			case 2:
				if kind := arg & 1; e.Open(kind) {
					p.streams[end][kind]++
				}
			case 3, 4:
				p.read(end, rng.IntN(arg*20+1), arg&1)
			case 5:
				p.capsules[end] = e.AppendDue(p.capsules[end])
			case 6:
				p.deliver(end, arg+1)
			case 7: // a stream is reset: a part of what was sent never comes
				lost := rng.IntN(p.data[end] + 1)
				if p.data[end] -= lost; lost > 0 {
					p.ends[1-end].WasReset()
				}
			}
			for i := range p.ends {
				if e, peer := &p.ends[i], &p.ends[1-i]; e.sent > peer.grantedData || e.opened[0] > peer.granted[0] || e.opened[1] > peer.granted[1] {
					t.Fatalf("more than granted: %+v, %+v", *e, *peer)
				}
			}
		}
		p.settle(0, limits)
		p.settle(1, SessionLimits{})
	})
}

// settle has an end send 1000 bytes and open 10 streams, which must succeed where the peer gives credit at all.
func (p *flowPair) settle(end int, own SessionLimits) {
	want, open := 1000, 10
	e := &p.ends[end]
	peer := &p.ends[1-end]
	for range 5000 {
		n := e.Reserve(want)
		want -= n
		p.data[end] += n
		if open > 0 && e.Open(Bidirectional) {
			open--
			p.streams[end][Bidirectional]++
		}
		for i := range p.ends {
			p.capsules[i] = p.ends[i].AppendDue(p.capsules[i])
			p.deliver(i, 1<<20)
			p.read(i, 1<<20, Bidirectional)
		}
		if (want == 0 || peer.dataWindow == 0) && (open == 0 || peer.streamWindow[0] == 0) {
			return
		}
	}
	p.t.Fatalf("end %d stalls with %d bytes and %d streams: %+v, %+v", end, want, open, *e, *peer)
}

// acceptAll opens streams of these kinds, until one is refused.
func acceptAll(f *SessionFlow, kinds ...int) bool {
	for _, k := range kinds {
		if !f.Accept(k) {
			return false
		}
	}
	return true
}

// Limits that an end must refuse, and capsules that have no meaning.
func TestSessionFlowRefuses(t *testing.T) {
	limits := SessionLimits{Streams: 2, UniStreams: 1, Data: 10}
	for what, c := range map[string]struct {
		own, peer SessionLimits
		f         func(*SessionFlow) bool
		want      bool
	}{
		"a stream too many":            {limits, limits, func(f *SessionFlow) bool { return acceptAll(f, Unidirectional, Unidirectional) }, false},
		"streams that are permitted":   {limits, limits, func(f *SessionFlow) bool { return acceptAll(f, 0, 0, 1) }, true},
		"a byte too many":              {limits, limits, func(f *SessionFlow) bool { return f.Receive(11) }, false},
		"after a grant":                {limits, limits, func(f *SessionFlow) bool { return f.Receive(6) && f.Receive(10) }, true},
		"less data":                    {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxData, 9) }, false},
		"as much data":                 {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxData, 10) }, true},
		"fewer streams":                {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxStreamsBidi, 1) }, false},
		"2^60 streams":                 {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxStreamsUni, 1<<60) }, true},
		"more than 2^60 streams":       {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxStreamsUni, 1<<60+1) }, false},
		"blocked at more than 2^60":    {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleStreamsBlockedUni, 1<<60+1) }, false},
		"a limit of a stream":          {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxStreamData, 1) }, false},
		"blocked on a stream":          {limits, limits, func(f *SessionFlow) bool { return f.Capsule(capsuleStreamDataBlocked, 1) }, false},
		"no flow control: a limit":     {limits, SessionLimits{}, func(f *SessionFlow) bool { return f.Capsule(capsuleMaxStreamData, 1) }, true},
		"no flow control: data":        {SessionLimits{}, limits, func(f *SessionFlow) bool { return f.Receive(1000) && f.Reserve(1000) == 1000 }, true},
		"no flow control: streams":     {limits, SessionLimits{}, func(f *SessionFlow) bool { return f.Open(0) && f.Accept(0) && f.Accept(0) && f.Accept(0) }, true},
		"no credit for streams at all": {limits, SessionLimits{Data: 1}, func(f *SessionFlow) bool { return f.Open(0) }, false},
		"blocked without a reset":      {limits, limits, func(f *SessionFlow) bool { f.Capsule(capsuleDataBlocked, 10); return f.due.data }, false},
		"blocked after a reset":        {limits, limits, func(f *SessionFlow) bool { f.WasReset(); f.Capsule(capsuleDataBlocked, 10); return f.due.data }, true},
		"blocked at another limit":     {limits, limits, func(f *SessionFlow) bool { f.WasReset(); f.Capsule(capsuleDataBlocked, 9); return f.due.data }, false},
		"a grant is due once":          {limits, limits, func(f *SessionFlow) bool { f.Receive(6); f.AppendDue(nil); return len(f.AppendDue(nil)) > 0 }, false},
		"blocked is reported":          {limits, limits, func(f *SessionFlow) bool { f.Reserve(11); return f.Reserve(1) == 0 && f.due.dataBlocked }, true},
		"blocked is reported once": {limits, limits, func(f *SessionFlow) bool {
			f.Reserve(10)
			f.Reserve(1)
			f.AppendDue(nil)
			f.Reserve(1)
			return f.due.dataBlocked
		}, false},
		"blocked streams are reported":   {limits, limits, func(f *SessionFlow) bool { f.Open(1); return !f.Open(1) && f.due.streamsBlocked[1] }, true},
		"a grant of streams, half used":  {limits, limits, func(f *SessionFlow) bool { f.Accept(0); f.Taken(0); f.Accept(0); f.Taken(0); return f.due.streams[0] }, true},
		"a grant of streams, not so far": {limits, limits, func(f *SessionFlow) bool { f.Accept(0); f.Taken(0); return f.due.streams[0] }, false},
	} {
		f := NewSessionFlow(c.own, c.peer)
		if got := c.f(&f); got != c.want {
			t.Errorf("%s: %v, %+v", what, got, f)
		}
	}
}
