package http3

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// fuzzRun feeds a machine streams from data: each piece is a byte that says which stream and whether it ends, a
// length and the bytes. Pieces are passed cut at random. It returns what was reported.
func fuzzRun(t *testing.T, role Role, data []byte, rng *rand.Rand) (log []string) {
	m := NewMachine(role, MachineOptions{MaxFieldSection: 2000, WebTransport: 1, MaxPushes: 2, MaxIdleFrames: 100, BlockedStreams: 2})
	streams := map[uint64]*Stream{}
	rest := map[uint64][]byte{}
	fins := map[uint64]bool{}
	note := func(id uint64, format string, args ...any) {
		log = append(log, fmt.Sprint(id, ": ")+fmt.Sprintf(format, args...))
	}
	feed := func(id uint64) bool {
		s, p := streams[id], rest[id]
		for i := 0; ; i++ {
			if i > 10000 {
				t.Fatal("no progress")
			}
			piece, fin := p, fins[id]
			if rng != nil && len(p) > 0 {
				piece = p[:1+rng.IntN(len(p))]
				fin = fin && len(piece) == len(p)
			}
			ev, n, err := m.Input(s, piece, fin)
			if n > len(piece) {
				t.Fatalf("%d bytes of %d consumed", n, len(piece))
			}
			p = p[n:]
			rest[id] = p
			var se *StreamError
			if errors.As(err, &se) {
				note(id, "stream %v", se.Code)
				continue
			}
			if err != nil {
				note(id, "conn %v", err)
				return false
			}
			switch ev.Kind {
			case NeedInput:
				if s.Blocked() || len(p) == 0 {
					return true
				}
			case Data:
				if s.kind == webTransport {
					continue // may come in other pieces
				}
			case Headers, Trailers, PushPromise:
				note(id, "%d %v %d", ev.Kind, s.Section.Fields, ev.ID)
			case Unblocked:
				note(id, "unblocked %d", ev.Blocked.ID())
				for b, found := ev.Blocked, true; found; b, found = m.NextUnblocked() {
					rest[b.ID()] = append([]byte(nil), rest[b.ID()]...)
				}
			default:
				note(id, "%d %d %v", ev.Kind, ev.ID, ev.Priority)
			}
		}
	}
	for len(data) >= 2 {
		id, fin, n := uint64(data[0]&15), data[0]&16 != 0, int(data[1])
		data = data[2:]
		n = min(n, len(data))
		if streams[id] == nil {
			s, err := m.Open(id)
			if err != nil {
				note(id, "open %v", err)
				return log
			}
			streams[id] = s
		}
		if !fins[id] {
			rest[id] = append(rest[id], data[:n]...)
			fins[id] = fin
		}
		data = data[n:]
		if !feed(id) {
			return log
		}
		for other, s := range streams {
			if !s.Blocked() && len(rest[other]) > 0 && rng == nil && !feed(other) {
				return log
			}
		}
	}
	return log
}

// FuzzMachine feeds machines streams in any order: they never fail but by an error, and where bytes are cut
// changes nothing of what is reported.
func FuzzMachine(f *testing.F) {
	client := NewMachine(RoleClient, MachineOptions{})
	message := client.AppendHeaders(nil, 0, requestFields)
	message = append(AppendDataHeader(message, 5), "hello"...)
	piece := func(head byte, p []byte) []byte { return append([]byte{head, byte(len(p))}, p...) }
	f.Add(append(piece(2, client.AppendControl(nil)), piece(16, message)...), uint64(1), false)
	f.Add(append(piece(6, client.AppendEncoder(nil)), piece(4, message)...), uint64(2), false)
	server := NewMachine(RoleServer, MachineOptions{})
	f.Add(append(piece(3, server.AppendControl(nil)), piece(16, []byte("\x01\x03\x00\x00\xd9\x00\x01x"))...), uint64(3), true)
	f.Add([]byte("\x02\x09\x00\x04\x00\x0d\x01\x05\x07\x01\x04"), uint64(4), false)
	f.Add([]byte("\x04\x06\x40\x41\x00abc\x12\x05\x40\x54\x04xy"), uint64(5), false)
	f.Fuzz(func(t *testing.T, data []byte, seed uint64, asClient bool) {
		role := RoleServer
		if asClient {
			role = RoleClient
		}
		whole := fuzzRun(t, role, data, nil)
		cut := fuzzRun(t, role, data, rand.New(rand.NewPCG(seed, 1)))
		for i := range min(len(whole), len(cut)) {
			if whole[i] != cut[i] && !mentionsBlocking(whole) {
				t.Fatalf("event %d: %q; cut: %q", i, whole[i], cut[i])
			}
		}
	})
}

// mentionsBlocking reports whether streams were blocked: then the order of events depends on when the driver
// looks.
func mentionsBlocking(log []string) bool {
	for _, s := range log {
		if len(s) > 3 && (s[3:] == "unblocked" || len(s) > 12 && s[3:12] == "unblocked") {
			return true
		}
	}
	return false
}

func FuzzCapsules(f *testing.F) {
	f.Add(AppendCapsule(AppendCapsule(nil, 0, []byte("x")), 0x2843, []byte("\x00\x00\x00\x00bye")), uint8(3))
	f.Fuzz(func(t *testing.T, p []byte, size uint8) {
		run := func(size int) (got []string, failed bool) {
			c := Capsules{Max: 100}
			for rest := p; len(rest) > 0; {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				for {
					kind, value, n, complete, err := c.Next(piece)
					if err != nil {
						return got, true
					}
					piece = piece[n:]
					if len(c.buf) > 100 {
						t.Fatal("kept", len(c.buf))
					}
					if !complete {
						break
					}
					got = append(got, fmt.Sprint(kind, string(value)))
				}
			}
			return got, false
		}
		a, x := run(1 << 20)
		b, y := run(int(size) + 1)
		if fmt.Sprint(a) != fmt.Sprint(b) || x != y {
			t.Fatalf("%q %v; in pieces %q %v", a, x, b, y)
		}
	})
}

func FuzzPriority(f *testing.F) {
	f.Add(`u=1, i, x="a,b";q=1`)
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := ParsePriority(s)
		if p.Urgency > 7 || !ok && p != DefaultPriority {
			t.Fatal(p, ok)
		}
		if again, ok := ParsePriority(p.String()); !ok || again != p {
			t.Fatalf("%v as %q is %v", p, p.String(), again)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte("\x01\x40\x64\x07\x10\x33\x01"))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := parseSettings(p)
		if err != nil {
			return
		}
		frame := s.append(nil)
		_, length, n := frameHeader(frame)
		again, err := parseSettings(frame[n : n+int(length)])
		if err != nil || again != s {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}
